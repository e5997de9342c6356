import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import build

from fle.errors import ModelError
from fle.models.families.ddpm import DDPM


class GaussianDenoiser(eqx.Module):
    """The best prediction of the noise in z_t, where z ~ N(mean, std²).

    z_t has mean √ᾱ m and variance v = ᾱ s² + 1 - ᾱ, and its covariance with ε is √(1 - ᾱ), so
    E[ε | z_t] = √(1 - ᾱ) (z_t - √ᾱ m) / v.
    """

    kept: jax.Array
    mean: jax.Array
    std: float

    def project(self, inputs):
        return jnp.zeros(self.mean.size + 1)

    def finish(self, sums):
        disturbed, time = sums[:-1], sums[-1]
        kept = self.kept[jnp.round(time * self.kept.size).astype(int) - 1]
        variance = kept * self.std**2 + 1 - kept
        return jnp.sqrt(1 - kept) * (disturbed - jnp.sqrt(kept) * self.mean) / variance


def gaussian_law(mean, std, spec=None):
    spec = spec or DDPM()
    d = len(mean)
    blank = build(spec, d)
    kept = jnp.asarray(np.cumprod(1 - np.array(blank.variances)), jnp.float32)
    network = GaussianDenoiser(kept, jnp.asarray(mean, jnp.float32), std)
    return eqx.tree_at(lambda m: (m.network, m.position), blank, (network, jnp.eye(d + 1)))


def draws(law, n, seed=0):
    uniforms = np.random.default_rng(seed).random((n, law.noise_size)).clip(1e-6, 1 - 1e-6)
    context = law.condition(jnp.zeros(2))
    drawn = jax.jit(jax.vmap(lambda u: law.draw(context, u)))(jnp.asarray(uniforms, jnp.float32))
    return np.asarray(drawn, float)


def moments_of_sampling(mean, std, variances):
    """Mean and variance after every step is an affine map with known noise, in float64."""
    kept = np.cumprod(1 - np.array(variances))
    m, v = 0.0, 1.0
    for t in reversed(range(len(variances))):
        beta = variances[t]
        total = kept[t] * std**2 + 1 - kept[t]
        factor = (1 - beta / total) / np.sqrt(1 - beta)
        shift = beta * np.sqrt(kept[t]) * mean / total / np.sqrt(1 - beta)
        m, v = factor * m + shift, factor**2 * v + (beta if t else 0.0)
    return m, v


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.0, 0.1), (-0.5, 2.0)])
def test_the_best_denoiser_of_a_gaussian_samples_that_gaussian(mean, std):
    law = gaussian_law([mean], std)
    expected = moments_of_sampling(mean, std, law.variances)
    # What 200 steps lose of the Gaussian itself: under 2% of a deviation, 8% of the variance.
    assert expected[0] == pytest.approx(mean, abs=0.02 * std)
    assert expected[1] == pytest.approx(std**2, rel=0.08)
    n = 20_000
    drawn = draws(law, n)[:, 0]
    # 5 standard errors, false alarm 6e-7 each; a normal's variance has relative error √(2/n).
    assert abs(drawn.mean() - expected[0]) < 5 * np.sqrt(expected[1] / n)
    assert drawn.var() == pytest.approx(expected[1], rel=5 * np.sqrt(2 / n))


def test_a_standard_normal_loses_only_the_last_noise():
    # With z ~ N(0, 1) every z_t is N(0, 1) and a step multiplies it by √(1 - β) and adds β: the
    # variance stays 1, but for the last step, which adds nothing: 1 - β_1.
    assert moments_of_sampling(0.0, 1.0, build(DDPM()).variances)[1] == pytest.approx(0.999)


def test_coordinates_have_noise_of_their_own():
    drawn = draws(gaussian_law([1.0, -1.0], 0.5), 20_000)
    assert np.allclose(drawn.mean(axis=0), [1, -1], atol=0.03)
    # 5 standard errors of a correlation of nothing.
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 5 / np.sqrt(20_000)


def test_the_loss_of_the_best_denoiser_is_the_variance_it_cannot_explain():
    # Var[ε | z_t] = 1 - (1 - ᾱ)/v = ᾱ s²/v, averaged over t.
    std = 0.5
    law = gaussian_law([0.3], std, DDPM(diffusion_steps=20))
    kept = np.cumprod(1 - np.array(law.variances))
    expected = np.mean(kept * std**2 / (kept * std**2 + 1 - kept))
    generator = np.random.default_rng(1)
    n = 100_000
    returns = jnp.asarray(generator.normal(0.3, std, (n, 1)), jnp.float32)
    uniforms = jnp.asarray(generator.random((n, 2)).clip(1e-6, 1 - 1e-6), jnp.float32)
    context = law.condition(jnp.zeros(2))

    def loss(z, u):
        return law.denoising_loss(context, law.disturbed(law, None, z, context, u))

    losses = np.asarray(jax.vmap(loss)(returns, uniforms), float)
    assert abs(losses.mean() - expected) < 5 * losses.std() / np.sqrt(n)


def test_defaults_are_those_of_the_paper():
    law = build(DDPM(), 2)
    assert len(law.variances) == 200
    assert (law.variances[0], law.variances[-1]) == pytest.approx((1e-3, 0.1))
    assert np.allclose(np.diff(law.variances, 2), 0)
    assert [weight.shape for weight in law.network.weights] == [(2, 256), (256, 256), (256, 2)]
    assert law.noise_size == 400


@pytest.mark.parametrize("spec", [{"hidden": ()}, {"first_variance": 0.2}, {"last_variance": 1.0}])
def test_impossible_schedules_are_refused(spec):
    with pytest.raises(ModelError, match="got"):
        DDPM(**spec)
