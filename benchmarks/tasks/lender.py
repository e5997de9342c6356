"""One offer to a customer: mostly nothing comes of it, some pay well, a few cost 300.

The mean rests on the 7% that accept, and on a loss in 200; a likelihood looks at neither.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, DiscretePolicy, Event, Task, below

OFFERS, FEATURES = 8, 5
_GENERATOR = np.random.default_rng(4071)
TASTES = _GENERATOR.normal(0, 0.5, (FEATURES, OFFERS))
APPEAL = np.log(0.07 / 0.93) + _GENERATOR.normal(0, 0.7, OFFERS)
PAYS = _GENERATOR.uniform(40, 120, OFFERS)
LOSS, RISK = 300.0, 0.07


class Lender:
    """States: features of a customer. Who accepts pays, or, more rarely, does not pay back."""

    number_of_actions = OFFERS

    def initial(self, n, generator):
        return generator.normal(0, 1, (n, FEATURES))

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        n, offers = len(states), np.asarray(actions)
        logits = (0.5 * states @ TASTES + APPEAL)[np.arange(n), offers]
        accepted = generator.random(n) < 1 / (1 + np.exp(-logits))
        lost = accepted & (generator.random(n) < RISK)
        paid = PAYS[offers] * generator.lognormal(0, 0.3, n)
        rewards = np.where(lost, -LOSS, np.where(accepted, paid, 0.0))
        return Outcome(states, rewards, np.ones(n, bool))


def _softmax(sharpness: float) -> DiscretePolicy:
    """Offers what is accepted and pays, more or less surely."""

    def probabilities(observations: Array) -> Array:
        chances = 1 / (1 + np.exp(-(0.5 * observations @ TASTES + APPEAL)))
        scores = sharpness * chances * (PAYS * (1 - RISK) - LOSS * RISK)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    return DiscretePolicy(probabilities)


def tasks() -> list[Task]:
    def task(name, sharpness, rows):
        loss = below(-1.0, "a loan that is lost")
        nothing = Event("nothing comes of it", lambda returns: np.abs(returns[:, 0]) < 1e-9)
        source = Simulated(Lender(), _softmax(0.05), _softmax(sharpness), longest=1, horizon=1)
        return Task(f"lender-{name}", source, rows=rows, events=(loss, nothing))

    return [task("small", 2.0, 6_000), task("keen", 2.0, 50_000), task("mild", 0.4, 6_000)]
