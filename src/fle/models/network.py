"""The network that all gradient-trained laws share."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Inputs are standardised. Where one is further out than this, its square would run away.
FURTHEST = 4.0


class Network(eqx.Module):
    """A multilayer perceptron with SiLU activations beside a quadratic trend, for one example.

    The last layer starts near zero, so that a fresh model is described by `output_bias` alone.
    Every input passes a gate. As gates decay like weights do, an input that carries nothing but
    noise loses both, far sooner than it would lose its weights alone.

    The first `trends` outputs, which should be locations, get a polynomial of degree two of the
    gated inputs added. Decay bends it far less than it bends a chain of layers, so that it draws
    these outputs to a smooth function of the input and not to a constant.
    """

    gates: Float[Array, "1 inputs"]
    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    linear: Float[Array, "1 terms"]
    quadratic: Float[Array, "inputs terms"]

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        output_bias: np.ndarray,
        generator: np.random.Generator,
        *,
        trends: int = 0,
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
        self.linear = jnp.zeros((1, inputs * trends))
        self.quadratic = jnp.zeros((inputs, inputs * trends))

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs for one input vector."""
        outputs, trend = self.finish(self.project(inputs)), self.trend(inputs)
        return outputs + jnp.pad(trend, (0, outputs.size - trend.size))

    def columns(self, inputs: Float[Array, "rows inputs"]) -> Float[Array, "outputs rows"]:
        """The outputs for a batch, a column for each row.

        What a model does with each output is then a loop over rows, which are many, and fast.
        """
        weights, values = (self.gates.T * self.weights[0], *self.weights[1:]), inputs
        for weight, bias in zip(weights[:-1], self.biases[:-1], strict=True):
            values = jax.nn.silu(values @ weight + bias)
        outputs = weights[-1].T @ values.T + self.biases[-1][:, None]
        trend = jax.vmap(self.trend)(inputs).T
        return outputs.at[: trend.shape[0]].add(trend)

    def project(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """The first layer's sums, to which other terms may be added before `finish`.

        Gates act on weights: the same as on inputs, and less to do for a batch.
        """
        return inputs @ (self.gates.T * self.weights[0]) + self.biases[0]

    def finish(self, sums: Float[Array, " hidden"]) -> Float[Array, " outputs"]:
        """The outputs from the first layer's sums, without the trend."""
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            sums = jax.nn.silu(sums) @ weight + bias
        return sums

    def trend(self, inputs: Float[Array, " inputs"]) -> Float[Array, " trends"]:
        """What is added to the first outputs."""
        near = jnp.clip(inputs, -FURTHEST, FURTHEST)
        gates = jnp.tile(self.gates, self.linear.size // inputs.size)
        rates = (gates * self.linear)[0] + near @ (self.gates.T * self.quadratic * gates)
        return jnp.sum(rates.reshape(-1, inputs.size) * near, axis=1)


def fourier_features(
    values: Float[Array, " k"], frequencies: Sequence[float]
) -> Float[Array, " features"]:
    """The values, and waves of them: a network then sees fine and coarse changes alike."""
    angles = jnp.concatenate([frequency * values for frequency in frequencies])
    return jnp.concatenate([values, jnp.sin(angles), jnp.cos(angles)])
