"""Draws of fitted laws. One function is compiled for all of them, whatever they are for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.fitting.encoding import SLACK, Fitted, Rows, as_vectors
from fle.models.base import TINY, Sizes

# Inputs that are drawn at together: another number would be compiled anew.
SAMPLE_BLOCK = 8_192


def draw_block(fitted: Fitted, inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """One return for each of at most SAMPLE_BLOCK inputs, in reward units of the encoder."""
    filled = np.resize(inputs, (SAMPLE_BLOCK, inputs.shape[1]))
    uniforms = generator.random((SAMPLE_BLOCK, fitted.model.noise_size), np.float32)
    # What limits its returns has no part in a law, and would be compiled with it.
    uniforms = np.clip(uniforms, TINY, 1 - TINY)
    drawn = _draw(fitted._replace(limits=()), jnp.asarray(filled), jnp.asarray(uniforms))
    return np.asarray(drawn, np.float64)[: len(inputs)]


def draw_targets(
    previous: Fitted,
    rows: Rows,
    index: np.ndarray,
    discount: float,
    sizes: Sizes,
    generator: np.random.Generator,
) -> np.ndarray:
    """One draw of r + discount * y for each of at most SAMPLE_BLOCK rows, in reward units."""
    cumulative = np.cumsum(np.asarray(rows.probabilities)[index], axis=1)
    levels = generator.random((len(index), 1), np.float32) * cumulative[:, -1:]
    picks = np.minimum((cumulative <= levels).sum(axis=1), cumulative.shape[1] - 1)
    observations = np.asarray(rows.next_observations)[index]
    actions = np.asarray(rows.next_actions)[index, picks]
    returns = draw_block(previous, as_vectors(observations, actions, sizes), generator)
    if previous.limits:
        low, high = (np.asarray(limit) for limit in previous.limits)
        slack = SLACK * np.asarray(previous.frame.scale)
        returns = np.clip(returns, low - slack, high + slack)
    continues = np.asarray(rows.continues)[index, None]
    return np.asarray(rows.rewards)[index] + discount * continues * returns


@eqx.filter_jit
def _draw(
    fitted: Fitted, inputs: Float[Array, "k inputs"], uniforms: Float[Array, "k noise"]
) -> Float[Array, "k d"]:
    return jax.vmap(fitted.sample)(inputs, uniforms)
