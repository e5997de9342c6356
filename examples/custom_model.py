"""A model of one's own, that of `laplace.py`, on a problem whose answer is known.

The state moves as x' = 0.8 x + 0.4 a and each step earns -x². The last reward has Laplace noise
whose scale depends on the state, so the return that follows (x, a) is a Laplace variable.
"""

import numpy as np
from laplace import Laplace

import fle

HORIZON = 4
START = 1.0


def move(state, action):
    return 0.8 * state + 0.4 * action


def noise_scale(state):
    return 0.3 + 0.3 * state**2


def target_policy(observations):
    return -0.5 * observations


def logged_data(rows_a_step, seed):
    generator = np.random.default_rng(seed)
    steps = np.repeat(np.arange(HORIZON), rows_a_step)
    states = generator.uniform(-1.5, 1.5, len(steps))
    actions = generator.uniform(-1.0, 1.0, len(steps))
    last = steps == HORIZON - 1
    noise = generator.laplace(0, noise_scale(states))
    return fle.Dataset(
        observations=states[:, None],
        actions=actions[:, None],
        rewards=-(states**2) + np.where(last, noise, 0),
        next_observations=move(states, actions)[:, None],
        terminations=last,
        steps=steps,
        initial_observations=[[START]],
    )


def true_distribution():
    """Location and scale of the return from the initial state: everything but the noise is sure."""
    state, location = START, 0.0
    for step in range(HORIZON):
        location -= state**2
        if step < HORIZON - 1:
            state = move(state, target_policy(state))
    return location, noise_scale(state)


def main():
    result = fle.evaluate(
        logged_data(20_000, seed=0),
        target_policy,
        horizon=HORIZON,
        model=Laplace(),
        recipe=fle.Recipe(steps=1000),
        seed=0,
    )
    location, scale = true_distribution()
    returns = result.returns
    # Of a Laplace variable: the q-quantile below the middle is m + b log(2q), and the mean beneath
    # it is lower by another b.
    rows = [
        ("mean", returns.mean(), location),
        ("standard deviation", returns.std(), np.sqrt(2) * scale),
        ("5% quantile", returns.quantile(0.05), location + scale * np.log(0.1)),
        ("CVaR at 10%", returns.cvar(0.1), location + scale * (np.log(0.2) - 1)),
        ("log density at mean", returns.log_prob(location), -np.log(2 * scale)),
    ]
    print(f"{'':20} {'estimate':>9} {'truth':>9}")
    for name, estimate, truth in rows:
        print(f"{name:20} {estimate:9.3f} {truth:9.3f}")


if __name__ == "__main__":
    main()
