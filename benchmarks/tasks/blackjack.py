"""Gymnasium's Blackjack-v1: hit or stick, won or lost at the end; a horizon of 8."""

import gymnasium

from tasks.gym_rollouts import TRUTH_SIZE, Rollouts
from tasks.task import Array, Task, below, mostly

HORIZON = 8


def _stick_from(total: int):
    return lambda observations: (observations[:, 0] < total).astype(int)


def make(limit: int) -> gymnasium.Env:
    return gymnasium.make("Blackjack-v1", natural=True, max_episode_steps=limit)


def tasks() -> list[Task]:
    def task(name, total, noise):
        def act(observations: Array) -> Array:
            return _stick_from(total)(observations)

        source = Rollouts(
            make, mostly(_stick_from(17), 2, 0.6), mostly(act, 2, noise), HORIZON, horizon=HORIZON
        )
        return Task(
            f"blackjack-{name}",
            source,
            truth_size=5 * TRUTH_SIZE,
            events=(below(-0.5, "the game is lost"),),
        )

    return [task("dealer", 17, 0.0), task("bold", 20, 0.1), task("timid", 13, 0.1)]
