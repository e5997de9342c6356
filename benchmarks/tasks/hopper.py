"""Gymnasium's Hopper-v5 (MuJoCo): 1 for every step and more for speed, until it falls.

The policies lean forward by a fixed torque and damp the joints a little; they were found by hand.
"""

import gymnasium
import numpy as np

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, NormalPolicy, Task, below


def make(limit: int) -> gymnasium.Env:
    return gymnasium.make("Hopper-v5", max_episode_steps=limit)


def _lean(torque: float):
    """Torques of hip, knee and foot; the last three observations are the joints' speeds."""

    def mean(observations: Array) -> Array:
        damping = -0.05 * np.asarray(observations, float)[:, 8:11]
        return damping + torque * np.array([0.3, 0.1, 0.5])

    return mean


def tasks() -> list[Task]:
    behaviour = NormalPolicy(_lean(0.5), 0.6)

    def task(name, torque, threshold):
        return Task(
            f"hopper-{name}",
            Rollouts(make, behaviour, NormalPolicy(_lean(torque), 0.35), 300, 0.99),
            truth_size=TRUTH_SIZE,
            events=(below(threshold, f"a return below {threshold}"),),
        )

    return [task("upright", 0.2, 15.0), task("forward", 0.8, 45.0)]
