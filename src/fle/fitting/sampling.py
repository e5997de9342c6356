"""Draws of fitted laws. One function is compiled for all of them, whatever they are for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.fitting.encoding import Fitted
from fle.models.law import TINY

# Inputs that are drawn at together: another number would be compiled anew.
SAMPLE_BLOCK = 8_192


def draw_block(fitted: Fitted, inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """One return for each of at most SAMPLE_BLOCK inputs, in reward units of the encoder."""
    filled = np.resize(inputs, (SAMPLE_BLOCK, inputs.shape[1]))
    uniforms = generator.random((SAMPLE_BLOCK, fitted.law.noise_size), np.float32)
    # What limits its returns has no part in a law, and would be compiled with it.
    uniforms = np.clip(uniforms, TINY, 1 - TINY)
    drawn = _draw(fitted._replace(limits=()), jnp.asarray(filled), jnp.asarray(uniforms))
    return np.asarray(drawn, np.float64)[: len(inputs)]


@eqx.filter_jit
def _draw(
    fitted: Fitted, inputs: Float[Array, "k inputs"], uniforms: Float[Array, "k noise"]
) -> Float[Array, "k d"]:
    return jax.vmap(fitted.sample)(inputs, uniforms)
