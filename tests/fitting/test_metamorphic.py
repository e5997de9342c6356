"""Other units, orders and names change an answer only as they must, for every model.

Inputs are standardised in float64, so units leave the numbers that a network sees the same up to
rounding, and with the same seed all that is drawn is the same. A permutation of columns permutes
the weights that a law begins with, and what is fitted must then be the same.
"""

import dataclasses
import pkgutil
from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy import stats

import fle
from fle import models
from fle.data import Dataset

ROWS, LENGTH, WIDTH, ACTIONS, HORIZON = 256, 8, 4, 3, 2
# Few steps: what is compared is one fit with another, not with the truth.
RECIPE = fle.Recipe(steps=20, batch_size=64, weight_decay=0.01, draws=2)
SMALL = (6,)
SPECS = {
    "autoregressive": fle.Autoregressive(components=2, hidden=SMALL),
    "categorical": fle.Categorical(atoms=9, hidden=SMALL),
    "ddpm": models.family("ddpm")(hidden=SMALL, diffusion_steps=10),
    "diffusion": fle.Diffusion(hidden=SMALL, sampling_steps=4),
    "flow": fle.Flow(knots=4, hidden=6),
    "gaussian": fle.Gaussian(hidden=SMALL),
    "gmm": fle.GMM(components=2, hidden=SMALL),
    "histogram": fle.Histogram(bins=9, hidden=SMALL),
    "quantile": fle.Quantile(quantiles=9, hidden=SMALL),
}
# Defined in the units of the data: see the last tests; or on features of the user's own.
EXACT = {"linear-quadratic", "reward-mixture"}
OWN_FEATURES = {"linear"}
# Scale and offset, which counts in standard deviations, of observations, actions and rewards.
UNITS = {
    "small": ((1e-9, 1e6), (1e9, -1e6), (1e-9, 1e6)),
    "large": ((1e9, -1e6), (1e-9, 1e6), (1e9, 30.0)),
}
# Rounding to float32 moves a draw by about 1e-6 of the spread, and 40 steps of a learning rate of
# 1e-2 may make a hundred times that of it. A unit that mattered would move it by the spread itself.
TOLERANCE = 2e-3


def test_every_model_is_here():
    # Not `models.names()`, which has those that other tests add.
    files = pkgutil.iter_modules(models.families.__path__)
    names = {file.name.replace("_", "-") for file in files}
    assert SPECS.keys() | EXACT | OWN_FEATURES == names


def arrays():
    generator = np.random.default_rng(0)
    observations = generator.standard_normal((ROWS, WIDTH))
    actions = 0.5 * observations[:, :ACTIONS] + generator.standard_normal((ROWS, ACTIONS))
    rewards = observations[:, 0] + actions[:, 0] * observations[:, 1]
    return observations, actions, rewards / rewards.std()


def problem(observation=(1.0, 0.0), action=(1.0, 0.0), reward=(1.0, 0.0), columns=None, acts=None):
    """Data and policy in other units, and with columns in another order."""
    observations, actions, rewards = arrays()
    columns = np.arange(WIDTH) if columns is None else columns
    acts = np.arange(ACTIONS) if acts is None else acts
    (xs, x0), (us, u0), (rs, r0) = observation, action, reward
    data = Dataset(
        observations=(xs * (observations + x0))[:, columns],
        actions=(us * (actions + u0))[:, acts],
        rewards=rs * (rewards + r0),
        episodes=np.arange(ROWS) // LENGTH,
        truncations=np.arange(ROWS) % LENGTH == LENGTH - 1,
        next_observations=(xs * (np.roll(observations, -1, axis=0) + x0))[:, columns],
        terminations=np.zeros(ROWS, bool),
        observation_names=[f"x{i}" for i in columns],
        action_names=[f"u{i}" for i in acts],
    )

    def policy(asked):
        plain = np.empty((len(asked), WIDTH))
        plain[:, columns] = asked / xs - x0
        return us * (0.5 * plain[:, acts] + u0)

    return data, policy


def draws(name, **changes):
    """Of the return from the initial states and at one input, in standard units."""
    data, policy = problem(**changes)
    result = fle.evaluate(
        data, policy, horizon=HORIZON, model=SPECS[name], recipe=RECIPE, anyway=True
    )
    scale, offset = changes.get("reward", (1.0, 0.0))
    found = [
        result.returns.sample(4000, seed=0),
        result.at(data.observations[3], data.actions[3]).sample(4000, seed=0),
    ]
    # Nothing ends early: a constant reward is earned at every step.
    return np.concatenate([one.reshape(-1) / scale - HORIZON * offset for one in found])


