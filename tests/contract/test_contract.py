"""What every model promises, on small problems with known answers.

A new model joins by one line in `contract_models.CASES`. Fits are shared: each test asks other
questions of the same few results.
"""

from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest
from contract_models import CASES, LINEAR_STD, MIXTURE_STD, ROWS, TABULAR
from jax.flatten_util import ravel_pytree
from scipy import stats

import fle
from fle.errors import ModelError
from fle.fitting.targets import SAMPLE_BLOCK
from fle.recipe import ONE_FIT, WEIGHT_DECAYS, usual
from fle.returns import sampling_floor, wasserstein

with_density = [name for name, case in CASES.items() if case.density]
without_density = [name for name, case in CASES.items() if not case.density]

trained_by_likelihood = [
    name
    for name in with_density
    if getattr(CASES[name].spec(1.0, 0.0).objective(ONE_FIT), "in_nats", False)
]
# Of a law's parameters, along the gradient: no knot of a spline should pass a return on the way.
STRIDE = 2e-4

every_model = pytest.mark.parametrize("name", CASES)


@cache
def reward_problem(name, scale=1.0, shift=0.0, order_seed=None):
    return CASES[name].world.rewards(scale, shift, order_seed)


@cache
def reward_fit(name, scale=1.0, shift=0.0, order_seed=None):
    problem = reward_problem(name, scale, shift, order_seed)
    return fit(problem, CASES[name].spec(scale, shift), CASES[name].objective)


def fit(problem, spec, objective="own"):
    """With half the default batch, and the lightest weight decay instead of a chosen one.

    Rewards alone are a discounted problem with gamma = 0, and are trained like a finite horizon:
    each model is compiled once for both.
    """
    default = usual(repeats=1, rows=ROWS, coordinates=2, tuning=spec.usual_tuning)
    recipe = fle.Recipe(
        weight_decay=WEIGHT_DECAYS[0], batch_size=default.batch_size // 2, objective=objective
    )
    time = {"gamma": 0.0} if problem.horizon is None else {"horizon": problem.horizon}
    return fle.evaluate(problem.data, problem.policy, model=spec, recipe=recipe, **time)


def first_law(name):
    query = reward_problem(name).queries[0]
    return reward_fit(name).at(query.observation, query.action)


def quadrature(name):
    """Midpoints, density at the midpoints, and the width of a cell."""
    law, points = first_law(name), CASES[name].quadrature
    if CASES[name].bounded:
        (fitted,) = reward_fit(name).fits
        unit = reward_fit(name).encoder.reward_unit[0]
        centre, half = unit * fitted.frame.centre[0], unit * fitted.frame.scale[0]
    else:
        # Beyond 15 standard deviations Chebyshev leaves 0.5%, a mixture of normals next to nothing.
        centre, half = law.mean(), 15 * law.std()
    width = 2 * float(half) / points
    grid = float(centre) - float(half) + width * (np.arange(points) + 0.5)
    return grid, np.exp(law.log_prob(grid)), width


@pytest.mark.parametrize("name", with_density)
def test_density_integrates_to_one(name):
    _, density, width = quadrature(name)
    # The midpoint rule errs by at most width * |jump| at each of up to 100 steps of a histogram.
    assert density.sum() * width == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("name", with_density)
def test_samples_agree_with_the_density(name):
    grid, density, width = quadrature(name)
    cdf = np.cumsum(density) * width
    samples = first_law(name).sample(10_000, seed=1)
    test = stats.kstest(samples, lambda z: np.interp(z, grid + width / 2, cdf))
    # False-alarm rate 1e-4.
    assert test.pvalue > 1e-4


