"""What a diffusion is trained on, and what it samples if its denoiser is right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fle.models.families.diffusion import Diffusion, DiffusionLaw
from fle.models.law import Sizes
from fle.models.objectives import NextLaws
from fle.recipe import ONE_FIT

MEAN, STD = jnp.array([0.5, -1.0]), 0.7
REWARD = jnp.array([0.2, 0.1])


class GaussianDenoiser(DiffusionLaw):
    """The exact denoiser of N(MEAN, STD²), whatever the input."""

    def denoise(self, context, returns, level):
        return MEAN + STD**2 / (STD**2 + level**2) * (returns - MEAN)


def cases(discount, number=1000):
    """Returns r + discount * y, and the targets made of them."""
    blank = Diffusion().build(Sizes(3, 1, 2, False, False), ONE_FIT, np.random.default_rng(0))
    previous = GaussianDenoiser(**vars(blank))
    generator = np.random.default_rng(1)
    discount = jnp.asarray(discount, jnp.float32)
    normal = jnp.asarray(generator.standard_normal((number, 2)), jnp.float32)
    returns = REWARD + discount * (MEAN + STD * normal)
    uniforms = jnp.asarray(generator.uniform(0.01, 0.99, (number, 3)), jnp.float32)

    @jax.jit
    def disturbed_by(returns, uniforms):
        context = previous.condition(jnp.zeros(4))
        update = NextLaws(context[None], jnp.ones(1), REWARD, discount)
        return jax.vmap(lambda z, u: blank.disturbed(previous, update, z, context, u))(
            returns, uniforms
        )

    made = disturbed_by(returns, uniforms)
    level = jnp.exp(made.log_level)[:, None]
    total = jnp.sqrt(1 + level**2)
    disturbed = made.scaled * total
    clean = made.wanted * level / total + disturbed / total**2
    return returns, disturbed, level, clean


@pytest.mark.parametrize("discount", [1.0, 0.95, 0.6])
def test_the_target_is_the_expected_return_behind_a_disturbed_one(discount):
    _, disturbed, level, clean = cases([discount, discount])
    variance = discount**2 * STD**2
    centre = REWARD + discount * MEAN
    expected = centre + variance / (variance + level**2) * (disturbed - centre)
    assert np.allclose(clean, expected, atol=1e-4)


@pytest.mark.parametrize("discount", [[1.0, 0.8], [0.3, 0.3], [0.0, 0.0]])
def test_elsewhere_the_target_is_the_drawn_return(discount):
    returns, _, _, clean = cases(discount)
    assert np.allclose(clean, returns, atol=1e-4)


class TwoPeaks(DiffusionLaw):
    """The exact denoiser of 0.1 N(-2, 0.1²) + 0.9 N(1, 0.1²)."""

    def denoise(self, context, returns, level):
        means, variance = jnp.array([-2.0, 1.0]), 0.1**2
        logits = jnp.log(jnp.array([0.1, 0.9]))
        logits -= 0.5 * (returns - means) ** 2 / (variance + level**2)
        expected = means + variance / (variance + level**2) * (returns - means)
        return jnp.vdot(jax.nn.softmax(logits), expected)[None]


def test_peaks_have_their_weights():
    blank = Diffusion().build(Sizes(3, 1, 1, False, False), ONE_FIT, np.random.default_rng(0))
    law = TwoPeaks(**vars(blank))
    n = 40_000
    uniforms = jnp.asarray(np.random.default_rng(1).uniform(1e-6, 1 - 1e-6, (n, 1)), jnp.float32)
    context = law.condition(jnp.zeros(4))
    drawn = np.asarray(jax.jit(jax.vmap(lambda u: law.draw(context, u)))(uniforms))[:, 0]
    # 4 standard errors, and 0.001 for the scale at which sampling starts.
    assert abs((drawn < 0).mean() - 0.1) < 4 * np.sqrt(0.09 / n) + 0.001
    for peak, part in ((-2, drawn[drawn < 0]), (1, drawn[drawn > 0])):
        assert abs(part.mean() - peak) < 0.01
        assert part.std() == pytest.approx(0.1, abs=0.02)
