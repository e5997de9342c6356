"""A point mass driven to the origin of the plane, logged by a much noisier controller.

The target policy is quieter and stays nearer the origin than the log does, so small errors there
weigh 1 / (1 - gamma). Episodes are cut at 60 steps, which is no end.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, NormalPolicy, Task, below

STEP, DRAG = 0.2, 0.9


class PointMass:
    """States: position (2) and velocity (2); the force is the action. It never ends."""

    number_of_actions = None

    def initial(self, n, generator):
        position = generator.uniform(-1.5, 1.5, (n, 2))
        return np.concatenate([position, generator.normal(0, 0.3, (n, 2))], axis=1)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        position, velocity = states[:, :2], states[:, 2:]
        shove = generator.normal(0, 0.12, velocity.shape)
        velocity = DRAG * velocity + STEP * np.clip(actions, -3, 3) + shove
        moved = np.concatenate([position + STEP * velocity, velocity], axis=1)
        cost = (position**2).sum(1) + 0.1 * (velocity**2).sum(1) + 0.05 * (actions**2).sum(1)
        return Outcome(moved, -0.5 * cost, np.zeros(len(states), bool))


def homeward(observations: Array) -> Array:
    """Spring and damper."""
    return -1.0 * observations[:, :2] - 1.2 * observations[:, 2:]


def tasks() -> list[Task]:
    point, behaviour = PointMass(), NormalPolicy(homeward, 1.0)

    def firmer(observations):
        return 1.3 * homeward(observations)

    def task(name, policy, rows, threshold):
        return Task(
            f"point_mass-{name}",
            Simulated(point, behaviour, policy, 60, 0.99),
            rows=rows,
            events=(below(threshold, f"a return below {threshold}"),),
        )

    return [
        task("quiet", NormalPolicy(homeward, 0.3), 12_000, -16.0),
        task("firm", NormalPolicy(firmer, 0.3), 12_000, -14.0),
        task("many", NormalPolicy(homeward, 0.3), 100_000, -16.0),
    ]
