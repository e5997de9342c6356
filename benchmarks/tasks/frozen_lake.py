"""Gymnasium's FrozenLake-v1, slippery: reach the goal, or fall into a hole and get nothing."""

import gymnasium

from tasks.simulation import Simulated
from tasks.state_tables import OutcomeTable, softened, table_policy
from tasks.task import Event, Task


def tasks() -> list[Task]:
    def task(name, size, gamma, noise, logged, rows):
        lake = OutcomeTable.of_gymnasium(gymnasium.make("FrozenLake-v1", map_name=size))
        best = lake.best_actions(0.99)
        target = softened(best, 4, noise)
        behaviour = table_policy(softened(best, 4, logged))
        nothing = Event("never at the goal", lambda returns: returns[:, 0] <= 1e-3)
        return Task(
            f"frozen_lake-{name}",
            Simulated(lake, behaviour, table_policy(target), 200, gamma),
            rows=rows,
            events=(nothing,),
            exact_mean=lambda: [lake.mean_return(gamma, target)],
            notes="the policy is that of policy iteration on the tables, with noise",
        )

    return [
        task("small", "4x4", 0.95, 0.2, 0.7, 100_000),
        task("noisy", "4x4", 0.95, 0.5, 0.7, 100_000),
        task("large", "8x8", 0.99, 0.2, 0.6, 100_000),
    ]
