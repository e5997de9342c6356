"""The network that all gradient-trained laws share."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fle.models.law import placed

# Inputs are standardised. Where one is further out than this, its square would run away.
FURTHEST = 4.0


class Categories(eqx.Module):
    """The first layer of a network for a code: a row of weights, a gate and a trend for each value.

    It does what a one-hot vector would, and looks up what that would multiply by one.
    """

    gates: Float[Array, "categories 1"]
    weights: Float[Array, "categories hidden"]
    linear: Float[Array, "categories trends"]
    column: int = eqx.field(static=True)

    def project(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows hidden"]:
        """What is added to the first layer's sums."""
        code = self._codes(inputs)
        return self.gates[code] * self.weights[code]

    def trend(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows trends"]:
        """What is added to the first outputs."""
        code = self._codes(inputs)
        return self.gates[code] * self.linear[code]

    def _codes(self, inputs: Float[Array, "*rows inputs"]) -> Int[Array, "*rows"]:
        return inputs[..., self.column].astype(jnp.int32)


class Network(eqx.Module):
    """A multilayer perceptron with SiLU activations beside a quadratic trend, for one example.

    The last layer starts near zero, so that a fresh model is described by `output_bias` alone.
    Every input passes a gate. As gates decay like weights do, an input that carries nothing but
    noise loses both, far sooner than it would lose its weights alone.

    The first `trends` outputs, which should be locations, get a polynomial of degree two of the
    gated inputs added. Decay bends it far less than it bends a chain of layers, so that it draws
    these outputs to a smooth function of the input and not to a constant.

    Columns of the inputs that are codes of many categories are looked up. Their trend is linear.
    """

    gates: Float[Array, "1 inputs"]
    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    linear: Float[Array, "1 terms"]
    quadratic: Float[Array, "inputs terms"]
    categories: tuple[Categories, ...]

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        output_bias: np.ndarray,
        generator: np.random.Generator,
        *,
        trends: int = 0,
        codes: Sequence[tuple[int, int]] = (),
    ):
        """Of inputs of this width; `codes` says which columns are codes, and of how many."""
        sizes = np.ones(inputs, int)
        for column, number in codes:
            sizes[column] = number
        widths = [int(sizes.sum()), *hidden, output_bias.size]
        gains = [2.0] * len(hidden) + [0.01]
        first, *others = (
            (generator.standard_normal((fan_in, fan_out)) * np.sqrt(gain / fan_in)).astype("f4")
            for fan_in, fan_out, gain in zip(widths[:-1], widths[1:], gains, strict=True)
        )
        starts = np.cumsum(sizes) - sizes
        self.categories = tuple(
            Categories(
                placed(np.ones((number, 1))),
                placed(first[starts[column] : starts[column] + number]),
                placed(np.zeros((number, trends))),
                column,
            )
            for column, number in codes
        )
        numbers = [place for place in range(inputs) if place not in dict(codes)]
        first, inputs = first[starts[numbers]], len(numbers)
        self.gates = placed(np.ones((1, inputs)))
        self.weights = tuple(placed(weight) for weight in (first, *others))
        biases = [np.zeros(width) for width in hidden]
        self.biases = tuple(placed(bias) for bias in (*biases, output_bias))
        self.linear = placed(np.zeros((1, inputs * trends)))
        self.quadratic = placed(np.zeros((inputs, inputs * trends)))

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs for one input vector."""
        outputs, trend = self.finish(self.project(inputs)), self.trend(inputs)
        return outputs + jnp.pad(trend, (0, outputs.size - trend.size))

    def columns(self, inputs: Float[Array, "rows inputs"]) -> Float[Array, "outputs rows"]:
        """The outputs for a batch, a column for each row.

        What a model does with each output is then a loop over rows, which are many, and fast.
        """
        weights = (self.gates.T * self.weights[0], *self.weights[1:])
        values, biases = self._numbers(inputs), (self._offsets(inputs), *self.biases[1:])
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            values = jax.nn.silu(values @ weight + bias)
        outputs = (values @ weights[-1] + biases[-1]).T
        trend = jax.vmap(self.trend)(inputs).T
        return outputs.at[: trend.shape[0]].add(trend)

    def project(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """The first layer's sums, to which other terms may be added before `finish`.

        Gates act on weights: the same as on inputs, and less to do for a batch.
        """
        numbers, offsets = self._numbers(inputs), self._offsets(inputs)
        return numbers @ (self.gates.T * self.weights[0]) + offsets

    def finish(self, sums: Float[Array, " hidden"]) -> Float[Array, " outputs"]:
        """The outputs from the first layer's sums, without the trend."""
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            sums = jax.nn.silu(sums) @ weight + bias
        return sums

    def trend(self, inputs: Float[Array, " inputs"]) -> Float[Array, " trends"]:
        """What is added to the first outputs."""
        looked_up = [part.trend(inputs) for part in self.categories]
        near = jnp.clip(self._numbers(inputs), -FURTHEST, FURTHEST)
        if near.size == 0:
            return jnp.sum(jnp.stack(looked_up), axis=0)
        gates = jnp.tile(self.gates, self.linear.size // near.size)
        rates = (gates * self.linear)[0] + near @ (self.gates.T * self.quadratic * gates)
        return sum(looked_up, jnp.sum(rates.reshape(-1, near.size) * near, axis=1))

    def _numbers(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows numbers"]:
        """The columns that are no codes."""
        if not self.categories:
            return inputs
        codes = [part.column for part in self.categories]
        return inputs[..., np.setdiff1d(np.arange(inputs.shape[-1]), codes)]

    def _offsets(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows hidden"]:
        """What codes and biases add to the first layer's sums."""
        return sum((part.project(inputs) for part in self.categories), self.biases[0])


def fourier_features(
    values: Float[Array, " k"], frequencies: Sequence[float]
) -> Float[Array, " features"]:
    """The values, and waves of them: a network then sees fine and coarse changes alike."""
    angles = jnp.concatenate([frequency * values for frequency in frequencies])
    return jnp.concatenate([values, jnp.sin(angles), jnp.cos(angles)])
