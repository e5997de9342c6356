"""The network that all gradient-trained models share."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Network(eqx.Module):
    """A multilayer perceptron with SiLU activations, for one example.

    The last layer starts near zero, so that a fresh model is described by `output_bias` alone.
    """

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        output_bias: Float[Array, " outputs"],
        *,
        key: PRNGKeyArray,
    ):
        widths = [inputs, *hidden, output_bias.shape[0]]
        keys = jax.random.split(key, len(widths) - 1)
        gains = [2.0] * len(hidden) + [0.01]
        self.weights = tuple(
            jax.random.normal(k, (fan_in, fan_out)) * jnp.sqrt(gain / fan_in)
            for k, fan_in, fan_out, gain in zip(
                keys, widths[:-1], widths[1:], gains, strict=True
            )
        )
        self.biases = (*(jnp.zeros(width) for width in hidden), output_bias)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs for one input vector."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            inputs = jax.nn.silu(inputs @ weight + bias)
        return inputs @ self.weights[-1] + self.biases[-1]
