"""Finite MDPs, and those with integer rewards, whose return distribution is exact."""

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError
from fle.tasks.task_parts import (
    FloatArray,
    IntArray,
    checked_distribution,
    draw_categorical,
    require_count,
    require_discount,
    require_step,
)


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
