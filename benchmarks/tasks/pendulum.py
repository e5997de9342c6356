"""Gymnasium's Pendulum-v1: swing up and balance, a cost every step; a test compares the steps."""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, NormalPolicy, Task, below

STEP, GRAVITY, FASTEST, STRONGEST = 0.05, 10.0, 8.0, 2.0


class Pendulum:
    """States: angle from the top, and speed. It never ends."""

    number_of_actions = None

    def initial(self, n, generator):
        return generator.uniform([-np.pi, -1.0], [np.pi, 1.0], (n, 2))

    def observe(self, states):
        angle, speed = states.T
        return np.stack([np.cos(angle), np.sin(angle), speed], axis=1)

    def step(self, states, actions, generator):
        angle, speed = states.T
        torque = np.clip(actions[:, 0], -STRONGEST, STRONGEST)
        from_top = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = from_top**2 + 0.1 * speed**2 + 0.001 * torque**2
        faster = speed + STEP * (1.5 * GRAVITY * np.sin(angle) + 3 * torque)
        faster = np.clip(faster, -FASTEST, FASTEST)
        moved = np.stack([angle + STEP * faster, faster], axis=1)
        return Outcome(moved, -cost, np.zeros(len(states), bool))


def swing_up(observations: Array) -> Array:
    """Pump energy until near the top, then balance by a linear rule; (n, 1) within the limits."""
    cosine, sine, speed = observations.T
    energy = 0.5 * speed**2 + 15 * (cosine - 1)
    pump = -STRONGEST * np.sign(speed) * np.sign(energy)
    balance = -(20 * np.arctan2(sine, cosine) + 4 * speed)
    return np.clip(np.where(cosine > 0.85, balance, pump), -STRONGEST, STRONGEST)[:, None]


def tasks() -> list[Task]:
    pendulum, behaviour = Pendulum(), NormalPolicy(swing_up, 2.0)

    def task(name, policy, gamma, threshold):
        return Task(
            f"pendulum-{name}",
            Simulated(pendulum, behaviour, policy, 200, gamma),
            events=(below(threshold, f"a return below {threshold}"),),
        )

    return [
        task("steady", NormalPolicy(swing_up, 0.5), 0.95, -130.0),
        task("far", NormalPolicy(swing_up, 0.5), 0.99, -270.0),
        task(
            "half",
            NormalPolicy(lambda observations: 0.5 * swing_up(observations), 0.7),
            0.95,
            -150.0,
        ),
    ]