@pytest.mark.parametrize("name", trained_by_likelihood)
def test_the_derivative_of_a_density_is_its_own(name):
    """What regularises a fit is no part of `log_prob`: differences of it are its gradients."""
    (fitted,), query = reward_fit(name).fits, reward_problem(name).queries[0]
    inputs = reward_fit(name).encoder.inputs(
        np.array([query.observation]), np.array([query.action])
    )[0]
    parameters, rest = eqx.partition(fitted.law, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(parameters)
    uniforms = np.random.default_rng(0).random((7, fitted.law.noise_size), np.float32)
    known = fitted.law.condition(inputs)
    returns = jax.jit(jax.vmap(lambda u: fitted.law.draw(known, u)))(uniforms)

    @jax.jit
    def total(values):
        law = eqx.combine(unravel(values), rest)
        return jax.vmap(lambda z: law.log_prob(inputs, z))(returns).sum()

    gradient = jax.jit(jax.grad(total))(flat)
    length = float(np.linalg.norm(gradient))
    step = STRIDE * gradient / length
    # Sums of about ten are rounded by some 1e-6, a thousandth of this difference.
    difference = float(total(flat + step)) - float(total(flat - step))
    assert difference / (2 * STRIDE) == pytest.approx(length, rel=0.02)


@pytest.mark.parametrize("name", without_density)
def test_models_without_a_density_say_so(name):
    with pytest.raises(ModelError, match="no density"):
        first_law(name).log_prob(0.0)


@every_model
def test_gamma_zero_gives_the_distribution_of_rewards(name):
    problem, result = reward_problem(name), reward_fit(name)
    truth, std = problem.returns, problem.returns.std()
    samples = result.returns.samples[:, 0]
    # Five standard errors of the logged rows (false alarm 6e-7), and as much for the fit.
    error = 2 * 5 * std / np.sqrt(ROWS)
    assert abs(samples.mean() - truth.mean()) < error
    if CASES[name].knows in ("law", "moments"):
        assert abs(samples.std() - std) < error
    if CASES[name].knows == "law":
        floor = sampling_floor(
            wasserstein, lambda generator, n: generator.choice(truth, n), (ROWS, 50_000)
        )
        # The floor is what the rows allow; 0.04 std is the fit's own error (grid, 30 quantiles).
        assert wasserstein(samples, truth) < floor.mean + 5 * floor.std + 0.04 * std


@every_model
def test_each_observation_and_action_has_its_own_distribution(name):
    problem, result = reward_problem(name), reward_fit(name)
    rows_each = ROWS / len(problem.queries)
    for observation, action, mean in problem.queries:
        found = result.at(observation, action).sample(SAMPLE_BLOCK, seed=1).mean()
        # Five standard errors of the rows at one pair; the reward's std there is at most 1.06. That
        # of as many draws as are made at once is a quarter of one.
        assert abs(found - mean) < 5 * 1.06 / np.sqrt(rows_each)


@every_model
def test_scaled_rewards_scale_the_distribution(name):
    """Small units, and those of observations and actions: `fitting/test_metamorphic.py`."""
    scale = 1e9
    plain = reward_fit(name).returns
    scaled = reward_fit(name, scale=scale).returns
    assert not reward_fit(name, scale=scale).warnings
    # The same seed and, after division by their size, the same rewards up to a rounding.
    difference = np.abs(scaled.samples / scale - plain.samples)
    assert np.quantile(difference, 0.999) < 1e-2 * plain.std()
    assert scaled.mean() / scale == pytest.approx(plain.mean(), abs=1e-3 * plain.std())
    if CASES[name].density:
        # Densities are per unit of the reward.
        points = plain.quantile([0.2, 0.5, 0.8])
        expected = plain.log_prob(points) - np.log(scale)
        assert np.allclose(scaled.log_prob(scale * points), expected, atol=0.05)


@every_model
def test_shifted_rewards_shift_the_distribution(name):
    plain = reward_fit(name).returns
    shifted = reward_fit(name, shift=5.0).returns
    # The same seed; rewards agree to about 5 * 2^-24 after centring, which training may amplify.
    assert wasserstein(shifted.samples - 5.0, plain.samples) < 0.05 * plain.std()


@every_model
def test_order_of_rows_does_not_matter(name):
    plain = reward_fit(name).returns
    shuffled = reward_fit(name, order_seed=1).returns
    # Other batches, the same data: only the noise of training differs, not that of the rows.
    assert wasserstein(shuffled.samples, plain.samples) < 0.06 * plain.std()


# The std that two models are told: that of a law, and that of four rewards.
KNOWN_NOISE = {"reward-mixture": MIXTURE_STD, "linear-quadratic": 2 * LINEAR_STD}


@every_model
def test_deterministic_chain_gives_a_point_mass(name):
    # Each stage starts from a model that has narrowed to points in another frame.
    problem = CASES[name].world.chain()
    case, spread = CASES[name], problem.returns.std()
    result = fit(problem, case.spec(1.0, 0.0), case.objective)
    for observation, action, mean in problem.queries:
        law = result.at(observation, action)
        # Measured over seeds: up to 0.05 for the mixture, whose last 1% of stray weight goes
        # slowly, and 0.01 for the others.
        assert abs(law.mean() - mean) < 0.1 * spread
        if CASES[name].knows != "mean":
            # A mixture's least std is 0.01 of the spread a stage, a grid's cell 0.02: 0.05 in all
            # for four stages. Twice that for the bulk; the std also sees the stray weight.
            bulk = np.subtract(*law.quantile([0.95, 0.05])) / 3.29
            noise = 1.02 * KNOWN_NOISE.get(name, 0)
            assert bulk < noise + 0.1 * spread
            assert law.std() < noise + 0.35 * spread


@every_model
def test_on_policy_data_agree_with_the_observed_returns(name):
    problem, case = CASES[name].world.episodes(), CASES[name]
    observed, std = problem.returns, problem.returns.std()
    samples = fit(problem, case.spec(1.0, 0.0), case.objective).returns.samples[:, 0]
    # Both use the same episodes, so five standard errors (false alarm 6e-7) leave room for the fit.
    error = 5 * std / np.sqrt(len(observed))
    assert abs(samples.mean() - observed.mean()) < error
    if case.knows in ("law", "moments"):
        assert abs(samples.std() - std) < error
    if case.knows == "law":
        assert wasserstein(samples, observed) < error


# Diffusion draws by many steps of a network, and a discounted fit takes minutes.
@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if case.world is TABULAR and n != "diffusion"]
)
def test_discounted_survival(name):
    """Constant rewards: the first stage knows a point mass, and all spread comes from the ends."""
    problem, case, gamma = TABULAR.survival(0.9), CASES[name], 0.9
    # 0.9^60 times a return of at most 10 is 0.02, which is 0.01 of its standard deviation.
    recipe = fle.Recipe(steps=250, batch_size=100, learning_rate=0.01, draws=4)
    result = fle.evaluate(
        problem.data,
        problem.policy,
        gamma=gamma,
        stages=60,
        model=case.spec(1.0, 0.0),
        recipe=recipe,
    )
    truth, samples = problem.returns, result.returns.samples[:, 0]
    std = truth.std()
    # Quantiles and grids cut the law into steps, and the mixture has 10 components for dozens of
    # sharp returns: over 56 fits up to 0.06 of the spread in the mean and 0.11 in W1, where most
    # have 0.01 and 0.05. The others have at most 0.03 in the mean.
    assert abs(samples.mean() - truth.mean()) < 0.08 * std
    if case.knows in ("law", "moments"):
        assert samples.std() == pytest.approx(std, rel=0.05)
    if case.knows == "law":
        assert wasserstein(samples, truth) < 0.12 * std
