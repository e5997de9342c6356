"""What laws that are sampled by removing noise have in common."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Law
from fle.models.network import Network
from fle.models.objectives import NextLaws


class Denoiser(Law):
    """A network that is told of a disturbed return in its first layer, beside the input."""

    network: eqx.AbstractVar[Network]
    position: eqx.AbstractVar[Float[Array, "features hidden"]]
    return_dim: eqx.AbstractVar[int]

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """What the first layer makes of the input."""
        return self.network.project(inputs)

    def outputs(
        self, context: Float[Array, " hidden"], features: Float[Array, " features"]
    ) -> Float[Array, " d"]:
        """Of the network, told of features of a disturbed return and its level of noise."""
        return self.network.finish(context + features @ self.position)

    @abstractmethod
    def disturbed(
        self,
        previous: Any,
        update: NextLaws,
        returns: Float[Array, " d"],
        context: Any,
        uniforms: Float[Array, " noise"],
    ) -> Any:
        """One disturbed return, and what is to be recovered from it.

        context: where the next return was drawn, as `previous.condition` gave it.
        """

    @abstractmethod
    def denoising_loss(self, context: Float[Array, " hidden"], case: Any) -> Float[Array, ""]:
        """How well one disturbed return is recovered."""


def first_position(
    features: int, hidden: int, generator: np.random.Generator
) -> Float[Array, "features hidden"]:
    """Weights by which features of a disturbed return enter the first layer."""
    position = generator.standard_normal((features, hidden)) * np.sqrt(2 / features)
    return jnp.asarray(position, jnp.float32)
