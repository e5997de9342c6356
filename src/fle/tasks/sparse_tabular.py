"""The paper's tabular example: one reward at the last step, from one of a few Gaussians."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import logsumexp

from fle.errors import SettingsError
from fle.tasks.tabular import FiniteMDP
from fle.tasks.task_parts import FloatArray, IntArray, draw_categorical, require_step


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
