"""A deterministic chain of 300 steps with one noisy start.

The start draws a level, which stays; every step pays according to it, and one of two actions pays a
little less. Given the start, the return of a policy that does not draw is a constant, so all the
spread an estimate may have is that of the start.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Task, below, mostly

LENGTH = 300


class Chain:
    """States: position as a share of the chain, and level."""

    number_of_actions = 2

    def initial(self, n, generator):
        return np.stack([np.zeros(n), generator.standard_normal(n)], axis=1)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        position, level = states.T
        moved = np.stack([position + 1 / LENGTH, level], axis=1)
        rewards = 0.1 * level - 0.05 * np.asarray(actions)
        # Half a step of tolerance, as shares add up inexactly.
        return Outcome(moved, rewards, moved[:, 0] > 1 - 0.5 / LENGTH)


def _always(action: int):
    return lambda observations: np.full(len(observations), action)


def tasks() -> list[Task]:
    chain, behaviour = Chain(), mostly(_always(0), 2, 1.0)

    def task(name, action, noise, gamma):
        steps = np.sum(gamma ** np.arange(LENGTH))
        paid = 0.05 * (action * (1 - noise) + noise / 2) * steps
        # The level's 1% quantile.
        threshold = -2.326 * 0.1 * steps - paid
        return Task(
            f"chain-{name}",
            Simulated(chain, behaviour, mostly(_always(action), 2, noise), LENGTH, gamma),
            events=(below(threshold, f"a return below {threshold:.2f}"),),
            exact_mean=lambda: [-paid],
        )

    return [
        task("free", 0, 0.0, 0.99),
        task("paying", 1, 0.0, 0.99),
        task("mixed", 0, 0.5, 0.99),
        task("far", 0, 0.0, 0.995),
    ]