@cache
def plain(name):
    return draws(name)


def check_same(found, expected):
    """But for the draws, one in a hundred at most, that rounding moves to another mode."""
    off = np.abs(found - expected) / expected.std()
    assert np.quantile(off, 0.99) < TOLERANCE
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=5 * TOLERANCE * expected.std())


# Policies that work in float32 would not see all of it, which is said.
quiet = pytest.mark.filterwarnings("ignore::fle.errors.FLEWarning")


@quiet
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("units", UNITS)
def test_units_change_nothing_but_the_units(name, units):
    observation, action, reward = UNITS[units]
    found = draws(name, observation=observation, action=action, reward=reward)
    check_same(found, plain(name))


def permute_inputs(monkeypatch, spec, inputs):
    """Laws begin with their weights in another order; how many arrays that were, at the end."""
    build, permuted = spec.build, []

    def of_columns(leaf):
        """No other axis of a law is as long as its inputs."""
        if not eqx.is_array(leaf) or len(inputs) not in leaf.shape:
            return leaf
        permuted.append(leaf.shape)
        return leaf.take(inputs, axis=leaf.shape.index(len(inputs)))

    monkeypatch.setattr(
        spec, "build", lambda self, *given: jax.tree.map(of_columns, build(self, *given))
    )
    return permuted


@quiet
@pytest.mark.parametrize("name", SPECS)
def test_order_and_names_of_columns_change_nothing(name, monkeypatch):
    columns, acts = np.array([2, 0, 3, 1]), np.array([1, 2, 0])
    expected = plain(name)
    inputs = np.concatenate([columns, WIDTH + acts])
    permuted = permute_inputs(monkeypatch, type(SPECS[name]), inputs)
    check_same(draws(name, columns=columns, acts=acts), expected)
    assert permuted


def chosen(name, codes):
    """Draws of one of three actions, which stand under these codes."""
    observations, actions, rewards = arrays()
    taken = actions.argmax(axis=1)
    data = Dataset(
        observations=observations,
        actions=codes[taken],
        rewards=rewards + taken,
        episodes=np.arange(ROWS) // LENGTH,
        truncations=np.arange(ROWS) % LENGTH == LENGTH - 1,
        next_observations=np.roll(observations, -1, axis=0),
        terminations=np.zeros(ROWS, bool),
        action_labels=[f"u{np.argsort(codes)[code]}" for code in range(ACTIONS)],
    )
    result = fle.evaluate(
        data,
        lambda asked: codes[np.where(asked[:, 0] > 0, 2, 0)],
        horizon=HORIZON,
        model=SPECS[name],
        recipe=RECIPE,
        anyway=True,
    )
    found = (
        result.returns.sample(4000, seed=0),
        result.at(observations[3], int(codes[1])).sample(4000, seed=0),
    )
    return np.concatenate([one.reshape(-1) for one in found])


# One model an objective: which actions there are is the encoder's and the objective's matter.
@quiet
@pytest.mark.parametrize("name", ["categorical", "diffusion", "gaussian", "gmm", "quantile"])
def test_codes_of_actions_change_nothing(name, monkeypatch):
    codes = np.array([1, 2, 0])
    expected = chosen(name, np.arange(ACTIONS))
    inputs = np.concatenate([np.arange(WIDTH), WIDTH + np.argsort(codes)])
    permuted = permute_inputs(monkeypatch, type(SPECS[name]), inputs)
    check_same(chosen(name, codes), expected)
    assert permuted


@quiet
def test_an_offset_of_discounted_rewards_is_a_sum_of_offsets():
    """Nothing ends, so a constant reward c is worth c / (1 - gamma), whatever its size.

    An offset that is small beside the spread is left in, and few stages then begin elsewhere: the
    offsets compared are all large.
    """
    gamma, found = 0.9, []
    for scale, offset in ((1.0, 1e3), (1e-9, 1e6), (1e9, -1e6)):
        data, policy = problem(reward=(scale, offset))
        result = fle.evaluate(
            data,
            policy,
            gamma=gamma,
            stages=3,
            model=SPECS["gmm"],
            recipe=RECIPE,
            anyway=True,
        )
        returns = result.returns.sample(4000, seed=0).reshape(-1)
        found.append(returns / scale - offset / (1 - gamma))
    for other in found[1:]:
        check_same(other, found[0])


