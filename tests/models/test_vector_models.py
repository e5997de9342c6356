"""Densities of the models for vector returns against integration, draws and closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import paramax
import pytest
from flowjax.bijections import RationalQuadraticSpline
from model_outputs import build, log_prob, transition
from scipy import stats

import fle
from fle.models.families.diffusion import HIGHEST, LOWEST, ladder
from fle.models.splines import Spline
from fle.recipe import ONE_FIT

SPECS = {
    "autoregressive": fle.Autoregressive(components=3, hidden=(8,)),
    "coupling flow": fle.Flow("coupling", layers=2, knots=6, hidden=8, context=(8, 4)),
    "autoregressive flow": fle.Flow("autoregressive", knots=6, hidden=8),
    "diffusion": fle.Diffusion(hidden=(16, 16), sampling_steps=64),
}
INPUTS = jnp.asarray([0.3, -0.7])


def shaken(spec, returns, size=None):
    """A model away from its start: every parameter moved at random.

    Splines and denoisers are moved less: wild ones have cliffs that no grid and no sampler of few
    steps can follow.
    """
    if size is None:
        size = 0.3 if isinstance(spec, fle.Autoregressive) else 0.1
    model = build(spec, returns)
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    generator = np.random.default_rng(1)
    moved = jax.tree.map(
        lambda a: np.asarray(a) + generator.normal(0, size, a.shape).astype(a.dtype), arrays
    )
    return eqx.combine(moved, static)


def densities(model, points):
    logs = jax.jit(jax.vmap(lambda z: model.log_prob(INPUTS, z)))
    return np.exp(np.asarray(logs(jnp.asarray(points, jnp.float32)), float))


def draws(model, number, returns, seed=0):
    uniforms = np.random.default_rng(seed).uniform(1e-6, 1 - 1e-6, (number, model.noise_size))
    sample = jax.jit(jax.vmap(lambda u: model.sample(INPUTS, u)))
    return np.asarray(sample(jnp.asarray(uniforms, jnp.float32)), float).reshape(-1, returns)


@pytest.mark.parametrize("name", SPECS)
def test_density_of_a_scalar_return(name):
    model = shaken(SPECS[name], 1)
    samples = draws(model, 20_000, 1)[:, 0]
    reach = 2 * np.abs(samples).max()
    points = 1_000
    width = 2 * reach / points
    grid = -reach + width * (np.arange(points) + 0.5)
    density = densities(model, grid[:, None])
    assert density.sum() * width == pytest.approx(1, abs=5e-3)
    cdf = np.cumsum(density) * width
    # False-alarm rate 1e-4.
    assert stats.kstest(samples, lambda z: np.interp(z, grid + width / 2, cdf)).pvalue > 1e-4


@pytest.mark.parametrize("name", SPECS)
def test_density_of_a_pair(name):
    model = shaken(SPECS[name], 2)
    samples = draws(model, 20_000, 2)
    low, high = samples.min(axis=0) - 0.5, samples.max(axis=0) + 0.5
    fine, coarse = 96, 12
    widths = (high - low) / fine
    axes = [a + w * (np.arange(fine) + 0.5) for a, w in zip(low, widths, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    masses = (densities(model, points) * widths.prod()).reshape(fine, fine)
    assert masses.sum() == pytest.approx(1, abs=0.02)
    cells = masses.reshape(coarse, fine // coarse, coarse, -1).sum(axis=(1, 3)) / masses.sum()
    edges = [np.linspace(a, b, coarse + 1) for a, b in zip(low, high, strict=True)]
    counts = np.histogram2d(*samples.T, bins=edges)[0]
    share = counts / len(samples)
    # Five standard errors of each cell's share, and 2% of it for the midpoint rule.
    allowed = 5 * np.sqrt(np.maximum(cells, 1e-4) / len(samples)) + 0.02 * cells
    assert np.all(np.abs(share - cells) < allowed)


def test_a_coordinate_depends_on_those_before_it():
    model = shaken(SPECS["autoregressive"], 3, size=1.0)
    score = jax.grad(lambda z: log_prob(model, INPUTS, z))(np.float32([0.1, 0.2, 0.3]))
    assert np.all(np.abs(score) > 1e-3)
    samples = draws(model, 20_000, 3)
    # The first coordinate's draws do not see the later networks: their noise is their own.
    again = eqx.tree_at(
        lambda m: m.conditionals.networks[2].biases[-1], model, replace_fn=lambda b: b + 1
    )
    assert np.array_equal(draws(again, 100, 3)[:, :2], samples[:100, :2])


def test_diffusion_of_a_normal_law_is_exact():
    """With network outputs of zero the denoiser is that of N(0, 1): D(z; s) = z / (1 + s²)."""
    model = build(fle.Diffusion(hidden=(4,)), 1)
    model = eqx.tree_at(lambda m: m.network.weights[-1], model, jnp.zeros((4, 1)))
    points = np.linspace(-3, 3, 13)
    # Starting from N(0, HIGHEST²) instead of N(0, HIGHEST² + 1) narrows by 1 / (2 HIGHEST²).
    assert np.allclose(
        np.log(densities(model, points[:, None])), stats.norm.logpdf(points), atol=0.02
    )
    samples = draws(model, 20_000, 1)[:, 0]
    assert stats.kstest(samples, "norm").pvalue > 1e-4


def test_ladder_of_noise_levels():
    levels = ladder(16)
    assert levels[0] == pytest.approx(HIGHEST)
    assert levels[-1] == pytest.approx(LOWEST)
    assert np.all(np.diff(levels) < 0)


def test_the_spline_equals_that_of_flowjax():
    generator = np.random.default_rng(1)

    def moved(kind):
        arrays, static = eqx.partition(kind(knots=8, interval=3.0), eqx.is_inexact_array)
        shifts = iter(noise)
        return paramax.unwrap(
            eqx.combine(jax.tree.map(lambda a: a + next(shifts)[: a.size], arrays), static)
        )

    noise = [jnp.asarray(generator.normal(size=20), jnp.float32) for _ in range(3)]
    ours, theirs = moved(Spline), moved(RationalQuadraticSpline)
    points = jnp.linspace(-4, 4, 801)
    for way in ("transform_and_log_det", "inverse_and_log_det"):
        mine, other = (jax.jit(jax.vmap(getattr(spline, way)))(points) for spline in (ours, theirs))
        assert np.allclose(mine, other, atol=1e-5)


def test_an_unknown_kind_of_flow():
    with pytest.raises(fle.FLEError, match="coupling"):
        fle.Flow(kind="planar")


@pytest.mark.parametrize("name", SPECS)
def test_loss_of_a_batch_is_the_mean_over_its_rows(name):
    law, objective = shaken(SPECS[name], 2), SPECS[name].objective(ONE_FIT)
    rows, draws = 5, 3
    generator = np.random.default_rng(2)
    inputs = jnp.asarray(generator.standard_normal((rows, 2)), jnp.float32)
    sizes = objective.prepare_noise_size(law), objective.target_noise_size(law)
    row = transition([0.2, -0.4], 0.9)._replace(
        noise=jnp.asarray(generator.uniform(size=sizes[0]), jnp.float32)
    )
    uniforms = jnp.asarray(generator.uniform(size=(rows, sizes[1])), jnp.float32)

    @eqx.filter_jit
    def both(law):
        prepared = objective.prepare(law, law, row)
        targets = jax.vmap(lambda u: objective.target(law, law, prepared, u, draws))(uniforms)
        alone = jax.tree.map(lambda a: a[:, None], (inputs, targets))
        losses = jax.vmap(lambda x, z: objective.loss(law, x, z))(*alone)
        return losses, objective.loss(law, inputs, targets)

    losses, together = both(law)
    assert np.ptp(losses) > 0.01
    assert float(together) == pytest.approx(float(losses.mean()), rel=1e-5)
