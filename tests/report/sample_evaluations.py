"""Quick evaluations of one and of two rewards, with names that want to break the page."""

from functools import cache

import numpy as np

import fle

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='hacked = 1'> & \u2028 \"q\""
)
EPISODES, LENGTH = 120, 3
# A linear model of one-hot inputs: cheap to compile.
MODEL = fle.Gaussian(std=1.0, hidden=())
TRAINING = fle.Recipe(steps=100, batch_size=100, learning_rate=0.05, weight_decay=0.0)


def logged(rewards_of_a_row, **columns):
    """Episodes of three steps through states 0, 1, 2; either action, with equal chance."""
    generator = np.random.default_rng(0)
    states = np.tile(np.arange(LENGTH), EPISODES)
    actions = generator.integers(0, 2, states.size)
    noise = generator.standard_normal((states.size, 2))
    last = states == LENGTH - 1
    return fle.Dataset(
        observations=states,
        actions=actions,
        rewards=rewards_of_a_row(states, actions, noise),
        next_observations=(states + 1) % LENGTH,
        terminations=last,
        truncations=np.zeros(states.size, bool),
        episodes=np.arange(states.size) // LENGTH,
        number_of_actions=2,
        **columns,
    )


@cache
def scalar():
    """Data and evaluation of one reward."""
    data = logged(lambda state, action, noise: action + 0.5 * noise[:, 0])
    policy = [0.25, 0.75]
    return data, fle.evaluate(data, policy, horizon=3, model=MODEL, recipe=TRAINING)


@cache
def vector():
    """Data and evaluation of two rewards, the second one with a hostile name."""

    def rewards(state, action, noise):
        return np.stack([action + noise[:, 0], -0.5 * action - noise[:, 0] + noise[:, 1]], axis=1)

    data = logged(rewards, reward_names=("speed", HOSTILE))
    policy = [0.25, 0.75]
    return data, fle.evaluate(data, policy, gamma=0.5, stages=12, model=MODEL, recipe=TRAINING)


@cache
def compared():
    """Three policies on the data of one reward, one of them with a hostile name."""
    policies = {
        "cautious": [0.9, 0.1],
        HOSTILE: [0.1, 0.9],
        "behaviour": fle.load_policy("behaviour"),
    }
    return fle.compare(scalar()[0], policies, horizon=3, model=MODEL, recipe=TRAINING)
