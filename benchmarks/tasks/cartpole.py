"""Gymnasium's CartPole-v1: 1 for every step until the pole falls; a test compares the steps."""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, Task, below, mostly

STEP, FORCE, GRAVITY = 0.02, 10.0, 9.8
POLE_MASS, TOTAL_MASS, HALF_LENGTH = 0.1, 1.1, 0.5
FARTHEST = np.array([2.4, 12 * 2 * np.pi / 360])


class CartPole:
    """States: position, velocity, angle and spin."""

    number_of_actions = 2

    def initial(self, n, generator):
        return generator.uniform(-0.05, 0.05, (n, 4))

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        angle, spin = states[:, 2], states[:, 3]
        force = np.where(np.asarray(actions) == 1, FORCE, -FORCE)
        push = (force + POLE_MASS * HALF_LENGTH * spin**2 * np.sin(angle)) / TOTAL_MASS
        twist = (GRAVITY * np.sin(angle) - np.cos(angle) * push) / (
            HALF_LENGTH * (4 / 3 - POLE_MASS * np.cos(angle) ** 2 / TOTAL_MASS)
        )
        shift = push - POLE_MASS * HALF_LENGTH * twist * np.cos(angle) / TOTAL_MASS
        moved = states + STEP * np.stack([states[:, 1], shift, spin, twist], axis=1)
        fallen = np.any(np.abs(moved[:, [0, 2]]) > FARTHEST, axis=1)
        return Outcome(moved, np.ones(len(states)), fallen)


def lean(observations: Array) -> Array:
    """Push to the side where the pole leans or falls to; a linear rule found by hand."""
    weights = np.array([0.02, 0.05, 1.0, 0.5])
    return (observations @ weights > 0).astype(int)


def tasks() -> list[Task]:
    cartpole, behaviour = CartPole(), mostly(lean, 2, 0.8)

    def task(name, noise, gamma, rows):
        early = (1 - gamma**25) / (1 - gamma)
        return Task(
            f"cartpole-{name}",
            Simulated(cartpole, behaviour, mostly(lean, 2, noise), 500, gamma),
            rows=rows,
            events=(below(early, "fallen before 25 steps"),),
        )

    return [
        task("shaky", 0.5, 0.99, 100_000),
        task("calm", 0.3, 0.99, 100_000),
        task("small", 0.5, 0.99, 2_000),
    ]
