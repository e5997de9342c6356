"""MO-Gymnasium's deep-sea-treasure: a treasure, larger the deeper, and the time it takes."""

import mo_gymnasium
import numpy as np

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, DiscretePolicy, Task, below

# Actions: up, down, left, right.
WANDER = np.array([0.15, 0.3, 0.15, 0.4])


def make(limit: int):
    return mo_gymnasium.make("deep-sea-treasure-v0", max_episode_steps=limit)


def _diver(down: float, patience: float) -> DiscretePolicy:
    """Goes right along the surface and dives with a chance that falls with `patience`."""

    def probabilities(observations: Array) -> Array:
        column = np.asarray(observations, float)[:, 1]
        dive = np.clip(down + (1 - patience) * column / 10, 0.05, 0.9)
        drift = np.full_like(dive, 0.03)
        return np.stack([drift, dive, drift, 1 - dive - 2 * drift], axis=1)

    return DiscretePolicy(probabilities)


def tasks() -> list[Task]:
    behaviour = DiscretePolicy(lambda observations: np.tile(WANDER, (len(observations), 1)))

    def task(name, policy, gamma):
        late = -(1 - gamma**60) / (1 - gamma)
        return Task(
            f"deep_sea_treasure-{name}",
            Rollouts(make, behaviour, policy, 100, gamma),
            truth_size=2 * TRUTH_SIZE,
            events=(below(late, "no treasure within 60 steps", coordinate=1),),
        )

    return [
        task("patient", _diver(0.15, 0.8), 0.99),
        task("hasty", _diver(0.4, 1.0), 0.99),
        task("near", _diver(0.15, 0.8), 0.95),
    ]
