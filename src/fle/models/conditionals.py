"""Networks of an autoregressive model: one a coordinate, told of the coordinates before it."""

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.base import Sizes
from fle.models.network import Network, fourier_features

FREQUENCIES = (1.0, 2.0, 4.0)


class Conditionals(eqx.Module):
    """What a model says of each coordinate of the return, given (x, a) and the earlier coordinates.

    These enter a network's first layer through waves of several lengths, so that a sharp change
    along one coordinate can be followed by the next.
    """

    networks: tuple[Network, ...]
    histories: tuple[Float[Array, "features hidden"], ...]

    @classmethod
    def build(
        cls,
        sizes: Sizes,
        hidden: tuple[int, ...],
        output_bias: np.ndarray,
        generator: np.random.Generator,
    ) -> Self:
        """Networks that say `output_bias` at first, whatever they are told."""
        networks = [
            Network(sizes.inputs, hidden, output_bias, generator) for _ in range(sizes.returns)
        ]
        histories = []
        for earlier in range(1, sizes.returns):
            width = earlier * (1 + 2 * len(FREQUENCIES))
            matrix = generator.standard_normal((width, hidden[0])) / np.sqrt(width)
            histories.append(jnp.asarray(matrix, jnp.float32))
        return cls(tuple(networks), tuple(histories))

    def project(self, inputs: Float[Array, " inputs"]) -> tuple[Float[Array, " hidden"], ...]:
        """What each network makes of the input alone."""
        return tuple(network.project(inputs) for network in self.networks)

    def outputs(
        self, projected: Float[Array, " hidden"], earlier: Float[Array, " j"]
    ) -> Float[Array, " outputs"]:
        """Of the network that comes after the earlier coordinates."""
        coordinate = earlier.size
        if coordinate > 0:
            waves = fourier_features(earlier, FREQUENCIES)
            projected = projected + waves @ self.histories[coordinate - 1]
        return self.networks[coordinate].finish(projected)