def discrete(codes, order, scale=1.0):
    """Three actions under other codes, and episodes in another order; the law of each is known."""
    generator = np.random.default_rng(0)
    states = generator.integers(2, size=ROWS)
    actions = generator.integers(3, size=ROWS)
    rewards = 3.0 * states + actions + generator.normal(0, 0.5, ROWS)
    rows = (order[:, None] * LENGTH + np.arange(LENGTH)).ravel()
    ends = np.arange(ROWS) % LENGTH == LENGTH - 1
    return Dataset(
        observations=states[rows],
        actions=codes[actions][rows],
        rewards=scale * rewards[rows],
        terminations=ends,
        episodes=np.repeat(order, LENGTH),
        number_of_actions=3,
    )


@quiet
def test_codes_of_actions_and_order_of_episodes_change_a_fit_by_chance_alone():
    """The mean of action 2 over both states, of means at six pairs with about 43 rows each.

    Another order holds out other rows, a tenth: each mean of a pair differs by a noise of
    0.5 sqrt(2 / 9) / sqrt(43) = 0.036, the average of two by 0.026. The draws of both fits add
    4 sqrt(2 (0.5² + 1.5²) / 40000) = 0.045 at four standard errors: 4 * 0.026 + 0.045 + what a
    fit is short of its optimum, 0.02. False alarms: 1 in 10,000.
    """
    means = []
    recipe = fle.Recipe(steps=300, batch_size=200, learning_rate=0.05, weight_decay=0.0)
    for codes, order in (
        (np.arange(3), np.arange(ROWS // LENGTH)),
        (np.array([2, 0, 1]), np.random.default_rng(1).permutation(ROWS // LENGTH)),
    ):
        policy = np.eye(3)[codes[2]]
        result = fle.evaluate(
            discrete(codes, order),
            policy,
            horizon=1,
            model=fle.Gaussian(std=0.5, hidden=()),
            recipe=recipe,
        )
        starts = [result.at(state, int(codes[2])).sample(40_000, seed=0) for state in (0, 1)]
        means.append(np.mean(starts))
    assert means[0] == pytest.approx(3.5, abs=4 * 0.5 / np.sqrt(86) + 0.045)
    assert means[0] == pytest.approx(means[1], abs=4 * 0.026 + 0.045 + 0.02)


@quiet
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_a_mixture_of_known_laws_has_the_units_of_its_laws(scale):
    def mean(scale):
        laws = tuple(stats.norm(scale * m, scale * 0.5) for m in (0.0, 2.0, 4.0))
        data = discrete(np.arange(3), np.arange(ROWS // LENGTH), scale)
        # It earns where episodes end.
        data = Dataset(
            observations=data.observations,
            actions=data.actions,
            rewards=data.rewards,
            terminations=np.ones(ROWS, bool),
            number_of_actions=3,
        )
        result = fle.evaluate(
            data, [0.2, 0.3, 0.5], horizon=1, model=fle.RewardMixture(laws), recipe=RECIPE
        )
        return result.returns.sample(4000, seed=0) / scale

    check_same(mean(scale), mean(1.0))


def own_features(x, a):
    return np.concatenate([x, a, x[:, :ACTIONS] * a], axis=1)


@quiet
@pytest.mark.parametrize("model", [fle.Linear(own_features), fle.LinearQuadratic(0.5)])
def test_columns_of_an_exact_model_may_have_any_units(model):
    """Functions of some columns are 36 orders of magnitude above those of others.

    An offset is in neither class: products of two inputs have no linear part.
    """

    def found(observation, action, reward):
        data, policy = problem((observation, 0.0), (action, 0.0), (reward, 0.0))
        scaled = dataclasses.replace(model, noise_std=0.5 * reward) if known else model
        result = fle.evaluate(data, policy, horizon=HORIZON, model=scaled, anyway=True)
        return result.returns.sample(4000, seed=0) / reward

    known = isinstance(model, fle.LinearQuadratic)
    expected = found(1.0, 1.0, 1.0)
    for units in ((1e9, 1e-9, 1e9), (1e-9, 1e9, 1e-9)):
        check_same(found(*units), expected)
