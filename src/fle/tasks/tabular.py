"""Finite MDPs whose return is known: integer rewards, or a Gaussian one at the end."""

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import logsumexp

from fle.errors import SettingsError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def draw_categorical(probabilities: ArrayLike, generator: np.random.Generator) -> IntArray:
    """One index a row from row-wise probabilities (n, k), by inverting the cumulative sum."""
    cumulative = np.cumsum(np.asarray(probabilities, dtype=float), axis=-1)
    # Scaling by the last entry keeps a rounding error from ever choosing an index beyond it.
    thresholds = generator.random(len(cumulative))[:, None] * cumulative[:, -1:]
    return (thresholds >= cumulative).sum(axis=-1)


def checked_distribution(name: str, probabilities: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Probabilities over the last axis, of exactly this shape."""
    values = np.asarray(probabilities, dtype=float)
    if values.shape != shape:
        raise SettingsError(f"{name}: expected shape {shape}, got {values.shape}")
    sums = values.sum(axis=-1)
    if not (np.all(values >= 0) and np.allclose(sums, 1.0, atol=1e-9)):
        raise SettingsError(
            f"{name}: expected probabilities that sum to 1 over the last axis, got a smallest of"
            f" {values.min():.6g} and sums from {sums.min():.6g} to {sums.max():.6g}"
        )
    return values


def require_count(name: str, value: float) -> None:
    """At least 1 of something."""
    if not value >= 1:
        raise SettingsError(f"{name}: expected at least 1, got {value}")


def require_step(step: int, horizon: int) -> None:
    """A step counts from 0 and lies before the horizon."""
    if not 0 <= step < horizon:
        raise SettingsError(f"step: expected one of 0..{horizon - 1}, got {step}")


def require_discount(gamma: float) -> None:
    """A discount without a horizon lies in [0, 1)."""
    if not 0 <= gamma < 1:
        raise SettingsError(f"gamma: expected a number in [0, 1), got {gamma}")


class FiniteMDP(ABC):
    """S states and A actions with known transitions; rewards are left to the final classes.

    Policies are (S, A) arrays of probabilities. Steps count from 0.

    Attributes:
        transitions: (S, A, S) probabilities of the next state where the episode goes on.
        initial: (S,) probabilities.
        horizon: number of steps of the finite-horizon return.
    """

    transitions: FloatArray
    initial: FloatArray
    horizon: int

    @property
    def number_of_states(self) -> int:
        """S."""
        return int(self.transitions.shape[0])

    @property
    def number_of_actions(self) -> int:
        """A."""
        return int(self.transitions.shape[1])

    def initial_states(self, n: int, generator: np.random.Generator) -> IntArray:
        """n draws of the initial state."""
        return generator.choice(self.number_of_states, size=n, p=self.initial)

    def _check_dynamics(self) -> None:
        shape = np.shape(self.transitions)
        if len(shape) != 3 or shape[0] != shape[2]:
            raise SettingsError(f"transitions: expected shape (S, A, S), got {shape}")
        require_count("horizon", self.horizon)
        transitions = checked_distribution("transitions", self.transitions, shape)
        object.__setattr__(self, "transitions", transitions)
        initial = checked_distribution("initial", self.initial, shape[:1])
        object.__setattr__(self, "initial", initial)

    def _checked_policy(self, policy: ArrayLike) -> FloatArray:
        shape = (self.number_of_states, self.number_of_actions)
        return checked_distribution("policy", policy, shape)

    def _expected_next(self, values: FloatArray, policy: FloatArray) -> FloatArray:
        """E over s' and a' of values (S, A, L)."""
        return np.einsum("sat,tl->sal", self.transitions, np.einsum("tb,tbl->tl", policy, values))

    def _expected_initial(self, values: FloatArray, policy: FloatArray) -> FloatArray:
        """E over the initial state and its action of values (S, A, L): (L,)."""
        return np.einsum("sa,sal->l", self.initial[:, None] * policy, values)

    def _starts(
        self,
        policy: FloatArray,
        n: int,
        generator: np.random.Generator,
        start: tuple[int, int] | None,
    ) -> tuple[IntArray, IntArray]:
        """n states and actions to begin with: always the given pair, or drawn."""
        if start is not None:
            return np.full(n, start[0]), np.full(n, start[1])
        states = self.initial_states(n, generator)
        return states, draw_categorical(policy[states], generator)

    def _columns(
        self,
        states: IntArray,
        actions: IntArray,
        rewards: FloatArray,
        next_states: IntArray,
        terminations: NDArray[np.bool_],
    ) -> dict[str, Any]:
        """Rows as `fle.Dataset` calls them, without the initial observations."""
        return {
            "observations": states,
            "actions": actions,
            "rewards": rewards,
            # The next state of a terminated row is a draw like any other and must not matter.
            "next_observations": next_states,
            "terminations": terminations,
            "truncations": np.zeros(len(states), dtype=bool),
            "number_of_actions": self.number_of_actions,
        }


@dataclass(frozen=True, eq=False)
class TabularMDP(FiniteMDP):
    """Integer rewards with known probabilities, and random termination.

    Given (s, a): a reward from `reward_probabilities[s, a]`; then the episode terminates with
    probability `terminations[s, a]`, and otherwise moves by `transitions[s, a]`. The three are
    independent.

    Args:
        transitions: (S, A, S) probabilities of the next state where the episode goes on.
        reward_values: (K,) distinct integers.
        reward_probabilities: (S, A, K).
        terminations: (S, A) probabilities.
        initial: (S,) probabilities.
        horizon: number of steps of the finite-horizon return.

    >>> support, probabilities = random_mdp(4, 2, seed=0).policy_pmf(uniform_policy(4, 2))
    """

    transitions: FloatArray
    reward_values: IntArray
    reward_probabilities: FloatArray
    terminations: FloatArray
    initial: FloatArray
    horizon: int

    def __post_init__(self) -> None:
        self._check_dynamics()
        pairs = (self.number_of_states, self.number_of_actions)
        values = np.asarray(self.reward_values)
        if values.ndim != 1 or values.dtype.kind != "i" or len(set(values.tolist())) != values.size:
            raise SettingsError(f"reward_values: expected distinct integers (K,), got {values}")
        terminations = np.asarray(self.terminations, dtype=float)
        outside = np.any((terminations < 0) | (terminations > 1))
        if terminations.shape != pairs or outside:
            raise SettingsError(
                f"terminations: expected probabilities of shape {pairs}, got shape"
                f" {terminations.shape}{' with numbers outside [0, 1]' if outside else ''}"
            )
        rewards = checked_distribution(
            "reward_probabilities", self.reward_probabilities, (*pairs, values.size)
        )
        object.__setattr__(self, "reward_values", values)
        object.__setattr__(self, "reward_probabilities", rewards)
        object.__setattr__(self, "terminations", terminations)

    # The known answer.

    def exact_pmf(self, policy: ArrayLike, step: int = 0) -> tuple[IntArray, FloatArray]:
        """Return probabilities of every (state, action) at a step: support (L,), (S, A, L).

        Z_h(s, a) = R(s, a) + [not terminated] Z_{h+1}(s', a'), a convolution on the integers.
        """
        probabilities = self._checked_policy(policy)
        require_step(step, self.horizon)
        # With 0 among the rewards' lattice, sums of fewer rewards lie on the lattice of more.
        lowest, highest = min(0, self.reward_values.min()), max(0, self.reward_values.max())
        # After the last step the return is certainly 0.
        pmf = np.ones((self.number_of_states, self.number_of_actions, 1))
        remaining = self.horizon - step
        for done in range(remaining):
            onward = self._expected_next(pmf, probabilities)
            continuation = (1 - self.terminations)[..., None] * onward
            continuation[..., -done * lowest] += self.terminations
            width = continuation.shape[-1]
            pmf = np.zeros((*pmf.shape[:2], width + highest - lowest))
            for k, value in enumerate(self.reward_values):
                shift = value - lowest
                weight = self.reward_probabilities[..., k, None]
                pmf[..., shift : shift + width] += weight * continuation
        support = np.arange(remaining * lowest, remaining * highest + 1)
        return support, pmf

    def policy_pmf(self, policy: ArrayLike) -> tuple[IntArray, FloatArray]:
        """Probabilities of the policy's return from the initial states: support (L,), (L,)."""
        support, pmf = self.exact_pmf(policy)
        return support, self._expected_initial(pmf, self._checked_policy(policy))

    def discounted_moments(self, policy: ArrayLike, gamma: float) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, (S, A) each, of the discounted return without a horizon.

        With Z' the return that follows (0 if terminated), independent of R given (s, a),
        E[Z] = E[R] + γ E[Z'] and E[Z²] = E[R²] + 2γ E[R] E[Z'] + γ² E[Z'²]: two linear systems.
        """
        require_discount(gamma)
        probabilities = self._checked_policy(policy)
        pairs = self.number_of_states * self.number_of_actions
        moves = (1 - self.terminations)[..., None] * self.transitions
        onward = np.einsum("sat,tb->satb", moves, probabilities).reshape(pairs, pairs)
        reward = (self.reward_probabilities @ self.reward_values).reshape(pairs)
        reward_square = (self.reward_probabilities @ self.reward_values**2).reshape(pairs)
        mean = np.linalg.solve(np.eye(pairs) - gamma * onward, reward)
        source = reward_square + 2 * gamma * reward * (onward @ mean)
        square = np.linalg.solve(np.eye(pairs) - gamma**2 * onward, source)
        shape = (self.number_of_states, self.number_of_actions)
        return mean.reshape(shape), (square - mean**2).reshape(shape)

    # Draws.

    def offline_data(
        self, n: int, seed: int, behaviour: ArrayLike | None = None, initial: int = 1000
    ) -> dict[str, Any]:
        """n independent transitions for `fle.Dataset(**data)`, from uniform states.

        Args:
            n: number of rows; every row serves every step.
            seed: seed of the draws.
            behaviour: (S, A) probabilities of the logged actions; uniform if not given.
            initial: number of initial observations.
        """
        generator = np.random.default_rng(seed)
        if behaviour is None:
            behaviour = uniform_policy(self.number_of_states, self.number_of_actions)
        policy = self._checked_policy(behaviour)
        states = generator.integers(self.number_of_states, size=n)
        actions = draw_categorical(policy[states], generator)
        rewards, terminations, next_states = self.step(states, actions, generator)
        columns = self._columns(states, actions, rewards.astype(float), next_states, terminations)
        return {**columns, "initial_observations": self.initial_states(initial, generator)}

    def sample_returns(
        self,
        policy: ArrayLike,
        n: int,
        generator: np.random.Generator,
        *,
        start: tuple[int, int] | None = None,
        gamma: float = 1.0,
        steps: int | None = None,
    ) -> FloatArray:
        """n simulated returns (n,).

        Args:
            policy: (S, A) probabilities.
            n: number of returns.
            generator: source of randomness.
            start: a (state, action) to begin with; without it, initial states and the policy.
            gamma: discount.
            steps: how many steps to simulate at most; the horizon if not given.
        """
        probabilities = self._checked_policy(policy)
        states, actions = self._starts(probabilities, n, generator, start)
        returns, running = np.zeros(n), np.arange(n)
        for elapsed in range(self.horizon if steps is None else steps):
            rewards, terminations, states = self.step(states, actions, generator)
            returns[running] += gamma**elapsed * rewards
            running, states = running[~terminations], states[~terminations]
            actions = draw_categorical(probabilities[states], generator)
        return returns

    def step(
        self, states: IntArray, actions: IntArray, generator: np.random.Generator
    ) -> tuple[IntArray, NDArray[np.bool_], IntArray]:
        """Rewards (n,), terminations (n,) and next states (n,) of one step."""
        kinds = draw_categorical(self.reward_probabilities[states, actions], generator)
        terminations = generator.random(len(states)) < self.terminations[states, actions]
        next_states = draw_categorical(self.transitions[states, actions], generator)
        return self.reward_values[kinds], terminations, next_states


def random_mdp(
    number_of_states: int,
    number_of_actions: int,
    seed: int,
    *,
    horizon: int = 10,
    reward_values: tuple[int, ...] = (-1, 0, 1, 2),
    termination: float = 0.0,
) -> TabularMDP:
    """A random TabularMDP: transitions, rewards and initial states from flat Dirichlets.

    `termination` is the mean probability of terminating at a (state, action); each pair has its
    own, uniform between 0 and twice that (at most 1).
    """
    generator = np.random.default_rng(seed)
    pairs = (number_of_states, number_of_actions)
    return TabularMDP(
        transitions=generator.dirichlet(np.ones(number_of_states), size=pairs),
        reward_values=np.asarray(reward_values),
        reward_probabilities=generator.dirichlet(np.ones(len(reward_values)), size=pairs),
        terminations=np.minimum(2 * termination * generator.random(pairs), 1.0),
        initial=generator.dirichlet(np.ones(number_of_states)),
        horizon=horizon,
    )


def uniform_policy(number_of_states: int, number_of_actions: int) -> FloatArray:
    """(S, A) of equal probabilities."""
    return np.full((number_of_states, number_of_actions), 1 / number_of_actions)


def random_policy(number_of_states: int, number_of_actions: int, seed: int) -> FloatArray:
    """(S, A) probabilities from a flat Dirichlet in every state."""
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.ones(number_of_actions), size=number_of_states)


def policy_function(policy: ArrayLike) -> Callable[[ArrayLike], FloatArray]:
    """A (S, A) policy as a function of observed states, (n,) or (n, 1) -> (n, A)."""
    table = np.asarray(policy, dtype=float)
    return lambda observations: table[np.asarray(observations).reshape(-1).astype(int)]


class GaussianLaws(NamedTuple):
    """K Gaussian distributions of the final reward: means (K,) and standard deviations (K,)."""

    means: FloatArray
    stds: FloatArray


@dataclass(frozen=True, eq=False)
class SparseTerminalMDP(FiniteMDP):
    """Rewards are zero before the last step, where (s, a) draws from its own of K Gaussians.

    The return from any (s, a) at any step is a mixture of the K Gaussians; its weights follow by
    dynamic programming.

    Args:
        transitions: (S, A, S) probabilities.
        reward_laws: the K Gaussians.
        law_of_pair: (S, A) integers below K: which one a pair draws from at the last step.
        initial: (S,) probabilities.
        horizon: number of steps.
    """

    transitions: FloatArray
    reward_laws: GaussianLaws
    law_of_pair: IntArray
    initial: FloatArray
    horizon: int

    def __post_init__(self) -> None:
        self._check_dynamics()
        pairs = (self.number_of_states, self.number_of_actions)
        means, stds = (np.asarray(values, dtype=float) for values in self.reward_laws)
        if means.ndim != 1 or means.shape != stds.shape or not np.all(stds > 0):
            raise SettingsError(
                "reward_laws: expected means (K,) and positive stds (K,), got shapes"
                f" {means.shape} and {stds.shape}{'' if np.all(stds > 0) else ', not all positive'}"
            )
        law_of_pair = np.asarray(self.law_of_pair)
        if law_of_pair.shape != pairs or not np.all(np.isin(law_of_pair, np.arange(len(means)))):
            raise SettingsError(
                f"law_of_pair: expected integers of shape {pairs} from 0 to {len(means) - 1}, got"
                f" shape {law_of_pair.shape} with {np.unique(law_of_pair)}"
            )
        object.__setattr__(self, "reward_laws", GaussianLaws(means, stds))
        object.__setattr__(self, "law_of_pair", law_of_pair.astype(int))

    # The known answer.

    def exact_weights(self, policy: ArrayLike, step: int = 0) -> FloatArray:
        """Mixture weights (S, A, K): w_h(s, a) = E over s', a' of w_{h+1}(s', a')."""
        probabilities = self._checked_policy(policy)
        require_step(step, self.horizon)
        weights = np.eye(len(self.reward_laws.means))[self.law_of_pair]
        for _ in range(self.horizon - 1 - step):
            weights = self._expected_next(weights, probabilities)
        return weights

    def policy_weights(self, policy: ArrayLike) -> FloatArray:
        """Mixture weights (K,) of the policy's return from the initial states."""
        return self._expected_initial(self.exact_weights(policy), self._checked_policy(policy))

    def mixture_log_density(self, z: ArrayLike, weights: ArrayLike) -> FloatArray:
        """Log density (n,) at z (n,) of the mixture of the K Gaussians with weights (K,)."""
        points = np.asarray(z, dtype=float).reshape(-1, 1)
        laws = stats.norm.logpdf(points, *self.reward_laws)
        return logsumexp(laws, axis=1, b=np.asarray(weights, dtype=float))

    # Draws.

    def offline_data(
        self, n: int, seed: int, behaviour: ArrayLike | None = None, initial: int = 1000
    ) -> dict[str, Any]:
        """n independent transitions for `fle.Dataset(**data)`: uniform steps and states.

        Args:
            n: number of rows over all steps.
            seed: seed of the draws.
            behaviour: (S, A) probabilities of the logged actions; uniform if not given.
            initial: number of initial observations.
        """
        generator = np.random.default_rng(seed)
        steps = generator.integers(self.horizon, size=n)
        states = generator.integers(self.number_of_states, size=n)
        if behaviour is None:
            actions = generator.integers(self.number_of_actions, size=n)
        else:
            actions = draw_categorical(self._checked_policy(behaviour)[states], generator)
        last = steps == self.horizon - 1
        rewards = np.where(last, self._final_rewards(states, actions, generator), 0.0)
        next_states = draw_categorical(self.transitions[states, actions], generator)
        columns = self._columns(states, actions, rewards, next_states, last)
        starts = self.initial_states(initial, generator)
        return {**columns, "steps": steps, "initial_observations": starts}

    def sample_returns(
        self,
        policy: ArrayLike,
        n: int,
        generator: np.random.Generator,
        *,
        start: tuple[int, int] | None = None,
        step: int = 0,
    ) -> FloatArray:
        """n simulated returns (n,) from a step on.

        `start` is a (state, action); without it, initial states and the policy.
        """
        probabilities = self._checked_policy(policy)
        states, actions = self._starts(probabilities, n, generator, start)
        for _ in range(self.horizon - 1 - step):
            states = draw_categorical(self.transitions[states, actions], generator)
            actions = draw_categorical(probabilities[states], generator)
        return self._final_rewards(states, actions, generator)

    def _final_rewards(
        self, states: IntArray, actions: IntArray, generator: np.random.Generator
    ) -> FloatArray:
        laws = self.law_of_pair[states, actions]
        return generator.normal(self.reward_laws.means[laws], self.reward_laws.stds[laws])


def sparse_terminal(
    number_of_states: int, number_of_actions: int, horizon: int, seed: int, *, laws: int = 4
) -> SparseTerminalMDP:
    """A random SparseTerminalMDP whose `laws` Gaussians are well apart on [0, 1]."""
    if not 1 <= laws <= number_of_states * number_of_actions:
        raise SettingsError(
            f"laws: expected from 1 to {number_of_states * number_of_actions}, the number of"
            f" pairs, got {laws}"
        )
    generator = np.random.default_rng(seed)
    pairs = (number_of_states, number_of_actions)
    # Every law is used: the pairs share them out as evenly as they can.
    law_of_pair = generator.permutation(np.arange(np.prod(pairs)) % laws).reshape(pairs)
    return SparseTerminalMDP(
        transitions=generator.dirichlet(np.ones(number_of_states), size=pairs),
        reward_laws=GaussianLaws(
            means=(np.arange(laws) + 0.5) / laws, stds=np.full(laws, 0.15 / laws)
        ),
        law_of_pair=law_of_pair,
        initial=generator.dirichlet(np.ones(number_of_states)),
        horizon=horizon,
    )
