"""The plain network of the paper, and models that work in the units of the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.base import ModelSpec, ReturnModel, Sizes


class PlainNetwork(eqx.Module):
    """A perceptron with ReLU activations that starts as PyTorch's linear layers do.

    It stands in for `fle.models.network.Network`, without its gates and its careful start.
    """

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]

    def __init__(self, widths: Sequence[int], generator: np.random.Generator):
        pairs = list(pairwise(widths))
        self.weights = tuple(
            _uniform((fan_in, fan_out), fan_in, generator) for fan_in, fan_out in pairs
        )
        self.biases = tuple(_uniform((fan_out,), fan_in, generator) for fan_in, fan_out in pairs)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs for one input vector."""
        return self.finish(self.project(inputs))

    def columns(self, inputs: Float[Array, "rows inputs"]) -> Float[Array, "outputs rows"]:
        """The outputs for a batch, a column for each row."""
        return jax.vmap(self)(inputs).T

    def project(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """The first layer's sums."""
        return inputs @ self.weights[0] + self.biases[0]

    def finish(self, sums: Float[Array, " hidden"]) -> Float[Array, " outputs"]:
        """The outputs from the first layer's sums."""
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            sums = jax.nn.relu(sums) @ weight + bias
        return sums


def _uniform(
    shape: tuple[int, ...], fan_in: int, generator: np.random.Generator
) -> Float[Array, "..."]:
    return jnp.asarray(generator.uniform(-1, 1, shape) / np.sqrt(fan_in), jnp.float32)


@dataclass(frozen=True)
class AsPublished:
    """A model with a plain network, in the units of the data: nothing is standardised.

    model: what to build.
    half_width: a grid model's range is [-half_width, half_width]; other models need none.
    """

    model: ModelSpec
    half_width: float = 1.0

    name: ClassVar[str] = "as published"
    standardised: ClassVar[bool] = False

    def frame(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same at every stage."""
        d = samples.shape[1]
        return np.zeros(d), np.full(d, self.half_width)

    def build(self, sizes: Sizes, generator: np.random.Generator) -> ReturnModel:
        """The model, its network replaced by a plain one of the same widths."""
        built: Any = self.model.build(sizes, generator)
        shapes = [weight.shape for weight in built.network.weights]
        widths = [shapes[0][0], *(shape[1] for shape in shapes)]
        return eqx.tree_at(lambda m: m.network, built, PlainNetwork(widths, generator))
