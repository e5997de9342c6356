"""What the models of vector returns promise in two dimensions."""

import numpy as np
import pytest
from contract_models import ROWS, SMALL
from scipy import stats

import fle

MODELS = {
    "gmm": fle.GMM(hidden=SMALL),
    "autoregressive": fle.Autoregressive(hidden=SMALL),
    "flow": fle.Flow(hidden=32),
    "coupling flow": fle.Flow("coupling", layers=2, knots=8, hidden=16, context=(16, 8)),
    "diffusion": fle.Diffusion(hidden=SMALL, sampling_steps=32),
    "histogram": fle.Histogram(bins=20, hidden=SMALL),
    "categorical": fle.Categorical(atoms=21, hidden=SMALL),
}
RECIPE = fle.Recipe(
    steps=600, batch_size=250, learning_rate=3e-3, weight_decay=0.0, draws=4, start="fresh"
)
CORRELATION = 0.8
CELLS, PER_CELL = 16, 8


def two_rewards(scales=(1.0, 1.0)):
    """One state and action; the first reward is ±1 plus noise, the second follows it."""
    generator = np.random.default_rng(0)
    first = generator.choice([-1.0, 1.0], ROWS) + generator.normal(0, 0.3, ROWS)
    first /= np.sqrt(1.09)
    second = CORRELATION * first + np.sqrt(1 - CORRELATION**2) * generator.normal(size=ROWS)
    return fle.Dataset(
        observations=np.zeros(ROWS, int),
        actions=np.zeros(ROWS, int),
        rewards=np.stack([first, second], axis=1) * scales,
        next_observations=np.zeros(ROWS, int),
        terminations=np.ones(ROWS, bool),
        truncations=np.zeros(ROWS, bool),
        reward_names=("first", "second"),
    )


def fit(name, scales=(1.0, 1.0)):
    return fle.evaluate(two_rewards(scales), [1.0], gamma=0.0, model=MODELS[name], recipe=RECIPE)


@pytest.fixture(scope="module", params=MODELS)
def named_fit(request):
    return request.param, fit(request.param)


def cell_masses(result):
    """Edges of a grid over the range of the model, and its density summed over the cells."""
    law = result.at(0, 0)
    (fitted,) = result.fits
    unit = result.encoder.reward_unit
    half = np.asarray(fitted.frame.scale) * unit
    if not isinstance(result.model, fle.Histogram):
        half = 8 * half
    centre = np.asarray(fitted.frame.centre) * unit
    fine = CELLS * PER_CELL
    axes = [
        c - h + 2 * h / fine * (np.arange(fine) + 0.5) for c, h in zip(centre, half, strict=True)
    ]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    masses = np.exp(law.log_prob(points)) * np.prod(2 * half / fine)
    masses = masses.reshape(CELLS, PER_CELL, CELLS, PER_CELL).sum(axis=(1, 3))
    edges = [np.linspace(c - h, c + h, CELLS + 1) for c, h in zip(centre, half, strict=True)]
    return edges, masses


def test_density_in_two_dimensions(named_fit):
    name, result = named_fit
    if name == "categorical":
        pytest.skip("has no density")
    edges, masses = cell_masses(result)
    # A histogram is constant on 20 x 20 cells, seen by 128 x 128 points: the midpoint rule errs
    # where their edges differ, by at most 1 point in 6.4 at a cell's side.
    assert masses.sum() == pytest.approx(1, abs=0.02)
    samples = result.at(0, 0).sample(10_000, seed=1)
    counts = np.histogram2d(*samples.T, bins=edges)[0]
    assert counts.sum() == len(samples)
    expected = masses / masses.sum() * len(samples)
    large = expected >= 10
    observed = np.append(counts[large], counts[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum())
    # False-alarm rate 1e-4, were the masses exact.
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


def test_joint_distribution_in_two_dimensions(named_fit):
    name, result = named_fit
    returns = result.returns
    # 5 standard errors of 4000 rows, false alarm 6e-7 a number, and as much for the fit; a cell
    # of a 20-cell grid over about 6 std is 0.3 wide and adds 0.3²/12 to the variance, a projection
    # on atoms of this distance at most 0.3²/4.
    error = 2 * 5 / np.sqrt(ROWS)
    coarse = 0.3**2 / 4 if name in ("histogram", "categorical") else 0
    assert returns.names == ("first", "second")
    assert np.all(np.abs(returns.mean()) < error)
    assert np.all(np.abs(returns.variance() - 1) < np.sqrt(2) * error + coarse)
    assert abs(returns.correlation()[0, 1] - CORRELATION) < error * (1 - CORRELATION**2) + coarse
    both = two_rewards().rewards
    truth = np.mean((both[:, 0] < 0) & (both[:, 1] < 0))
    assert abs(returns.probability(below=(0, 0)) - truth) < 0.06


def test_coordinates_scale_one_by_one(named_fit):
    name, result = named_fit
    scales = np.array([1e6, 1e-6])
    plain, scaled = result.returns, fit(name, scales).returns
    assert np.allclose(scaled.mean() / scales, plain.mean(), atol=1e-2)
    assert np.allclose(scaled.std() / scales, plain.std(), rtol=1e-2)
    assert scaled.correlation()[0, 1] == pytest.approx(plain.correlation()[0, 1], abs=1e-2)
