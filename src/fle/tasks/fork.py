"""A fork with vector rewards: the return is a known mixture of correlated Gaussians."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fle.errors import SettingsError
from fle.tasks.task_parts import (
    FloatArray,
    IntArray,
    checked_distribution,
    draw_categorical,
    require_count,
)

START = 0


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
