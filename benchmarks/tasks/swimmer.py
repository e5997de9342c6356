"""Gymnasium's Swimmer-v5 (MuJoCo): 50 steps of swimming, two torques; it never ends.

The policies bend against the speed of the joints, which moves the body in waves; found by hand.
"""

import gymnasium
import numpy as np

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, NormalPolicy, Task, below

HORIZON = 50


def make(limit: int) -> gymnasium.Env:
    return gymnasium.make("Swimmer-v5", max_episode_steps=limit)


def _wave(strength: float):
    """The second joint follows the first with a delay: torques by angles and speeds of both."""

    def mean(observations: Array) -> Array:
        first, second = np.asarray(observations, float)[:, 1:3].T
        faster, slower = np.asarray(observations, float)[:, 6:8].T
        torques = np.stack([np.sign(faster) - first, np.sign(slower) + first - second], axis=1)
        return strength * np.tanh(torques)

    return mean


def tasks() -> list[Task]:
    behaviour = NormalPolicy(_wave(0.3), 0.6)

    def task(name, strength, noise, threshold, covered):
        policy = NormalPolicy(_wave(strength), noise)
        return Task(
            f"swimmer-{name}",
            Rollouts(make, behaviour, policy, HORIZON, horizon=HORIZON),
            truth_size=TRUTH_SIZE,
            covered=covered,
            events=(below(threshold, f"a return below {threshold}"),),
        )

    return [task("gentle", 0.4, 0.4, -5.0, True), task("strong", 1.0, 0.15, -5.0, False)]
