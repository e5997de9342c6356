"""Ten periods of a risky asset with heavy tails: Student's t, and a volatility that changes.

The action is the share invested, which may exceed 1 (borrowed) or fall below 0 (sold short).
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, NormalPolicy, Task, below

HORIZON, FREEDOM = 10, 4


class Market:
    """States: log volatility and the last return of the asset, in per cent."""

    number_of_actions = None

    def initial(self, n, generator):
        return np.stack([generator.normal(0, 0.3, n), generator.normal(0, 1, n)], axis=1)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        volatility, last = states.T
        noise = generator.standard_t(FREEDOM, len(states))
        change = 0.1 + 0.05 * last.clip(-5, 5) + np.exp(volatility) * noise
        share = actions[:, 0]
        calmed = 0.9 * volatility + 0.1 * (np.abs(noise).clip(0, 5) - 0.95)
        calmed += generator.normal(0, 0.1, len(states))
        # Trading costs a little, and more the larger the share.
        rewards = share * change - 0.02 * share**2
        return Outcome(np.stack([calmed, change], axis=1), rewards, np.zeros(len(states), bool))


def _share(base: float, timid: float):
    def mean(observations: Array) -> Array:
        return base - timid * np.tanh(observations[:, :1])

    return mean


def tasks() -> list[Task]:
    market, behaviour = Market(), NormalPolicy(_share(0.5, 0.2), 0.5)

    def task(name, policy, threshold, covered):
        return Task(
            f"finance-{name}",
            Simulated(market, behaviour, policy, HORIZON, horizon=HORIZON),
            covered=covered,
            events=(below(threshold, f"a loss of more than {-threshold}"),),
        )

    return [
        task("full", NormalPolicy(_share(0.8, 0.0), 0.2), -12.0, True),
        task("timed", NormalPolicy(_share(0.6, 0.5), 0.2), -8.0, True),
        task("borrowed", NormalPolicy(_share(2.0, 0.0), 0.2), -30.0, False),
    ]
