"""Small problems and short trainings; equal shapes, so that each model is compiled once."""

import numpy as np

import fle

ROWS = 4000
QUICK = fle.Recipe(
    steps=1000, batch_size=250, learning_rate=1e-2, weight_decay=0.0, draws=4, start="fresh"
)
# A linear model of one-hot states and actions: fitted Q evaluation, cheap to compile.
TABLE = fle.Gaussian(std=1.0, hidden=())
TABLE_TRAINING = fle.Recipe(steps=300, batch_size=200, learning_rate=0.05, weight_decay=0.0)
GMM = fle.GMM(hidden=(32, 32))


def bandit(rewards, actions=None, **columns):
    """One state, every episode one step long."""
    rewards = np.asarray(rewards)
    n = len(rewards)
    return fle.Dataset(
        observations=np.zeros(n, int),
        actions=np.zeros(n, int) if actions is None else actions,
        rewards=rewards,
        next_observations=np.zeros(n, int),
        terminations=np.ones(n, bool),
        truncations=np.zeros(n, bool),
        **columns,
    )


def cycle(n=2000, length=10, ends="truncations", noise=0.1):
    """States 0, 1, ..., length - 1 in a ring; episodes of one round each.

    Rewards are 1 + noise and 1 - noise in every other episode, hence 1 on average in every state.
    """
    states = np.arange(n) % length
    last = states == length - 1
    flags = {"terminations": np.zeros(n, bool), "truncations": np.zeros(n, bool), ends: last}
    return fle.Dataset(
        observations=states,
        actions=np.zeros(n, int),
        rewards=np.where(np.arange(n) // length % 2, 1 - noise, 1 + noise),
        next_observations=(states + 1) % length,
        episodes=np.arange(n) // length,
        **flags,
    )
