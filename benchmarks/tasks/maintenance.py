"""A machine that wears out: a rare breakdown costs 40 and ends production for good."""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, Task, below, mostly

HORIZON = 30


class Machine:
    """States: wear, and an age that is not seen to matter. Run, inspect, or replace parts."""

    number_of_actions = 3

    def initial(self, n, generator):
        return np.stack([generator.uniform(0, 0.5, n), generator.uniform(0, 1, n)], axis=1)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        wear, heat = states.T
        actions = np.asarray(actions)
        broken = generator.random(len(states)) < 0.02 * np.clip(wear, 0, 1.5) ** 4
        gain = np.array([1.0, 0.7, -1.5])[actions] + generator.normal(0, 0.1, len(states))
        rewards = np.where(broken, -40.0, gain)
        kept = np.array([1.0, 0.9, 0.1])[actions] * wear
        worn = kept + generator.gamma(2.0, 0.03, len(states)) * (0.5 + heat)
        warmed = np.clip(0.8 * heat + 0.2 * generator.random(len(states)), 0, 1)
        return Outcome(np.stack([worn, warmed], axis=1), rewards, broken)


def _replace_at(limit: float):
    """Replace beyond a limit of wear, inspect near it, else run."""

    def choose(observations: Array) -> Array:
        wear = observations[:, 0]
        return np.where(wear > limit, 2, np.where(wear > 0.8 * limit, 1, 0))

    return choose


def tasks() -> list[Task]:
    machine = Machine()
    often = mostly(_replace_at(0.9), 3, 0.4)
    seldom = mostly(_replace_at(0.5), 3, 0.1)

    def finite(name, behaviour, limit, covered):
        policy = mostly(_replace_at(limit), 3, 0.1)
        source = Simulated(machine, behaviour, policy, HORIZON, horizon=HORIZON)
        # The most that 30 steps earn is about 30, so a breakdown always leaves less than 0.
        return Task(
            f"maintenance-{name}", source, covered=covered, events=(below(-9.0, "a breakdown"),)
        )

    def discounted(name, limit):
        source = Simulated(machine, often, mostly(_replace_at(limit), 3, 0.1), 100, 0.99)
        return Task(f"maintenance-{name}", source, events=(below(-15.0, "an early breakdown"),))

    return [
        finite("late", often, 0.9, True),
        finite("early", often, 0.6, True),
        finite("late_uncovered", seldom, 1.2, False),
        discounted("far", 0.7),
    ]
