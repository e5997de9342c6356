"""Near-deterministic continuous control with one large reward at the end.

A cart is pushed along a line, nearly without noise; force costs a little, arriving pays 100.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, NormalPolicy, Task, below

STEP, DRAG = 0.05, 0.98


class Track:
    """States: position, from about 0 to the goal at 1, and velocity."""

    number_of_actions = None

    def initial(self, n, generator):
        return np.stack([generator.uniform(-0.1, 0.1, n), np.zeros(n)], axis=1)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        position, velocity = states.T
        force = np.clip(actions[:, 0], -1, 1)
        velocity = DRAG * velocity + STEP * force + generator.normal(0, 0.001, len(states))
        position = np.maximum(position + STEP * velocity, -1.0)
        arrived = position >= 1.0
        rewards = np.where(arrived, 100.0, 0.0) - 0.5 * actions[:, 0] ** 2
        return Outcome(np.stack([position, velocity], axis=1), rewards, arrived)


def _towards(speed: float):
    """Hold a speed."""

    def mean(observations: Array) -> Array:
        return 4.0 * (speed - observations[:, 1:2])

    return mean


def tasks() -> list[Task]:
    track, behaviour = Track(), NormalPolicy(_towards(0.25), 0.7)

    def task(name, speed, noise, gamma, threshold):
        return Task(
            f"late_reward-{name}",
            Simulated(track, behaviour, NormalPolicy(_towards(speed), noise), 300, gamma),
            events=(below(threshold, f"a return below {threshold}"),),
        )

    return [
        task("steady", 0.25, 0.3, 0.99, 30.0),
        task("slow", 0.18, 0.3, 0.99, 19.0),
        task("far", 0.25, 0.3, 0.995, 53.0),
    ]
