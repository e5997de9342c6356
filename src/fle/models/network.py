"""The network that all gradient-trained models share."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


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
        output_bias: np.ndarray,
        generator: np.random.Generator,
    ):
        widths = [inputs, *hidden, output_bias.size]
        gains = [2.0] * len(hidden) + [0.01]
        self.weights = tuple(
            jnp.asarray(
                generator.standard_normal((fan_in, fan_out)) * np.sqrt(gain / fan_in), jnp.float32
            )
            for fan_in, fan_out, gain in zip(widths[:-1], widths[1:], gains, strict=True)
        )
        biases = [np.zeros(width) for width in hidden]
        self.biases = tuple(jnp.asarray(bias, jnp.float32) for bias in (*biases, output_bias))

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs for one input vector."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            inputs = jax.nn.silu(inputs @ weight + bias)
        return inputs @ self.weights[-1] + self.biases[-1]
