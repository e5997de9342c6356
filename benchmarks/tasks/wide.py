"""300 columns, one of which matters, and 2,000 rows: what is fitted must not be noise."""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, Task, below, mostly

COLUMNS, MATTERS = 300, 7
# So that the best policy earns 0.5: E|x| of a standard normal is sqrt(2 / pi).
SLOPE = 0.5 / np.sqrt(2 / np.pi)
NOISE = 0.1


class ManyColumns:
    """One step: the second action earns SLOPE * x, the first its opposite."""

    number_of_actions = 2

    def initial(self, n, generator):
        return generator.standard_normal((n, COLUMNS))

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        side = 2 * np.asarray(actions) - 1
        rewards = SLOPE * side * states[:, MATTERS] + generator.normal(0, NOISE, len(states))
        return Outcome(states, rewards, np.ones(len(states), bool))


def right_side(observations: Array) -> Array:
    return (observations[:, MATTERS] > 0).astype(int)


def tasks() -> list[Task]:
    def task(name, noise, rows):
        source = Simulated(
            ManyColumns(), mostly(right_side, 2, 1.0), mostly(right_side, 2, noise), 1, horizon=1
        )
        return Task(
            f"wide-{name}",
            source,
            rows=rows,
            events=(below(-0.1, "a return below -0.1"),),
            exact_mean=lambda: [0.5 * (1 - noise)],
        )

    return [task("best", 0.0, 2_000), task("good", 0.3, 2_000), task("many", 0.0, 20_000)]
