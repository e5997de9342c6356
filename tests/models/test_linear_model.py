"""Own features: a linear class that is fitted exactly, against closed forms."""

import dataclasses

import jax
import numpy as np
import pytest

import fle
from fle.errors import ModelError, SettingsError
from fle.models.families.linear import Features
from fle.models.law import Sizes
from fle.tasks import LQR

CART = dataclasses.replace(LQR.example(), noise_std=0.2)
GAMMA = 0.99


def quadratic(x, a):
    """All products of two coordinates, in NumPy alone."""
    z = np.hstack([x, a])
    i, j = np.triu_indices(z.shape[1])
    return z[:, i] * z[:, j]


def logged(rows, seed):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1.5, 1.5, (rows, CART.state_dim))
    a = x @ CART.K.T + 0.5 * generator.standard_normal((rows, CART.action_dim))
    noise = generator.normal(0, CART.noise_std, rows)
    return fle.Dataset(
        observations=x,
        actions=a,
        rewards=CART.expected_reward(x, a) + noise,
        next_observations=CART.next_observations(x, a),
        terminations=np.zeros(rows, bool),
        truncations=np.zeros(rows, bool),
        initial_observations=generator.uniform(-1, 1, (500, CART.state_dim)),
    )


@pytest.fixture(scope="module")
def fitted():
    """A hundred stages: less than exp(-1) of anything is missing, and it is known what."""
    return fle.evaluate(
        logged(1_000, 0),
        CART.target_policy,
        gamma=GAMMA,
        stages=100,
        model=fle.Linear(quadratic, intercept=False),
        recipe={"occupancy": False},
    )


def test_an_lqr_is_exact_but_for_the_noise_of_the_log(fitted):
    """After T stages the mean is that of T steps, and the variance sigma² (1 - g^2T)/(1 - g²)."""
    x, a = np.array([[0.7, -0.4]]), np.array([[0.2]])
    expected, state, action, discount = 0.0, x, a, 1.0
    for _ in range(100):
        expected += discount * float(CART.expected_reward(state, action)[0])
        state = CART.next_observations(state, action)
        action, discount = state @ CART.K.T, discount * GAMMA
    law = fitted.at(x[0], a[0])
    variance = CART.noise_std**2 * (1 - GAMMA**200) / (1 - GAMMA**2)
    # Six coefficients from 1,000 rows of noise 0.2, and 100,000 draws: 0.05 is six times both.
    assert float(law.mean()) == pytest.approx(expected, abs=0.05)
    # A variance from 1,000 rows has a standard error of 4.5%.
    assert float(law.std()) ** 2 == pytest.approx(variance, rel=0.2)


def test_all_rows_are_fitted():
    planned = fle.plan(logged(100, 0), CART.target_policy, gamma=0.5, model=fle.Linear(quadratic))
    assert all(stage.rows.size == 100 for stage in planned.stages)
    other = fle.plan(logged(100, 0), CART.target_policy, gamma=0.5)
    assert all(stage.rows.size < 100 for stage in other.stages)


def test_one_step_is_least_squares():
    """Means and the variance against NumPy's own, with weights, to float32's digits."""
    generator = np.random.default_rng(1)
    x, a = generator.normal(size=(200, 1)), generator.normal(size=(200, 1))
    rewards = np.hstack([2 + x - a, 3 * x * a]) + 0.1 * generator.normal(size=(200, 2))
    weights = generator.uniform(0.5, 2, 200)
    data = fle.Dataset(
        observations=x,
        actions=a,
        rewards=rewards,
        next_observations=x,
        terminations=np.ones(200, bool),
        weights=weights,
        initial_observations=x[:5],
    )
    spec = fle.Linear(lambda x, a: np.hstack([x, a, x * a]), variance="features")
    result = fle.evaluate(data, lambda o: 0 * o, horizon=1, model=spec)
    phi = np.hstack([x, a, x * a, np.ones((200, 1))])
    root = np.sqrt(weights)[:, None]
    theta = np.linalg.lstsq(root * phi, root * rewards)[0]
    law = result.fits[-1].law
    assert np.asarray(law.coefficients) == pytest.approx(theta, abs=1e-4)
    spread = np.linalg.lstsq(root * phi, root * (rewards - phi @ theta) ** 2)[0]
    assert np.asarray(law.spreads) == pytest.approx(spread, abs=1e-4)


@pytest.mark.parametrize(
    ("function", "traceable"), [(quadratic, False), (lambda x, a: x * a, True)]
)
def test_functions_of_numpy_are_called_back(function, traceable):
    sizes = Sizes(1, 1, 1, False, False)
    features = Features.of(function, sizes)
    assert features.traceable is traceable
    inputs = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    found = jax.jit(jax.vmap(features.at))(inputs)
    assert np.asarray(found) == pytest.approx(features.matrix(inputs), abs=1e-6)


def test_codes_reach_the_function_as_codes():
    sizes = Sizes(3, 2, 1, True, True)
    features = Features.of(lambda s, a: np.stack([s == 2, a], axis=1), sizes)
    assert features.matrix(np.array([[0, 0, 1, 0, 1]])).tolist() == [[1, 1]]


def test_what_cannot_be_is_refused():
    with pytest.raises(SettingsError, match="expected a function"):
        fle.Linear(3)
    with pytest.raises(SettingsError, match="variance: expected"):
        fle.Linear(quadratic, variance="none")
    data = logged(100, 0)
    with pytest.raises(ModelError, match="expected a matrix of 2 rows"):
        fle.evaluate(data, CART.target_policy, gamma=0.5, model=fle.Linear(lambda x, a: x[:, 0]))
    many = fle.Linear(lambda x, a: np.repeat(x, 50, axis=1))
    with pytest.raises(ModelError, match="101 of them, the intercept included, and 100 rows"):
        fle.evaluate(data, CART.target_policy, gamma=0.5, model=many)
