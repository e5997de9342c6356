"""A shop's stock: integer demand, so rewards and undiscounted returns lie on a lattice."""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, Task, below, mostly

CAPACITY, MOST, HORIZON = 20, 6, 12


class Stock:
    """States: units in stock. Up to 6 are ordered; then demand comes, Poisson of mean 3."""

    number_of_actions = MOST + 1

    def initial(self, n, generator):
        return generator.integers(0, 11, n)

    def observe(self, states):
        return states[:, None].astype(float)

    def step(self, states, actions, generator):
        ordered = np.asarray(actions)
        offered = np.minimum(states + ordered, CAPACITY)
        demand = generator.poisson(3.0, len(states))
        sold = np.minimum(offered, demand)
        left = offered - sold
        missed = demand - sold
        rewards = 4.0 * sold - 2 * ordered - left - missed - 3 * (ordered > 0)
        return Outcome(left, rewards, np.zeros(len(states), bool))


def _up_to(level: int, trigger: int):
    """Order up to a level once the stock is at the trigger or below."""

    def order(observations: Array) -> Array:
        stock = np.rint(observations[:, 0]).astype(int)
        return np.where(stock <= trigger, np.clip(level - stock, 0, MOST), 0)

    return order


def tasks() -> list[Task]:
    stock = Stock()
    behaviour = mostly(_up_to(8, 5), MOST + 1, 0.5)
    careful, greedy = _up_to(9, 4), _up_to(6, 2)

    def finite(name, order, rows, threshold):
        source = Simulated(stock, behaviour, mostly(order, MOST + 1, 0.1), HORIZON, horizon=HORIZON)
        event = below(threshold, f"a return below {threshold}")
        return Task(f"inventory-{name}", source, rows=rows, events=(event,))

    def discounted(name, order, gamma, threshold):
        source = Simulated(stock, behaviour, mostly(order, MOST + 1, 0.1), 100, gamma)
        event = below(threshold, f"a return below {threshold}")
        return Task(f"inventory-{name}", source, events=(event,))

    return [
        finite("careful", careful, 100_000, -40.0),
        finite("greedy", greedy, 100_000, -15.0),
        finite("million", careful, 1_000_000, -40.0),
        discounted("steady", careful, 0.95, -40.0),
        discounted("far", greedy, 0.99, 75.0),
    ]
