"""Logs and returns of environments written in NumPy, all episodes of a batch stepped at once."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tasks.task import INITIAL_OBSERVATIONS, ActingPolicy, Array, steps_until_negligible

# Streams of one seed, so that log, starts and truth share no random number.
LOG, STARTS, TRUTH = range(3)


class Outcome(NamedTuple):
    """What one step of n episodes led to: states (n, ...), rewards (n,) or (n, d), ends (n,)."""

    states: Array
    rewards: Array
    terminations: Array


class Simulator(Protocol):
    """An environment of independent episodes; a state is one row of an array."""

    number_of_actions: int | None

    def initial(self, n: int, generator: np.random.Generator) -> Array:
        """First states of n episodes."""

    def observe(self, states: Array) -> Array:
        """What is logged of states."""

    def step(self, states: Array, actions: Array, generator: np.random.Generator) -> Outcome:
        """One step of each."""


def simulated_log(
    simulator: Simulator, behaviour: ActingPolicy, *, rows: int, seed: int, longest: int
) -> dict[str, Any]:
    """Exactly `rows` transitions in whole episodes of at most `longest` steps, but for the last.

    An episode that reaches the limit, or the end of the log, is truncated.
    """
    generator = np.random.default_rng([seed, LOG])
    pieces: list[dict[str, Array]] = []
    count, begun = 0, 0
    while count < rows:
        # As many episodes as will do by their mean length so far.
        length = count / begun if begun else longest
        number = int((rows - count) / length * 1.05) + 2
        for piece in _episodes(simulator, behaviour, number, longest, generator):
            piece["episodes"] += begun
            pieces.append(piece)
            count += len(piece["episodes"])
        begun += number
    columns: dict[str, Any] = {
        name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]
    }
    # Sorting by episode before cutting keeps episodes whole; the first to end are not favoured.
    order = np.argsort(columns["episodes"], kind="stable")[:rows]
    columns = {name: column[order] for name, column in columns.items()}
    columns["truncations"][-1] = not columns["terminations"][-1]
    starts = simulator.initial(INITIAL_OBSERVATIONS, np.random.default_rng([seed, STARTS]))
    columns["initial_observations"] = simulator.observe(starts)
    columns["number_of_actions"] = simulator.number_of_actions
    return columns


def _episodes(
    simulator: Simulator,
    behaviour: ActingPolicy,
    number: int,
    longest: int,
    generator: np.random.Generator,
) -> list[dict[str, Array]]:
    """The rows of whole episodes, a piece for each time step."""
    states, running = simulator.initial(number, generator), np.arange(number)
    pieces = []
    for step in range(longest):
        observations = simulator.observe(states)
        actions = behaviour.act(observations, generator)
        outcome = simulator.step(states, actions, generator)
        pieces.append(
            {
                "observations": observations,
                "actions": actions,
                "rewards": outcome.rewards,
                "next_observations": simulator.observe(outcome.states),
                "terminations": outcome.terminations,
                "truncations": ~outcome.terminations & (step == longest - 1),
                "episodes": running.copy(),
            }
        )
        going_on = ~outcome.terminations
        states, running = outcome.states[going_on], running[going_on]
        if not len(running):
            break
    return pieces


def simulated_returns(
    simulator: Simulator, policy: ActingPolicy, *, n: int, seed: int, gamma: float, steps: int
) -> Array:
    """Discounted returns (n, d) of n independent episodes of at most so many steps."""
    generator = np.random.default_rng([seed, TRUTH])
    states, running = simulator.initial(n, generator), np.arange(n)
    returns: Any = None
    for step in range(steps):
        actions = policy.act(simulator.observe(states), generator)
        outcome = simulator.step(states, actions, generator)
        rewards = np.reshape(outcome.rewards, (len(running), -1))
        returns = np.zeros((n, rewards.shape[1])) if returns is None else returns
        returns[running] += gamma**step * rewards
        going_on = ~outcome.terminations
        states, running = outcome.states[going_on], running[going_on]
        if not len(running):
            break
    return np.asarray(returns)


@dataclass(frozen=True)
class Simulated:
    """The source of a task in a simulator; logged episodes are cut after `longest` steps."""

    simulator: Simulator
    behaviour: ActingPolicy
    policy: ActingPolicy
    longest: int
    gamma: float = 1.0
    horizon: int | None = None

    def log(self, rows: int, seed: int) -> dict[str, Any]:
        return simulated_log(
            self.simulator, self.behaviour, rows=rows, seed=seed, longest=self.longest
        )

    def truth(self, n: int, seed: int) -> Array:
        steps = steps_until_negligible(self.gamma, self.horizon)
        return simulated_returns(
            self.simulator, self.policy, n=n, seed=seed, gamma=self.gamma, steps=steps
        )
