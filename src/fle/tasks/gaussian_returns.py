"""Tasks whose return is Gaussian, or a known mixture of Gaussians: LQR, and a fork."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_discrete_lyapunov

from fle.errors import SettingsError
from fle.tasks.tabular import (
    FloatArray,
    IntArray,
    checked_distribution,
    draw_categorical,
    require_count,
    require_discount,
    require_step,
)

START = 0


@dataclass(frozen=True, eq=False)
class LQR:
    """x' = A x + B a, r = -(xᵀQx + aᵀRa) + ε with ε ~ N(0, noise_std²), policy a = K x.

    Given (x, a) at a step, the return is N(true_mean, true_variance): only the reward is random.
    Steps count from 0: the paper's h is step + 1.

    Args:
        A: (dx, dx) dynamics.
        B: (dx, da) control.
        Q: (dx, dx) cost of states.
        R: (da, da) cost of actions.
        K: (da, dx) gain of the target policy.
        noise_std: standard deviation of the reward's noise.
        horizon: number of steps.
        initial_halfwidth: initial states are uniform on [-w, w]^dx.
        data_halfwidth: logged states are uniform on this larger box.
        exploration_std: logged actions are K x plus noise of this standard deviation.
    """

    A: FloatArray
    B: FloatArray
    Q: FloatArray
    R: FloatArray
    K: FloatArray
    noise_std: float
    horizon: int
    initial_halfwidth: float = 1.0
    data_halfwidth: float = 1.5
    exploration_std: float = 0.5

    def __post_init__(self) -> None:
        for name in "ABQRK":
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=float))
        dx, da = self.state_dim, self.action_dim
        expected = {"A": (dx, dx), "B": (dx, da), "Q": (dx, dx), "R": (da, da), "K": (da, dx)}
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise SettingsError(
                    f"{name}: expected shape {shape} for {dx} state and {da} action coordinates,"
                    f" got {getattr(self, name).shape}"
                )
        require_count("horizon", self.horizon)
        if not self.noise_std > 0:
            raise SettingsError(f"noise_std: expected a positive number, got {self.noise_std}")

    @classmethod
    def example(cls, horizon: int = 15) -> "LQR":
        """A damped cart: position and velocity, pushed back to the origin."""
        return cls(
            A=np.array([[1.0, 0.2], [0.0, 0.9]]),
            B=np.array([[0.0], [0.4]]),
            Q=np.array([[0.5, 0.0], [0.0, 0.1]]),
            R=np.array([[0.1]]),
            K=np.array([[-0.8, -0.6]]),
            noise_std=0.2,
            horizon=horizon,
        )

    @property
    def state_dim(self) -> int:
        """Number of state coordinates."""
        return int(self.A.shape[0])

    @property
    def action_dim(self) -> int:
        """Number of action coordinates."""
        return int(self.B.shape[-1])

    @property
    def closed_loop(self) -> FloatArray:
        """A + BK, the dynamics under the target policy."""
        return self.A + self.B @ self.K

    def target_policy(self, observations: ArrayLike) -> FloatArray:
        """Actions (n, da) = K x of observations (n, dx)."""
        return np.asarray(observations, dtype=float) @ self.K.T

    def expected_reward(self, observations: ArrayLike, actions: ArrayLike) -> FloatArray:
        """-(xᵀQx + aᵀRa), (n,)."""
        return -_quadratic(observations, self.Q) - _quadratic(actions, self.R)

    def next_observations(self, observations: ArrayLike, actions: ArrayLike) -> FloatArray:
        """A x + B a, (n, dx)."""
        return np.asarray(observations) @ self.A.T + np.asarray(actions) @ self.B.T

    # The known answer.

    def true_mean(self, observations: ArrayLike, actions: ArrayLike, step: int) -> FloatArray:
        """Mean return (n,) of (x, a) at a step: r̄(x, a) - (Ax + Ba)ᵀ U (Ax + Ba).

        U = Σ_j (Mʲ)ᵀ (Q + KᵀRK) Mʲ with M = A + BK, over the j = 0..H-2-step steps that follow;
        the exponents are those of the paper's proof, not of its lemma.
        """
        require_step(step, self.horizon)
        following = np.zeros_like(self.Q)
        for _ in range(self.horizon - 1 - step):
            following = self._policy_cost + self.closed_loop.T @ following @ self.closed_loop
        return self._mean_with(observations, actions, following)

    def true_variance(self, step: int) -> float:
        """Variance (horizon - step) noise_std² of the return, the same for all (x, a)."""
        require_step(step, self.horizon)
        return (self.horizon - step) * self.noise_std**2

    def discounted_mean(
        self, observations: ArrayLike, actions: ArrayLike, gamma: float
    ) -> FloatArray:
        """Mean (n,) of Σ γᵗ r_t from (x, a), with U the solution of U = Q + KᵀRK + γ MᵀUM."""
        require_discount(gamma)
        contraction = np.sqrt(gamma) * self.closed_loop
        largest = np.max(np.abs(np.linalg.eigvals(contraction)))
        if largest >= 1:
            raise SettingsError(
                "the discounted return diverges: expected eigenvalues of sqrt(gamma) (A + BK)"
                f" below 1, got {largest:.6g}; lower gamma"
            )
        following = solve_discrete_lyapunov(contraction.T, self._policy_cost)
        return self._mean_with(observations, actions, gamma * following)

    def discounted_variance(self, gamma: float) -> float:
        """noise_std² / (1 - γ²)."""
        require_discount(gamma)
        return self.noise_std**2 / (1 - gamma**2)

    @property
    def _policy_cost(self) -> FloatArray:
        return self.Q + self.K.T @ self.R @ self.K

    def _mean_with(
        self, observations: ArrayLike, actions: ArrayLike, following: FloatArray
    ) -> FloatArray:
        moved = self.next_observations(observations, actions)
        return self.expected_reward(observations, actions) - _quadratic(moved, following)

    # Draws.

    def initial_observations(self, n: int, generator: np.random.Generator) -> FloatArray:
        """Initial states (n, dx)."""
        width = self.initial_halfwidth
        return generator.uniform(-width, width, (n, self.state_dim))

    def offline_data(self, n: int, seed: int, initial: int = 1000) -> dict[str, Any]:
        """n independent transitions for `fle.Dataset(**data)`; every row serves every step."""
        generator = np.random.default_rng(seed)
        width = self.data_halfwidth
        observations = generator.uniform(-width, width, (n, self.state_dim))
        exploration = generator.normal(0.0, self.exploration_std, (n, self.action_dim))
        actions = self.target_policy(observations) + exploration
        noise = generator.normal(0.0, self.noise_std, n)
        return {
            "observations": observations,
            "actions": actions,
            "rewards": self.expected_reward(observations, actions) + noise,
            "next_observations": self.next_observations(observations, actions),
            "terminations": np.zeros(n, dtype=bool),
            "truncations": np.zeros(n, dtype=bool),
            "initial_observations": self.initial_observations(initial, generator),
        }

    def sample_returns(
        self,
        n: int,
        generator: np.random.Generator,
        *,
        start: tuple[ArrayLike, ArrayLike] | None = None,
        step: int = 0,
        gamma: float = 1.0,
    ) -> FloatArray:
        """n simulated returns (n,) of the target policy over the steps step..horizon-1.

        Args:
            n: number of returns.
            generator: source of randomness.
            start: one (x, a) to begin with; without it, initial states and the policy's actions.
            step: the step to begin at.
            gamma: discount from step to step.
        """
        require_step(step, self.horizon)
        if start is None:
            observations = self.initial_observations(n, generator)
            actions = self.target_policy(observations)
        else:
            observations = np.broadcast_to(np.asarray(start[0], float), (n, self.state_dim))
            actions = np.broadcast_to(np.asarray(start[1], float), (n, self.action_dim))
        returns = np.zeros(n)
        for elapsed in range(self.horizon - step):
            noise = generator.normal(0.0, self.noise_std, n)
            returns += gamma**elapsed * (self.expected_reward(observations, actions) + noise)
            observations = self.next_observations(observations, actions)
            actions = self.target_policy(observations)
        return returns


def _quadratic(vectors: ArrayLike, matrix: FloatArray) -> FloatArray:
    rows = np.asarray(vectors, dtype=float)
    return np.einsum("ni,ij,nj->n", rows, matrix, rows)


@dataclass(frozen=True, eq=False)
class Fork:
    """The first action chooses, by chance, one of K branches, which is followed to the end.

    Every step on branch k pays a vector reward of N(means[k], covariances[k]); the step of the
    choice pays nothing. Observation 0 is the start, observation k the k-th branch. With L steps on
    a branch, the return is a mixture of N(L means[k], L covariances[k]).

    Args:
        chances: (A, K) probabilities of the branches for each action.
        means: (K, d).
        covariances: (K, d, d).
        steps: number of steps on a branch.
        policy: (A,) probabilities of the target policy's actions.
    """

    chances: FloatArray
    means: FloatArray
    covariances: FloatArray
    steps: int
    policy: FloatArray

    def __post_init__(self) -> None:
        chances = np.asarray(self.chances, dtype=float)
        actions, branches = chances.shape
        d = np.shape(self.means)[-1]
        checked_distribution("chances", chances, (actions, branches))
        checked_distribution("policy", self.policy, (actions,))
        if np.shape(self.means) != (branches, d) or np.shape(self.covariances) != (branches, d, d):
            raise SettingsError(
                f"expected means of shape (K, d) and covariances of shape (K, d, d) for K ="
                f" {branches} branches, got {np.shape(self.means)} and"
                f" {np.shape(self.covariances)}"
            )
        require_count("steps", self.steps)

    @classmethod
    def example(cls, dimension: int = 5) -> "Fork":
        """Three branches, well apart, each with its own correlations."""
        generator = np.random.default_rng(5)
        factors = generator.normal(size=(3, dimension, dimension)) / np.sqrt(dimension)
        covariances = 0.3 * factors @ factors.transpose(0, 2, 1) + 0.05 * np.eye(dimension)
        means = 1.5 * generator.normal(size=(3, dimension))
        chances = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
        return cls(chances, means, covariances, 2, np.array([0.4, 0.6]))

    @property
    def horizon(self) -> int:
        """The choice, and the steps on a branch."""
        return 1 + self.steps

    @property
    def weights(self) -> FloatArray:
        """Probability (K,) of each branch under the target policy."""
        return np.asarray(self.policy) @ np.asarray(self.chances)

    def target_policy(self, observations: ArrayLike) -> FloatArray:
        """Probabilities (n, A), the same everywhere."""
        return np.tile(self.policy, (len(np.asarray(observations)), 1))

    def sample_returns(self, n: int, generator: np.random.Generator) -> FloatArray:
        """n returns (n, d) of the target policy, drawn from the exact distribution."""
        branches = draw_categorical(np.tile(self.weights, (n, 1)), generator)
        return self._sums(branches, self.steps, generator)

    def offline_data(self, n: int, seed: int) -> dict[str, Any]:
        """n independent transitions for `fle.Dataset(**data)`: as many starts as of each branch.

        Actions are uniform. Rows carry no step index: each serves every stage.
        """
        generator = np.random.default_rng(seed)
        actions_in_all, branches_in_all = np.shape(self.chances)
        observations = generator.integers(1 + branches_in_all, size=n)
        actions = generator.integers(actions_in_all, size=n)
        chosen = 1 + draw_categorical(np.asarray(self.chances)[actions], generator)
        starting = observations == START
        on_branch = self._sums(np.where(starting, 0, observations - 1), 1, generator)
        return {
            "observations": observations,
            "actions": actions,
            "rewards": np.where(starting[:, None], 0.0, on_branch),
            "next_observations": np.where(starting, chosen, observations),
            "terminations": np.zeros(n, dtype=bool),
            "truncations": np.zeros(n, dtype=bool),
            "initial_observations": np.full(100, START),
            "number_of_actions": actions_in_all,
        }

    def _sums(self, branches: IntArray, terms: int, generator: np.random.Generator) -> FloatArray:
        """Sums (n, d) of `terms` rewards on each branch."""
        factors = np.linalg.cholesky(np.asarray(self.covariances))[branches]
        noise = generator.normal(size=(len(branches), factors.shape[-1], 1))
        return terms * np.asarray(self.means)[branches] + np.sqrt(terms) * (factors @ noise)[..., 0]
