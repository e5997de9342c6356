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
    Every input passes a gate. As gates decay like weights do, an input that carries nothing but
    noise loses both, far sooner than it would lose its weights alone.
    """

    gates: Float[Array, "1 inputs"]
    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        output_bias: np.ndarray,
        generator: np.random.Generator,
    ):
        self.gates = jnp.ones((1, inputs))
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
        return self.finish(self.project(inputs))

    def project(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """The first layer's sums, to which other terms may be added before `finish`."""
        return (self.gates[0] * inputs) @ self.weights[0] + self.biases[0]

    def finish(self, sums: Float[Array, " hidden"]) -> Float[Array, " outputs"]:
        """The outputs from the first layer's sums."""
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            sums = jax.nn.silu(sums) @ weight + bias
        return sums


def fourier_features(
    values: Float[Array, " k"], frequencies: Sequence[float]
) -> Float[Array, " features"]:
    """The values, and waves of them: a network then sees fine and coarse changes alike."""
    angles = jnp.concatenate([frequency * values for frequency in frequencies])
    return jnp.concatenate([values, jnp.sin(angles), jnp.cos(angles)])
