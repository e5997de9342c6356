"""Gymnasium's Acrobot-v1: swing two links up, -1 for every step until then.

The equations are those of Sutton and Barto's book, integrated by one Runge-Kutta step of 0.2 s;
a test compares them with Gymnasium.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, Task, below, mostly

GRAVITY, STEP = 9.8, 0.2
FASTEST = np.array([4 * np.pi, 9 * np.pi])


class Acrobot:
    """States: two angles and their speeds. Links of length and mass 1."""

    number_of_actions = 3

    def initial(self, n, generator):
        return generator.uniform(-0.1, 0.1, (n, 4))

    def observe(self, states):
        first, second, *speeds = states.T
        angles = [np.cos(first), np.sin(first), np.cos(second), np.sin(second)]
        return np.stack([*angles, *speeds], axis=1)

    def step(self, states, actions, generator):
        torque = np.asarray(actions) - 1.0
        k1 = _changes(states, torque)
        k2 = _changes(states + STEP / 2 * k1, torque)
        k3 = _changes(states + STEP / 2 * k2, torque)
        k4 = _changes(states + STEP * k3, torque)
        moved = states + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        moved[:, :2] = (moved[:, :2] + np.pi) % (2 * np.pi) - np.pi
        moved[:, 2:] = np.clip(moved[:, 2:], -FASTEST, FASTEST)
        up = -np.cos(moved[:, 0]) - np.cos(moved[:, 0] + moved[:, 1]) > 1
        return Outcome(moved, np.where(up, 0.0, -1.0), up)


def _changes(states: Array, torque: Array) -> Array:
    """Time derivatives of angles and speeds."""
    first, second, speed, relative = states.T
    cosine, sine = np.cos(second), np.sin(second)
    # Half lengths of 0.5 and moments of inertia of 1.
    inertia = 3.5 + cosine
    coupling = 1.25 + 0.5 * cosine
    lower = 0.5 * GRAVITY * np.sin(first + second)
    upper = (
        -0.5 * relative**2 * sine - relative * speed * sine + 1.5 * GRAVITY * np.sin(first) + lower
    )
    bend = (torque + coupling / inertia * upper - 0.5 * speed**2 * sine - lower) / (
        1.25 - coupling**2 / inertia
    )
    turn = -(coupling * bend + upper) / inertia
    return np.stack([speed, relative, turn, bend], axis=1)


def pump(observations: Array) -> Array:
    """Full torque along the speed of the lower link, which adds energy at every step."""
    return np.where(observations[:, 5] > 0, 2, 0)


def tasks() -> list[Task]:
    acrobot, behaviour = Acrobot(), mostly(pump, 3, 0.6)

    def task(name, policy, gamma):
        late = -(1 - gamma**150) / (1 - gamma)
        return Task(
            f"acrobot-{name}",
            Simulated(acrobot, behaviour, policy, 500, gamma),
            events=(below(late, "not up within 150 steps"),),
        )

    return [
        task("steady", mostly(pump, 3, 0.2), 0.99),
        task("hesitant", mostly(pump, 3, 0.5), 0.99),
        task("far", mostly(pump, 3, 0.2), 0.995),
    ]
