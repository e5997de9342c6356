"""Gymnasium's CliffWalking-v1, slippery: -1 a step, -100 for a fall, which sends back."""

import gymnasium

from tasks.simulation import Simulated
from tasks.state_tables import OutcomeTable, softened, table_policy
from tasks.task import Task, below


def tasks() -> list[Task]:
    def task(name, slippery, gamma, noise, logged):
        cliff = OutcomeTable.of_gymnasium(gymnasium.make("CliffWalking-v1", is_slippery=slippery))
        best = cliff.best_actions(0.9)
        target = softened(best, 4, noise)
        return Task(
            f"cliff_walking-{name}",
            Simulated(
                cliff, table_policy(softened(best, 4, logged)), table_policy(target), 300, gamma
            ),
            events=(below(-200.0, "two falls"),),
            exact_mean=lambda: [cliff.mean_return(gamma, target)],
            notes="the policy is that of policy iteration on the tables, with noise",
        )

    return [
        task("slippery", True, 0.99, 0.1, 0.5),
        task("careless", True, 0.95, 0.3, 0.5),
        task("dry", False, 0.99, 0.1, 0.5),
    ]
