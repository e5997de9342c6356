"""Logged episodes of small problems whose answer is known."""

import numpy as np
from scipy import stats

import fle
from fle.returns import risk
from fle.tasks.tabular import draw_categorical, random_mdp, uniform_policy

MDP = random_mdp(4, 2, seed=1, horizon=5, termination=0.1)
LOGGED = uniform_policy(4, 2)
# The action that pays more at once, four times in five.
BETTER = (MDP.reward_probabilities @ MDP.reward_values).argmax(axis=1)
TARGET = np.where(np.arange(2) == BETTER[:, None], 0.8, 0.2)
SUPPORT, CHANCES = MDP.policy_pmf(TARGET)
# Two-sided, one false alarm in 15,000 for each figure of a normal estimate.
BEYOND = stats.norm.ppf(1 - 0.5 / 15_000)
COLUMNS = (
    "episodes",
    "observations",
    "actions",
    "rewards",
    "terminations",
    "truncations",
    "next_observations",
    "propensities",
)
# Training is not what these tests are about; a linear model is the cheapest.
MODEL = fle.Gaussian(std=1.0, hidden=())


def logged(episodes, seed, *, propensities=True):
    """Episodes of the uniform policy, as `fle.Dataset` takes them."""
    generator = np.random.default_rng(seed)
    states, running = MDP.initial_states(episodes, generator), np.arange(episodes)
    steps = []
    for step in range(MDP.horizon):
        actions = draw_categorical(LOGGED[states], generator)
        rewards, ended, following = MDP.step(states, actions, generator)
        cut = ~ended & (step == MDP.horizon - 1)
        chances = LOGGED[states, actions]
        rows = (running, states, actions, rewards.astype(float), ended, cut, following, chances)
        steps.append(rows)
        running, states = running[~ended], following[~ended]
    columns = [np.concatenate(column) for column in zip(*steps, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    data = {name: column[order] for name, column in zip(COLUMNS, columns, strict=True)}
    if not propensities:
        del data["propensities"]
    return fle.Dataset(**data, number_of_actions=2)


def planned(episodes, seed, **how):
    """The plan of the target policy's return."""
    data = logged(episodes, seed, **how)
    return fle.plan(data, TARGET, horizon=MDP.horizon, model=MODEL, rows="all")


def truths():
    """The figures that are compared, by name: of an estimate, and true."""
    return {
        "mean": (lambda e: e.mean(), SUPPORT @ CHANCES),
        "cdf": (lambda e: e.cdf(1.0), CHANCES[SUPPORT <= 1].sum()),
        "cvar": (lambda e: e.cvar(0.25), float(risk.cvar(SUPPORT, 0.25, CHANCES))),
    }


def scores(estimate):
    """By figure, how many standard errors it is off."""
    found = {}
    for name, (read, truth) in truths().items():
        value, error = read(estimate)
        found[name] = (value - truth) / error
    return found
