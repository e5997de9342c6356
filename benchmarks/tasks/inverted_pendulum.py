"""Gymnasium's InvertedPendulum-v5 (MuJoCo): 1 for every step until the pole falls."""

import gymnasium
import numpy as np

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, NormalPolicy, Task, below

# Position, angle, velocity and spin; found by hand.
GAINS = np.array([[0.5], [6.0], [0.5], [1.0]])


def make(limit: int) -> gymnasium.Env:
    return gymnasium.make("InvertedPendulum-v5", max_episode_steps=limit)


def balance(observations: Array) -> Array:
    return np.asarray(observations, float) @ GAINS


def tasks() -> list[Task]:
    behaviour = NormalPolicy(balance, 2.0)

    def weaker(observations):
        return 0.7 * balance(observations)

    def task(name, policy, gamma):
        early = (1 - gamma**20) / (1 - gamma)
        return Task(
            f"inverted_pendulum-{name}",
            Rollouts(make, behaviour, policy, 200, gamma),
            truth_size=TRUTH_SIZE,
            events=(below(early, "fallen before 20 steps"),),
        )

    return [
        task("shaky", NormalPolicy(balance, 1.4), 0.99),
        task("weak", NormalPolicy(weaker, 1.4), 0.99),
    ]
