"""A queue with two speeds of service: waiting costs, and so does speed; two costs or their sum."""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Task, below, mostly

LONGEST_QUEUE = 40


class Queue:
    """States: customers waiting. Each period up to three arrive; slow or fast service."""

    number_of_actions = 2

    def initial(self, n, generator):
        return generator.integers(0, 6, n)

    def observe(self, states):
        return states[:, None].astype(float)

    def step(self, states, actions, generator):
        fast = np.asarray(actions) == 1
        arrivals = generator.binomial(3, 0.25, len(states))
        served = generator.binomial(2, np.where(fast, 0.6, 0.35))
        waiting = np.clip(states + arrivals - served, 0, LONGEST_QUEUE)
        costs = np.stack([-0.1 * waiting, -0.4 * fast], axis=1)
        return Outcome(waiting, costs, np.zeros(len(states), bool))


class OneCost(Queue):
    """The same queue, with the sum of both costs."""

    def step(self, states, actions, generator):
        outcome = super().step(states, actions, generator)
        return outcome._replace(rewards=outcome.rewards.sum(axis=1))


def _fast_from(length: int):
    return lambda observations: (observations[:, 0] >= length).astype(int)


def tasks() -> list[Task]:
    behaviour = mostly(_fast_from(4), 2, 0.6)

    def task(name, queue, length, gamma, rows, threshold):
        return Task(
            f"queueing-{name}",
            Simulated(queue, behaviour, mostly(_fast_from(length), 2, 0.1), 200, gamma),
            rows=rows,
            events=(below(threshold, f"cost above {-threshold}"),),
        )

    return [
        task("early", OneCost(), 2, 0.99, 100_000, -45.0),
        task("late", OneCost(), 7, 0.995, 100_000, -130.0),
        task("two_costs", Queue(), 4, 0.99, 100_000, -33.0),
        task("million", OneCost(), 7, 0.99, 1_000_000, -72.0),
    ]
