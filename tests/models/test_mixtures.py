"""Rules for the training of mixtures: values stay, slopes change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fle.models.base import Sizes

import fle
from fle.models.mixtures import drawn_to_standard, even_slopes


def test_components_are_drawn_to_the_standard_without_changing_the_loss():
    logits = jnp.log(jnp.asarray([0.9, 0.1]))
    means, scales = jnp.asarray([2.0, -4.0]), jnp.asarray([0.5, 1.0])

    def pull(logits, means, scales):
        return drawn_to_standard(jax.nn.log_softmax(logits), means, scales)

    value, slopes = jax.value_and_grad(pull, (0, 1, 2))(logits, means, scales)
    assert value == 0
    # Of -log softmax, averaged: weight minus 1/2. Of half a square: the mean; of half the square of
    # a logarithm: log s / s.
    assert np.allclose(slopes[0], [0.4, -0.4])
    assert np.allclose(slopes[1], 0.5 * np.array([2, -4]))
    assert np.allclose(slopes[2], 0.5 * np.array([np.log(0.5) / 0.5, 0]))


@pytest.mark.parametrize("discounted", [False, True])
def test_autoregressive_components_are_drawn_back_in_discounted_fits(discounted):
    sizes = Sizes(2, 1, 1, False, False, discounted)
    model = fle.Autoregressive(components=2).build(sizes, np.random.default_rng(0))
    # Location, spread, two logits, two offsets, two scales: the second is far, narrow and lost.
    outputs = jnp.asarray([0.0, 0.0, 0.0, -30.0, 0.0, 30.0, 0.0, -5.0])

    def loss(outputs):
        return -model.log_prob_of_one(model.law(outputs), jnp.asarray(0.5))

    slopes = jax.grad(loss)(outputs)
    # Towards a larger weight, the middle, and a wider law.
    lost = np.asarray(slopes)[[3, 5, 7]] * [-1, 1, -1]
    assert np.all(lost > 1e-5) if discounted else np.all(np.abs(lost) < 1e-9)


def test_a_pull_does_not_change_the_density():
    sizes = Sizes(1, 1, 2, False, False, discounted=True)
    plain, pulled = (
        fle.Autoregressive(pull=pull, hidden=(8,)).build(sizes, np.random.default_rng(0))
        for pull in (0.0, 0.1)
    )
    inputs, returns = jnp.asarray([0.3, -0.7]), jnp.asarray([0.2, 1.0])
    assert plain.log_prob(inputs, returns) == pulled.log_prob(inputs, returns)


@pytest.mark.parametrize(("beta", "expected"), [(0.0, [1, 1]), (0.5, [0.1, 3]), (1.0, [0.01, 9])])
def test_slopes_by_means_go_with_the_scales(beta, expected):
    means, scales = jnp.asarray([2.0, -4.0]), jnp.asarray([0.1, 3.0])
    assert np.array_equal(even_slopes(means, scales, beta), means)
    by_means, by_scales = jax.grad(lambda m, s: even_slopes(m, s, beta).sum(), (0, 1))(
        means, scales
    )
    assert np.allclose(by_means, expected)
    assert np.all(by_scales == 0)
