"""The paper's tabular example: one reward at the last step, from one of a few known laws."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import logsumexp

from fle.errors import SettingsError
from fle.tasks.sampling import checked_distribution, draw_categorical

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class GaussianLaws(NamedTuple):
    """K Gaussian laws of the final reward: means (K,) and standard deviations (K,)."""

    means: FloatArray
    stds: FloatArray


@dataclass(frozen=True, eq=False)
class SparseTerminalMDP:
    """Rewards are zero before the last step, where (s, a) draws from its law among K Gaussians.

    The return from any (s, a) at any step is a mixture of the K laws; its weights follow by
    dynamic programming. Policies are (S, A) arrays of probabilities. Steps count from 0.

    Args:
        transitions: (S, A, S) probabilities.
        reward_laws: the K laws.
        law_of_pair: (S, A) integers below K: which law a pair draws from at the last step.
        initial: (S,) probabilities.
        horizon: number of steps.
    """

    transitions: FloatArray
    reward_laws: GaussianLaws
    law_of_pair: IntArray
    initial: FloatArray
    horizon: int

    def __post_init__(self) -> None:
        shape = np.shape(self.transitions)
        if len(shape) != 3 or shape[0] != shape[2]:
            raise SettingsError(f"transitions must have shape (S, A, S); {shape} came.")
        means, stds = (np.asarray(values, dtype=float) for values in self.reward_laws)
        if means.ndim != 1 or means.shape != stds.shape or not np.all(stds > 0):
            raise SettingsError("reward_laws must hold means (K,) and positive stds (K,).")
        law_of_pair = np.asarray(self.law_of_pair)
        if law_of_pair.shape != shape[:2] or not np.all(
            np.isin(law_of_pair, np.arange(len(means)))
        ):
            raise SettingsError(f"law_of_pair must be {shape[:2]} integers below {len(means)}.")
        if self.horizon < 1:
            raise SettingsError(f"horizon must be at least 1; {self.horizon} came.")
        for name, value in {
            "transitions": checked_distribution("transitions", self.transitions, shape),
            "reward_laws": GaussianLaws(means, stds),
            "law_of_pair": law_of_pair.astype(int),
            "initial": checked_distribution("initial", self.initial, shape[:1]),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def number_of_states(self) -> int:
        """S."""
        return int(self.transitions.shape[0])

    @property
    def number_of_actions(self) -> int:
        """A."""
        return int(self.transitions.shape[1])

    # The known answer.

    def exact_weights(self, policy: ArrayLike, step: int = 0) -> FloatArray:
        """Mixture weights (S, A, K): w_h(s, a) = E over s', a' of w_{h+1}(s', a')."""
        probabilities = self._checked_policy(policy)
        if not 0 <= step < self.horizon:
            raise SettingsError(f"step must lie in 0..{self.horizon - 1}; {step} came.")
        weights = np.eye(len(self.reward_laws.means))[self.law_of_pair]
        for _ in range(self.horizon - 1 - step):
            of_state = np.einsum("tb,tbk->tk", probabilities, weights)
            weights = np.einsum("sat,tk->sak", self.transitions, of_state)
        return weights

    def policy_weights(self, policy: ArrayLike) -> FloatArray:
        """Mixture weights (K,) of the policy's return from the initial law."""
        start = self.initial[:, None] * self._checked_policy(policy)
        return np.einsum("sa,sak->k", start, self.exact_weights(policy))

    def mixture_log_density(self, z: ArrayLike, weights: ArrayLike) -> FloatArray:
        """Log density (n,) at z (n,) of the mixture of the K laws with weights (K,)."""
        points = np.asarray(z, dtype=float).reshape(-1, 1)
        laws = stats.norm.logpdf(points, *self.reward_laws)
        return logsumexp(laws, axis=1, b=np.asarray(weights, dtype=float))

    def _checked_policy(self, policy: ArrayLike) -> FloatArray:
        shape = (self.number_of_states, self.number_of_actions)
        return checked_distribution("policy", policy, shape)

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
        return {
            "observations": states,
            "actions": actions,
            "rewards": rewards,
            "next_observations": draw_categorical(self.transitions[states, actions], generator),
            "terminations": last,
            "truncations": np.zeros(n, dtype=bool),
            "steps": steps,
            "initial_observations": self.initial_states(initial, generator),
            "number_of_actions": self.number_of_actions,
        }

    def initial_states(self, n: int, generator: np.random.Generator) -> IntArray:
        """n states of the initial law."""
        return generator.choice(self.number_of_states, size=n, p=self.initial)

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

        `start` is a (state, action); without it, the initial law and the policy.
        """
        probabilities = self._checked_policy(policy)
        if start is None:
            states = self.initial_states(n, generator)
            actions = draw_categorical(probabilities[states], generator)
        else:
            states, actions = np.full(n, start[0]), np.full(n, start[1])
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
            f"laws must lie between 1 and the {number_of_states * number_of_actions} pairs; "
            f"{laws} came."
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
