"""Gymnasium's HalfCheetah-v5 (MuJoCo): 50 steps of running, six torques; it never falls."""

import gymnasium
import numpy as np

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, NormalPolicy, Task, below

HORIZON = 50
# A bound: the front pushes while the back swings, by the pitch of the body; found by hand.
PUSH = np.array([1.0, -0.6, 0.3, -1.0, 0.6, -0.3])


def make(limit: int) -> gymnasium.Env:
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=limit)


def _bound(strength: float):
    def mean(observations: Array) -> Array:
        pitch = np.asarray(observations, float)[:, 1:2]
        return strength * np.tanh(5 * pitch) * PUSH

    return mean


def tasks() -> list[Task]:
    behaviour = NormalPolicy(_bound(0.3), 0.5)

    def task(name, strength, noise, covered):
        policy = NormalPolicy(_bound(strength), noise)
        return Task(
            f"half_cheetah-{name}",
            Rollouts(make, behaviour, policy, HORIZON, horizon=HORIZON),
            truth_size=TRUTH_SIZE,
            covered=covered,
            events=(below(-20.0, "a return below -20"),),
        )

    return [task("near", 0.4, 0.4, True), task("strong", 1.0, 0.2, False)]
