"""MO-Gymnasium's resource-gathering: gold and a gem to bring home, past enemies; three rewards."""

import mo_gymnasium
import numpy as np

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, Task, below, mostly

HOME, GOLD, GEM = (4, 2), (0, 2), (1, 4)


def make(limit: int):
    return mo_gymnasium.make("resource-gathering-v0", max_episode_steps=limit)


def _fetch(place: tuple[int, int], resource: int):
    """Walk to a place, columns first, and home again once its resource is carried.

    Actions: up, down, left, right; observation: row, column, has gold, has gem.
    """

    def choose(observations: Array) -> Array:
        row, column = observations[:, 0], observations[:, 1]
        carried = observations[:, 2 + resource] == 1
        to_row = np.where(carried, HOME[0], place[0])
        to_column = np.where(carried, HOME[1], place[1])
        sideways = np.where(column > to_column, 2, 3)
        along = np.where(row > to_row, 0, 1)
        return np.where(column != to_column, sideways, along)

    return choose


def tasks() -> list[Task]:
    gold, gem = _fetch(GOLD, 0), _fetch(GEM, 1)

    def task(name, choose, logged, gamma):
        source = Rollouts(make, mostly(logged, 4, 0.7), mostly(choose, 4, 0.2), 100, gamma)
        return Task(
            f"resource_gathering-{name}",
            source,
            truth_size=2 * TRUTH_SIZE,
            events=(below(-0.1, "caught by an enemy"),),
        )

    return [task("gold", gold, gold, 0.99), task("gem", gem, gem, 0.95)]
