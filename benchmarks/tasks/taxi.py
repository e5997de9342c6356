"""Gymnasium's Taxi-v4: fetch a passenger and deliver; 500 states, 20 at the end, -1 a step."""

import gymnasium

from tasks.simulation import Simulated
from tasks.state_tables import OutcomeTable, softened, table_policy
from tasks.task import Task, below


def tasks() -> list[Task]:
    taxi = OutcomeTable.of_gymnasium(gymnasium.make("Taxi-v4"))
    best = taxi.best_actions(0.99)
    behaviour = table_policy(softened(best, 6, 0.5))

    def task(name, noise, gamma, threshold):
        target = softened(best, 6, noise)
        return Task(
            f"taxi-{name}",
            Simulated(taxi, behaviour, table_policy(target), 200, gamma),
            events=(below(threshold, f"a return below {threshold}"),),
            exact_mean=lambda: [taxi.mean_return(gamma, target)],
            notes="the policy is that of policy iteration on the tables, with noise",
        )

    return [
        task("good", 0.1, 0.99, -20.0),
        task("absent", 0.3, 0.99, -50.0),
        task("near", 0.3, 0.95, -40.0),
    ]
