"""One recommendation: clicks of 0 or 1, and revenue that is 0 without a sale.

No reward is negative, so no loss is possible; most revenue is exactly 0.
"""

import numpy as np

from tasks.simulation import Outcome, Simulated
from tasks.task import Array, DiscretePolicy, Event, Task, below

ITEMS, FEATURES = 4, 5
TASTES = np.random.default_rng(2024).normal(0, 0.6, (FEATURES, ITEMS))
APPEAL = np.array([-0.4, 0.0, 0.2, -0.8])
PRICE = np.array([1.0, 0.6, 0.4, 1.6])


class Shop:
    """States: features of a user. One item is shown; clicks, and then buys with chance 0.6."""

    number_of_actions = ITEMS

    def initial(self, n, generator):
        return generator.normal(0, 1, (n, FEATURES))

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        n, items = len(states), np.asarray(actions)
        chance = 1 / (1 + np.exp(-(states @ TASTES + APPEAL)[np.arange(n), items]))
        clicked = generator.random(n) < chance
        bought = clicked & (generator.random(n) < 0.6)
        price = PRICE[items] * generator.lognormal(0, 0.5, n)
        rewards = np.stack([clicked.astype(float), np.where(bought, price, 0.0)], axis=1)
        return Outcome(states, rewards, np.ones(n, bool))


class RevenueOnly(Shop):
    """The same shop, of which only the revenue is kept."""

    def step(self, states, actions, generator):
        outcome = super().step(states, actions, generator)
        return outcome._replace(rewards=outcome.rewards[:, 1])


def _softmax(sharpness: float, by_price: float) -> DiscretePolicy:
    """Shows what suits a user's taste, more or less surely, and what is dear."""

    def probabilities(observations: Array) -> Array:
        scores = sharpness * (observations @ TASTES + APPEAL) + by_price * PRICE
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    return DiscretePolicy(probabilities)


def tasks() -> list[Task]:
    random, tasteful, dear = _softmax(0.0, 0.0), _softmax(2.0, 0.0), _softmax(1.0, 2.0)

    def task(name, shop, policy):
        no_sale = Event("no revenue", lambda returns: returns[:, -1] <= 1e-9)
        loss = below(0.0, "a loss", coordinate=-1)
        source = Simulated(shop, random, policy, longest=1, horizon=1)
        return Task(f"recommender-{name}", source, events=(no_sale, loss))

    return [
        task("taste", RevenueOnly(), tasteful),
        task("dear", RevenueOnly(), dear),
        task("clicks_and_revenue", Shop(), tasteful),
    ]
