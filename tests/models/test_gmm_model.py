from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import build, condition, draw, log_prob, loss_of_row, with_outputs
from scipy import stats
from scipy.special import logsumexp

import fle
from fle.models.law import Sizes
from fle.recipe import TUNING, usual

FLOOR = 0.01
# As a mixture is fitted with a finite horizon.
RECIPE = usual(repeats=1, rows=1000, coordinates=2, tuning=TUNING["gmm"])


def gmm_with(weights, means, factors):
    """The mixture sum_k w_k N(mu_k, L_k L_k^T), set through the network's outputs."""
    weights, means, factors = (np.asarray(values, float) for values in (weights, means, factors))
    k, d = means.shape
    diagonal = np.log(np.expm1(factors[:, range(d), range(d)] - FLOOR))  # inverse softplus
    below = factors[:, *np.tril_indices(d, -1)]
    location, spread = np.full(d, 0.3), np.full(d, -0.2)  # shared by all components
    outputs = [location, spread, np.log(weights) + 1.7, means - location, diagonal - spread, below]
    law = build(fle.GMM(components=k, hidden=()), d, replace(RECIPE, scale_floor=FLOOR))
    return with_outputs(law, np.concatenate([part.reshape(-1) for part in outputs]))


@eqx.filter_jit
def gradient_of_loss(law, target, recipe=RECIPE):
    """By the outputs of the network."""
    gradients = jax.grad(lambda m: loss_of_row(fle.GMM(), m, target, recipe))(law)
    return gradients.network.biases[-1]


def random_mixture(k, d, seed):
    generator = np.random.default_rng(seed)
    factors = np.tril(generator.normal(0, 0.5, (k, d, d)), -1)
    factors[:, range(d), range(d)] = generator.uniform(0.2, 1.0, (k, d))
    return generator.dirichlet(np.ones(k)), generator.normal(0, 1, (k, d)), factors


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_log_prob_equals_scipy(d):
    weights, means, factors = random_mixture(3, d, seed=d)
    law = gmm_with(weights, means, factors)
    points = np.random.default_rng(10).normal(0, 1.5, (50, d))
    logs = [
        np.log(w) + stats.multivariate_normal(m, f @ f.T).logpdf(points)
        for w, m, f in zip(weights, means, factors, strict=True)
    ]
    log_probs = jax.vmap(lambda z: log_prob(law, np.zeros(2), z))
    ours = log_probs(np.asarray(points, np.float32))
    assert np.allclose(ours, logsumexp(logs, axis=0), rtol=1e-3, atol=1e-3)


def test_draws_have_the_covariance_of_the_mixture():
    weights, means, factors = random_mixture(2, 3, seed=0)
    law = gmm_with(weights, means, factors)
    n = 40_000
    uniforms = np.random.default_rng(1).random((n, law.noise_size)).clip(1e-6, 1 - 1e-6)
    mixture = condition(law, np.zeros(2))
    draws = jax.jit(jax.vmap(lambda u: law.draw(mixture, u)))(jnp.asarray(uniforms, jnp.float32))
    mean = weights @ means
    # Law of total covariance: E[L L^T] + Cov[mu].
    covariance = np.einsum("k,kij,klj->il", weights, factors, factors)
    covariance += np.einsum("k,ki,kj->ij", weights, means - mean, means - mean)
    std = np.sqrt(np.diag(covariance))
    # 5 standard errors (false alarm 6e-7); Var[x y] <= 3 var x var y for normals, and for mixtures.
    assert np.all(np.abs(np.mean(draws, axis=0) - mean) < 5 * std / np.sqrt(n))
    error = np.abs(np.cov(draws, rowvar=False) - covariance)
    assert np.all(error < 5 * np.sqrt(3 / n) * np.outer(std, std))


def test_draw_is_the_inverse_distribution_function_by_hand():
    # Weights 1/4, 3/4 at means 0 and 10 with std 2: levels below 1/4 pick the first. The normal
    # quantile of 0.975 is 1.96.
    law = gmm_with([0.25, 0.75], [[0.0], [10.0]], [[[2.0]], [[2.0]]])
    mixture = condition(law, np.zeros(2))
    low, high = (float(draw(law, mixture, np.array(u))[0]) for u in ([0.2, 0.975], [0.3, 0.5]))
    assert low == pytest.approx(3.92, abs=1e-2)
    assert high == pytest.approx(10.0, abs=1e-3)


