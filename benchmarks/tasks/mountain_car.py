"""Gymnasium's MountainCar-v0 and MountainCarContinuous-v0: rock out of a valley.

Actions are discrete, with -1 for every step until the goal, or continuous, with 100 at the goal
less the cost of force; a test compares the steps.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, NormalPolicy, Task, below, mostly

LEFT_END, RIGHT_END, FASTEST = -1.2, 0.6, 0.07


class Valley:
    """States: position and velocity."""

    def initial(self, n, generator):
        return np.stack([generator.uniform(-0.6, -0.4, n), np.zeros(n)], axis=1)

    def observe(self, states):
        return states

    def _moved(self, states: Array, push: Array, goal: float) -> tuple[Array, Array]:
        """Next states, and whether they are at the goal."""
        position, velocity = states.T
        velocity = np.clip(velocity + push - 0.0025 * np.cos(3 * position), -FASTEST, FASTEST)
        position = np.clip(position + velocity, LEFT_END, RIGHT_END)
        velocity = np.where((position == LEFT_END) & (velocity < 0), 0.0, velocity)
        return np.stack([position, velocity], axis=1), (position >= goal) & (velocity >= 0)


class MountainCar(Valley):
    """Push left, not at all, or right."""

    number_of_actions = 3

    def step(self, states, actions, generator):
        moved, out = self._moved(states, (np.asarray(actions) - 1) * 0.001, 0.5)
        return Outcome(moved, -np.ones(len(states)), out)


class ContinuousMountainCar(Valley):
    """Force between -1 and 1; what exceeds it costs and does not push."""

    number_of_actions = None

    def step(self, states, actions, generator):
        force = np.clip(actions[:, 0], -1, 1)
        moved, out = self._moved(states, force * 0.0015, 0.45)
        return Outcome(moved, np.where(out, 100.0, 0.0) - 0.1 * actions[:, 0] ** 2, out)


def rock(observations: Array) -> Array:
    """Push the way the car already goes."""
    return np.where(observations[:, 1] >= 0, 2, 0)


def _force(size: float):
    return lambda observations: size * np.where(observations[:, 1:2] >= 0, 1.0, -1.0)


def tasks() -> list[Task]:
    discrete, continuous = MountainCar(), ContinuousMountainCar()
    doubtful = mostly(rock, 3, 0.6)
    loose = NormalPolicy(_force(0.6), 0.6)

    def until_out(name, noise, gamma):
        late = -(1 - gamma**200) / (1 - gamma)
        return Task(
            f"mountain_car-{name}",
            Simulated(discrete, doubtful, mostly(rock, 3, noise), 400, gamma),
            events=(below(late, "not out within 200 steps"),),
        )

    def pay(name, size, noise, threshold):
        return Task(
            f"mountain_car-{name}",
            Simulated(continuous, loose, NormalPolicy(_force(size), noise), 400, 0.99),
            events=(below(threshold, f"a return below {threshold}"),),
        )

    return [
        until_out("steady", 0.2, 0.99),
        until_out("hesitant", 0.4, 0.99),
        pay("strong", 0.75, 0.3, 20.0),
        pay("gentle", 0.6, 0.3, 14.0),
    ]
