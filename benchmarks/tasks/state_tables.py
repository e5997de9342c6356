"""Finite MDPs given as tables of outcomes: Gymnasium's text-book games, and random ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.tasks import draw_categorical
from tasks.simulation import Outcome
from tasks.task import Array, DiscretePolicy


@dataclass(frozen=True, eq=False)
class OutcomeTable:
    """Every (state, action) has K outcomes: probability, next state, reward, end; (S, A, K) each.

    initial: (S,) probabilities of the first state.
    """

    probabilities: Array
    next_states: Array
    rewards: Array
    ends: Array
    starts: Array

    @classmethod
    def of_gymnasium(cls, environment: Any) -> "OutcomeTable":
        """From the table `P` that Gymnasium's toy-text environments have."""
        game = environment.unwrapped
        states, actions = game.observation_space.n, game.action_space.n
        most = max(len(game.P[s][a]) for s in range(states) for a in range(actions))
        table = np.zeros((4, states, actions, most))
        for state in range(states):
            for action in range(actions):
                for k, outcome in enumerate(game.P[state][action]):
                    table[:, state, action, k] = outcome
        return cls(
            table[0],
            table[1].astype(int),
            table[2],
            table[3].astype(bool),
            np.asarray(game.initial_state_distrib, float),
        )

    @property
    def number_of_actions(self) -> int:
        return int(self.probabilities.shape[1])

    def initial(self, n, generator):
        return generator.choice(len(self.starts), size=n, p=self.starts / self.starts.sum())

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        kind = draw_categorical(self.probabilities[states, actions], generator)
        rewards, ends = self.rewards[states, actions, kind], self.ends[states, actions, kind]
        return Outcome(self.next_states[states, actions, kind], rewards, ends)

    def values(self, gamma: float, policy: Array) -> Array:
        """Mean returns (S, A) of a policy (S, A), by one linear system."""
        states, actions, kinds = self.probabilities.shape
        onward = np.zeros((states, actions, states))
        going_on = np.where(self.ends, 0.0, self.probabilities)
        rows, columns, _ = np.indices((states, actions, kinds))
        np.add.at(onward, (rows, columns, self.next_states), going_on)
        reward = (self.probabilities * self.rewards).sum(axis=2)
        moves = np.einsum("sa,sat->st", policy, onward)
        by_state = np.linalg.solve(np.eye(states) - gamma * moves, (policy * reward).sum(axis=1))
        return reward + gamma * onward @ by_state

    def mean_return(self, gamma: float, policy: Array) -> float:
        """From the initial states."""
        return float(self.starts / self.starts.sum() @ (policy * self.values(gamma, policy)).sum(1))

    def best_actions(self, gamma: float) -> Array:
        """(S,) By policy iteration on the tables, which takes milliseconds."""
        states, actions, _ = self.probabilities.shape
        best = np.zeros(states, int)
        while True:
            values = self.values(gamma, np.eye(actions)[best])
            # Only what is truly better, or equal actions would take turns for ever.
            better = values.max(axis=1) > values[np.arange(states), best] + 1e-9
            if not better.any():
                return best
            best = np.where(better, values.argmax(axis=1), best)


def table_policy(table: Array) -> DiscretePolicy:
    """A policy (S, A) as a function of states."""
    return DiscretePolicy(lambda states: table[np.asarray(states).reshape(-1)])


def softened(actions: Array, number_of_actions: int, noise: float) -> Array:
    """(S, A) The given action of each state, with probability `noise` any."""
    return (1 - noise) * np.eye(number_of_actions)[actions] + noise / number_of_actions
