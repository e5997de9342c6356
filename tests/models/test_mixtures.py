"""Rules for the training of mixtures: values stay, gradients change."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import build, log_prob, loss_of_row

import fle
from fle.models.network import ComponentGradients, Mixture, even_gradients, from_returns, parts
from fle.recipe import ONE_FIT, TUNING, Tuning, usual


def test_the_regulariser_has_the_gradient_of_a_distance_and_no_value():
    logits = jnp.log(jnp.asarray([0.9, 0.1]))
    means, scales = jnp.asarray([2.0, -4.0]), jnp.asarray([0.5, 1.0])

    def away(logits, means, scales):
        mixture = Mixture(jax.nn.log_softmax(logits), (means,), (scales,), ())
        return from_returns(mixture, jnp.asarray([1.0]))

    value, gradients = jax.value_and_grad(away, (0, 1, 2))(logits, means, scales)
    assert value == 0
    # Of -log softmax, averaged: weight minus 1/2. With u = (1 - m)/s = -2 and 5, of
    # log(1 + u^2): -2u/(1 + u^2)/s by the mean, -2u^2/(1 + u^2)/s by the scale, whose log adds 1/s.
    assert np.allclose(gradients[0], [0.4, -0.4])
    assert np.allclose(gradients[1], 0.5 * np.array([4 / 5 / 0.5, -10 / 26]))
    assert np.allclose(gradients[2], 0.5 * np.array([(1 - 8 / 5) / 0.5, 1 - 50 / 26]))


def test_the_regulariser_is_a_mean_over_draws_rows_and_coordinates():
    """A mixture a row, as columns: each is drawn to the returns of its own row."""
    generator = np.random.default_rng(0)
    components, rows, draws = 3, 4, 2
    means = [jnp.asarray(generator.normal(size=(components, rows))) for _ in range(2)]
    scales = [jnp.asarray(generator.uniform(0.5, 2, (components, rows))) for _ in range(2)]
    returns = jnp.asarray(generator.normal(size=(2, draws, rows)))
    weights = jnp.full((components, rows), -np.log(components))

    def away(first):
        mixture = Mixture(weights, (first, means[1]), tuple(scales), ())
        return from_returns(jax.tree.map(lambda a: a[:, None], mixture), returns)

    u = (np.asarray(returns)[0] - np.asarray(means[0])[:, None]) / np.asarray(scales[0])[:, None]
    each = -2 * u / (1 + u**2) / np.asarray(scales[0])[:, None]
    expected = each.sum(axis=1) / (2 * components * rows * draws)
    assert np.allclose(jax.grad(away)(means[0]), expected, atol=1e-6)


@pytest.mark.parametrize("repeats", [1, 60])
def test_autoregressive_components_are_regularised_in_discounted_fits(repeats):
    recipe = usual(repeats=repeats, rows=1000, coordinates=2, tuning=TUNING["autoregressive"])
    law = build(fle.Autoregressive(components=2), recipe=recipe)
    densities = fle.Autoregressive().objective(recipe).log_probs
    # Location, spread, two logits, two offsets, two scales: the second is far, narrow and lost.
    outputs = jnp.asarray([0.0, 0.0, 0.0, -30.0, 0.0, 30.0, 0.0, -5.0])

    def loss(outputs):
        return -densities.of(law.factor(outputs), jnp.asarray([0.5]))

    weight, offset, scale = np.asarray(jax.grad(loss)(outputs))[[3, 5, 7]]
    if repeats == 1:
        assert np.all(np.abs([weight, offset, scale]) < 1e-9)
        return
    # Towards a larger weight, the return, and a wider component: half of log(1 + u^2) + log s, with
    # u = (0.5 - 30)/s, times the prior; the gradient by a mean is evened by its scale.
    prior, s = recipe.component_prior, recipe.scale_floor + np.log1p(np.exp(-5))
    u = (0.5 - 30) / s
    by_scale = (1 - 2 * u**2 / (1 + u**2)) / s / (1 + np.exp(5))
    assert weight == pytest.approx(-prior / 2, rel=1e-3)
    assert offset == pytest.approx(-prior * u / (1 + u**2), rel=1e-3)
    assert scale == pytest.approx(prior * by_scale / 2, rel=1e-3)


@pytest.mark.parametrize("spec", [fle.GMM(hidden=(8,)), fle.Autoregressive(hidden=(8,))])
def test_rules_of_training_do_not_change_the_loss(spec):
    law, target = build(spec, returns=2), jnp.asarray([[0.2, 1.0], [-0.3, 0.1]])
    recipes = [replace(ONE_FIT, component_prior=prior, beta=beta) for prior, beta in RULES]
    losses = [float(loss_of_row(spec, law, target, recipe)) for recipe in recipes]
    logs = [float(log_prob(law, np.zeros(2), z)) for z in np.asarray(target)]
    assert losses == pytest.approx([-np.mean(logs)] * len(RULES), rel=1e-5)


RULES = [(0.0, 0.0), (0.1, 0.0), (0.0, 1.0), (0.1, 0.5)]


def test_a_mixture_is_regularised_at_every_horizon():
    for repeats in (1, 60):
        recipe = usual(repeats=repeats, rows=1000, coordinates=2, tuning=TUNING["gmm"])
        assert recipe.component_prior == 5e-4
        assert fle.GMM().objective(recipe).log_probs == ComponentGradients(5e-4, 0.5)
    assert usual(repeats=1, rows=1000, coordinates=2, tuning=Tuning()).component_prior == 0


@pytest.mark.parametrize(("beta", "expected"), [(0.0, [1, 1]), (0.5, [0.1, 3]), (1.0, [0.01, 9])])
def test_gradients_by_means_go_with_the_scales(beta, expected):
    means, scales = jnp.asarray([2.0, -4.0]), jnp.asarray([0.1, 3.0])
    assert np.array_equal(even_gradients(means, scales, beta), means)
    by_means, by_scales = jax.grad(lambda m, s: even_gradients(m, s, beta).sum(), (0, 1))(
        means, scales
    )
    assert np.allclose(by_means, expected)
    assert np.all(by_scales == 0)


def test_the_regulariser_moves_means_as_evenly_as_the_likelihood_does():
    """A narrow component would otherwise be moved a hundred times as far as returns move it."""
    prior, beta = 0.1, 0.5
    scales = jnp.asarray([0.01, 2.0])

    def added(means):
        mixture = Mixture(jnp.log(jnp.asarray([0.5, 0.5])), (means,), (scales,), ())
        with_it, without = (
            ComponentGradients(p, beta).of(mixture, jnp.zeros(1)) for p in (prior, 0)
        )
        return with_it - without

    means = jnp.asarray([3.0, -4.0])
    # The log density falls by prior times the mean of two log(1 + u^2), u = mean / scale; the
    # gradient by a mean, -prior u/(1 + u^2)/scale, is then multiplied by its scale.
    u = means / scales
    assert np.allclose(jax.grad(added)(means), -prior * u / (1 + u**2))


def test_gradients_of_slices_are_put_where_the_slices_were():
    outputs = jnp.arange(12.0).reshape(6, 2)
    factors = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)))

    def weighed(outputs):
        first, none, rest = parts(outputs, (2, 0, 4))
        assert none.shape == (0, 2)
        return jnp.sum(first * factors[:2]) + jnp.sum(rest * factors[2:])

    assert np.array_equal(jax.grad(weighed)(outputs), factors)
