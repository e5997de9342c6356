"""The energy distance as an objective: least at the truth, and the whole gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import condition
from scipy import stats

import fle
from fle.errors import ModelError, SettingsError
from fle.models.law import Sizes, shifted_lattice
from fle.models.objectives import EnergyDistance, EnergyTargets
from fle.recipe import ONE_FIT, resolve

INPUTS = jnp.zeros((1, 2))


def law_of(spec, dim=1, seed=0):
    sizes = Sizes(1, 1, dim, False, False)
    return spec.build(sizes, ONE_FIT, np.random.default_rng(seed))


@eqx.filter_jit
def loss(law, returns, seed=0, points=256):
    """With many points, of one row."""
    shifts = jax.random.uniform(jax.random.key(seed), (2, 1, law.noise_size))
    objective = EnergyDistance(points=points)
    return objective.loss(law, INPUTS, EnergyTargets(returns[None], *shifts))


def test_the_loss_is_that_of_the_formula():
    """A standard normal against z = 0 and z = 1: 2 E|X - z| - E|X - X'|, by hand.

    E|X| = sqrt(2/pi), E|X - 1| = sqrt(2/pi) e^(-1/2) + 1 - 2 Phi(-1), E|X - X'| = 2/sqrt(pi).
    Both lattices have 256 evenly spaced points: an error of the order of 1/256.
    """
    law = law_of(fle.Gaussian(hidden=()))
    first = np.sqrt(2 / np.pi)
    second = first * np.exp(-0.5) + 1 - 2 * stats.norm.cdf(-1)
    exact = first + second - 2 / np.sqrt(np.pi)
    assert float(loss(law, jnp.array([[0.0], [1.0]]))) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("dim", [1, 2])
def test_weighted_draws_are_those_of_the_law(dim):
    """Mean and covariance of a mixture's weighted draws against those of its plain ones.

    200,000 draws each: five standard errors, one false alarm in 100,000 for each of 6 figures.
    """
    law = law_of(fle.GMM(components=3, hidden=()), dim, seed=3)
    law = jax.tree.map(lambda a: np.asarray(a) + np.float32(0.3) if np.ndim(a) else a, law)

    @eqx.filter_jit
    def drawn(law, uniforms):
        known = law.condition(INPUTS[0])
        plain = jax.vmap(lambda u: law.draw(known, u))(uniforms)
        return plain, *law.weighted_draws(known, uniforms)

    uniforms = np.random.default_rng(1).uniform(1e-6, 1, (200_000, law.noise_size))
    plain, draws, weights = map(np.asarray, drawn(law, np.float32(uniforms)))
    assert weights.sum() == pytest.approx(1, abs=1e-3)
    error = 5 * plain.std(axis=0) / np.sqrt(len(plain))
    assert np.all(np.abs(weights @ draws - plain.mean(axis=0)) < 2 * error)
    square = (plain - plain.mean(axis=0)) ** 2
    spread = weights @ (draws - plain.mean(axis=0)) ** 2
    assert np.all(np.abs(spread - square.mean(axis=0)) < 10 * square.std(axis=0) / np.sqrt(2e5))


def test_the_gradient_reaches_the_weights_of_a_mixture():
    law = law_of(fle.GMM(components=2, hidden=()), seed=0)
    gradient = jax.grad(lambda bias: loss(_with_bias(law, bias), jnp.array([[2.0]])))(
        law.network.biases[-1]
    )
    # Outputs: location, spread, two logits, and the rest of both components.
    logits = np.asarray(gradient)[2:4]
    assert np.abs(logits).min() > 1e-3
    assert logits.sum() == pytest.approx(0, abs=1e-4)


def _with_bias(law, bias):
    return eqx.tree_at(lambda one: one.network.biases[-1], law, bias)


def test_lattices_of_a_pair_have_shifts_of_their_own():
    """Draws of one lattice repel each other; those of two must not: E|X - X'| = 2/sqrt(pi)."""
    law = law_of(fle.Gaussian(hidden=()))
    known = condition(law, INPUTS[0])
    shifts = jax.random.uniform(jax.random.key(0), (4_000, 2, 1))

    def apart(shift):
        one, other = (law.weighted_draws(known, shifted_lattice(s, 2))[0] for s in shift)
        return jnp.mean(jnp.abs(one - other.T))

    found = np.asarray(jax.jit(jax.vmap(apart))(shifts))
    # Five standard errors: one false alarm in a million.
    assert abs(found.mean() - 2 / np.sqrt(np.pi)) < 5 * found.std() / np.sqrt(len(found))


def test_models_without_it_say_so():
    energy = resolve(fle.Recipe(objective="energy"), ONE_FIT)
    with pytest.raises(SettingsError, match="fitted at once"):
        fle.LinearQuadratic(noise_std=1.0).fitted_by(energy)
    law = law_of(fle.Histogram(bins=4, hidden=()))
    with pytest.raises(ModelError, match="cannot be differentiated"):
        loss(law, jnp.array([[0.0]]))
    with pytest.raises(SettingsError, match="objective: expected"):
        fle.Recipe(objective="other")


def test_an_evaluation_by_energy():
    """Two arms, rewards N(0, 1) and N(3, 0.25²), each taken half the time: a mixture of both.

    2,000 rows: the mean has a standard error of 0.05, the tolerance is that of a short fit.
    """
    generator = np.random.default_rng(0)
    actions = generator.integers(2, size=2_000)
    noise = generator.normal(size=2_000)
    rewards = np.where(actions == 1, 3 + 0.25 * noise, noise)
    data = fle.Dataset(
        observations=np.zeros(2_000, int),
        actions=actions,
        rewards=rewards,
        terminations=np.ones(2_000, bool),
        next_observations=np.zeros(2_000, int),
        number_of_actions=2,
        initial_observations=np.zeros(1, int),
    )
    result = fle.evaluate(
        data,
        np.array([0.5, 0.5]),
        horizon=1,
        model=fle.GMM(components=2, hidden=()),
        recipe={"objective": "energy", "steps": 1_000},
    )
    high = result.at(0, 1)
    assert float(high.mean()) == pytest.approx(3.0, abs=0.1)
    assert float(high.std()) == pytest.approx(0.25, abs=0.08)
    assert float(result.at(0, 0).std()) == pytest.approx(1.0, abs=0.12)
