"""Gymnasium's LunarLander-v3 (Box2D): land softly; about 100 at the end, or -100 for a crash."""

import gymnasium
import numpy as np

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, Task, below, mostly

NOTHING, LEFT_ENGINE, MAIN_ENGINE, RIGHT_ENGINE = range(4)


def make(limit: int) -> gymnasium.Env:
    return gymnasium.make("LunarLander-v3", max_episode_steps=limit)


def _pilot(softness: float):
    """Tilt against drift, brake the fall; a proportional rule found by hand.

    softness: how slowly it wants to sink.
    """

    def choose(observations: Array) -> Array:
        x, y, drift, sink, angle, spin, left, right = np.asarray(observations, float).T
        tilt = np.clip(0.5 * x + 1.0 * drift, -0.4, 0.4)
        turn = 0.5 * (tilt - angle) - 1.0 * spin
        brake = 0.5 * (0.55 * np.abs(x) - y) - softness * sink
        landed = (left + right) > 0
        turn = np.where(landed, 0.0, turn)
        brake = np.where(landed, -softness * sink, brake)
        action = np.full(len(x), NOTHING)
        action = np.where(turn < -0.05, RIGHT_ENGINE, action)
        action = np.where(turn > 0.05, LEFT_ENGINE, action)
        return np.where((brake > np.abs(turn)) & (brake > 0.05), MAIN_ENGINE, action)

    return choose


def tasks() -> list[Task]:
    behaviour = mostly(_pilot(0.5), 4, 0.5)

    def task(name, softness, noise):
        return Task(
            f"lunar_lander-{name}",
            Rollouts(make, behaviour, mostly(_pilot(softness), 4, noise), 600, 0.99),
            truth_size=TRUTH_SIZE,
            events=(below(-50.0, "a return below -50"),),
        )

    return [task("soft", 0.5, 0.2), task("hard", 0.35, 0.3)]
