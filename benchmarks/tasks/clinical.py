"""Treatment over 20 steps, with a catastrophe of about -50 in about 2% of episodes.

Each step a dose is chosen for a patient of some severity and frailty. A higher dose lowers the
severity and, rarely, kills: then the episode terminates at a cost of about 50.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, DiscretePolicy, Task, below

HORIZON = 20


class Ward:
    """States: severity and frailty. Doses: none, half, full."""

    number_of_actions = 3

    def initial(self, n, generator):
        return np.stack([generator.normal(1.0, 0.5, n), generator.uniform(0, 1, n)], axis=1)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        severity, frailty = states.T
        dose = np.asarray(actions) / 2
        chance = 0.00005 + 0.009 * dose**2 * frailty**2
        died = generator.random(len(states)) < chance
        ordinary = -0.3 * np.abs(severity) - 0.1 * dose + generator.normal(0, 0.2, len(states))
        rewards = ordinary - np.where(died, generator.normal(50, 2, len(states)), 0.0)
        worse = 0.95 * severity + 0.15 - 0.3 * dose + generator.normal(0, 0.2, len(states))
        return Outcome(np.stack([worse, frailty], axis=1), rewards, died)


def _doses(caution: float, noise: float) -> DiscretePolicy:
    """A softmax: more severe patients get higher doses, the more cautious the policy the lower."""

    def probabilities(observations: Array) -> Array:
        severity, frailty = observations.T
        dose = np.array([0.0, 0.5, 1.0])
        wish = np.clip(0.3 + 0.5 * severity - caution * frailty, 0, 1)
        weights = np.exp(-((dose - wish[:, None]) ** 2) / noise**2)
        return weights / weights.sum(axis=1, keepdims=True)

    return DiscretePolicy(probabilities)


def tasks() -> list[Task]:
    ward = Ward()
    mixed = _doses(caution=0.3, noise=1.0)
    timid = _doses(caution=1.5, noise=0.25)
    death = (below(-40.0, "a death"),)

    def task(name, behaviour, policy, covered):
        source = Simulated(ward, behaviour, policy, HORIZON, horizon=HORIZON)
        return Task(f"clinical-{name}", source, covered=covered, events=death)

    bold, careful = _doses(0.0, 0.4), _doses(0.6, 0.4)
    return [
        task("bold", mixed, bold, True),
        task("careful", mixed, careful, True),
        task("bold_uncovered", timid, bold, False),
    ]
