"""Random MDPs with integer rewards: mean and, with a horizon, the whole distribution are exact."""

import numpy as np

from fle.tasks import TabularMDP, random_mdp, random_policy, uniform_policy
from tasks.simulation import Outcome, Simulated
from tasks.state_tables import table_policy
from tasks.task import Task, below

STATES, ACTIONS = 20, 3


class RandomStates:
    """The states and outcomes of a TabularMDP."""

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp, self.number_of_actions = mdp, mdp.number_of_actions

    def initial(self, n, generator):
        return self.mdp.initial_states(n, generator)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        rewards, terminations, states = self.mdp.step(states, actions, generator)
        return Outcome(states, rewards.astype(float), terminations)


def discounted_mean(mdp: TabularMDP, policy: np.ndarray, gamma: float) -> float:
    means, _ = mdp.discounted_moments(policy, gamma)
    return float(mdp.initial @ (policy * means).sum(axis=1))


def finite_mean(mdp: TabularMDP, policy: np.ndarray) -> float:
    support, probabilities = mdp.policy_pmf(policy)
    return float(support @ probabilities)


def tasks() -> list[Task]:
    behaviour = table_policy(uniform_policy(STATES, ACTIONS))

    def discounted(name, seed, policy, gamma, rows, threshold):
        mdp = random_mdp(STATES, ACTIONS, seed, termination=0.01)
        return Task(
            f"tabular-{name}",
            Simulated(RandomStates(mdp), behaviour, table_policy(policy), 200, gamma),
            rows=rows,
            events=(below(threshold, f"a return below {threshold}"),),
            exact_mean=lambda: [discounted_mean(mdp, policy, gamma)],
        )

    def finite(name, seed, policy):
        mdp = random_mdp(STATES, ACTIONS, seed, horizon=10)
        source = Simulated(RandomStates(mdp), behaviour, table_policy(policy), 10, horizon=10)
        return Task(
            f"tabular-{name}",
            source,
            rows=20_000,
            events=(below(0.0, "a loss"),),
            exact_mean=lambda: [finite_mean(mdp, policy)],
        )

    return [
        discounted("first", 1, random_policy(STATES, ACTIONS, 11), 0.95, 20_000, 2.0),
        discounted("second", 2, random_policy(STATES, ACTIONS, 12), 0.95, 20_000, 2.0),
        discounted("far", 3, random_policy(STATES, ACTIONS, 13), 0.99, 100_000, 5.0),
        finite("finite", 4, random_policy(STATES, ACTIONS, 14)),
    ]