def test_a_component_is_never_narrower_than_the_floor():
    law = build(fle.GMM(components=2, hidden=()), recipe=replace(RECIPE, scale_floor=0.05))
    # Outputs: location, spread, 2 logits, 2 offsets, 2 diagonals, nothing below.
    law = with_outputs(law, [0, -100, 0, 0, 0, 0, 0, 0])
    assert np.allclose(condition(law, np.zeros(2)).diagonal, 0.05)


def test_a_fresh_mixture_is_roughly_standard_normal():
    # Ten means at the quantiles 0.05, 0.15, ... have variance 0.88; softplus(0) + 0.01 = 0.703
    # adds 0.49.
    law = build(fle.GMM(components=10, hidden=()))
    mixture = eqx.filter_jit(lambda law: law.mixture(law.network(np.zeros(2))))(law)
    means, widths = np.asarray(mixture.means[0]), np.asarray(mixture.diagonal[0])
    assert means.mean() == pytest.approx(0, abs=1e-5)
    variance = means.var() + np.mean(widths**2)
    assert variance == pytest.approx(0.88 + 0.49, abs=0.02)


@pytest.mark.parametrize("spec", [fle.GMM(), fle.Gaussian()])
@pytest.mark.parametrize(("repeats", "trend"), [(1, True), (60, False)])
def test_only_finite_horizons_have_a_trend(spec, repeats, trend):
    recipe = usual(repeats=repeats, rows=1000, coordinates=4, tuning=spec.usual_tuning)
    assert recipe.trend == trend
    law = spec.build(Sizes(3, 1, 2, False, False), recipe, np.random.default_rng(0))
    # Two locations, four inputs.
    assert law.network.linear.size == (2 * 4 if trend else 0)


def test_the_loss_is_the_negative_log_likelihood():
    law = gmm_with([0.8, 0.2], [[0.0], [3.0]], [[[0.5]], [[0.1]]])
    target = np.array([[0.2], [-1.0]])
    logs = [log_prob(law, np.zeros(2), z) for z in target]
    assert loss_of_row(fle.GMM(), law, target, RECIPE) == pytest.approx(-np.mean(logs), rel=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_loss_of_a_batch_is_the_likelihood_of_its_rows(d):
    generator = np.random.default_rng(d)
    spec = fle.GMM(components=3, hidden=(8,))
    law = spec.build(Sizes(2, 1, d, False, False), RECIPE, generator)
    law = jax.tree.map(
        lambda a: np.float32(np.asarray(a) + 0.3 * generator.standard_normal(a.shape)), law
    )
    inputs, targets = (
        jnp.asarray(generator.standard_normal(shape), jnp.float32) for shape in ((5, 3), (5, 4, d))
    )

    @eqx.filter_jit
    def both(law):
        logs = jax.vmap(lambda x, zs: jax.vmap(lambda z: law.log_prob(x, z))(zs))(inputs, targets)
        return logs, spec.objective(RECIPE).loss(law, inputs, targets)

    logs, loss = (np.asarray(values) for values in both(law))
    assert np.ptp(logs) > 0.1
    assert loss == pytest.approx(-np.mean(logs), rel=1e-5)


def test_gradients_by_means_are_as_steep_as_their_noise():
    # Where one component explains all, the gradient of -log N(z; m, s²) by m is (m - z)/s².
    law = gmm_with([1.0], [[1.0]], [[[0.1]]])
    for beta, gradient in ((0.0, 100.0), (0.5, 10.0), (1.0, 1.0)):
        recipe = replace(RECIPE, component_prior=0.0, beta=beta)
        outputs = gradient_of_loss(law, jnp.zeros((1, 1)), recipe)
        assert outputs[3] == pytest.approx(gradient, rel=2e-3)


def test_the_gradient_of_the_density_is_its_own():
    # What is done for training has no part in the density: (z - m)/s² = -100 at z = 0.
    law = gmm_with([1.0], [[1.0]], [[[0.1]]])
    gradients = jax.grad(lambda m: log_prob(m, np.zeros(2), np.zeros(1)))(law)
    assert gradients.network.biases[-1][3] == pytest.approx(-100.0, rel=2e-3)


def test_a_component_without_returns_comes_back():
    law = gmm_with([1 - 1e-9, 1e-9], [[0.0], [30.0]], [[[1.0]], [[0.02]]])
    outputs = gradient_of_loss(law, jnp.asarray([[-1.0], [1.0]]))
    # Outputs: location, spread, two logits, two offsets, two scales; the second is far and narrow.
    assert outputs[3] < 0
    assert outputs[5] > 0
    assert outputs[7] < 0
