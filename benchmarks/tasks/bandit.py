"""Two arms that always pay 0 and 5: the return has two atoms and nothing between."""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import DiscretePolicy, Event, Task


class TwoArms:
    """One state; the second arm pays 5."""

    number_of_actions = 2

    def initial(self, n, generator):
        return np.zeros(n, int)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        return Outcome(states, 5.0 * np.asarray(actions), np.ones(len(states), bool))


def _second_arm(chance: float) -> DiscretePolicy:
    return DiscretePolicy(
        lambda observations: np.tile([1 - chance, chance], (len(observations), 1))
    )


def tasks() -> list[Task]:
    def task(name, logged, chance, rows):
        # Halfway to the next atom, so that a blurred atom still counts.
        nothing = Event("paid nothing", lambda returns: returns[:, 0] < 2.5)
        between = Event("between the atoms", lambda returns: np.abs(returns[:, 0] - 2.5) < 2.4)
        source = Simulated(TwoArms(), _second_arm(logged), _second_arm(chance), 1, horizon=1)
        return Task(
            f"bandit-{name}",
            source,
            rows=rows,
            events=(nothing, between),
            exact_mean=lambda: [5 * chance],
        )

    return [
        task("even", 0.5, 0.5, 4_000),
        task("keen", 0.5, 0.98, 4_000),
        task("shy", 0.2, 0.9, 100_000),
    ]
