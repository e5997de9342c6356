"""A conditional Laplace distribution: what a model of one's own looks like, in one file."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Density, Sizes
from fle.models.network import Network
from fle.models.specs import ModelSpec
from fle.recipe import Resolved


class LocationAndScale(NamedTuple):
    """Of every coordinate."""

    location: Float[Array, " d"]
    scale: Float[Array, " d"]


class LaplaceLaw(Density):
    """p(z | x, a) = prod_j exp(-|z_j - m_j(x, a)| / b_j(x, a)) / (2 b_j(x, a))."""

    network: Network
    return_dim: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> LocationAndScale:
        """Location and scale at one input."""
        location, raw = jnp.split(self.network(inputs), 2)
        return LocationAndScale(location, self.scale_floor + jax.nn.softplus(raw))

    def draw(
        self, conditioned: LocationAndScale, uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """The inverse distribution function; each tail from its own end, to keep its digits."""
        tail = jnp.minimum(uniforms, 1 - uniforms)
        side = jnp.where(uniforms < 0.5, 1.0, -1.0)
        return conditioned.location + side * conditioned.scale * jnp.log(2 * tail)

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        location, scale = self.condition(inputs)
        return -jnp.sum(jnp.abs(returns - location) / scale + jnp.log(2 * scale))


@dataclass(frozen=True)
class Laplace(ModelSpec):
    """One Laplace distribution a coordinate, location and scale from a network.

    hidden: widths of the hidden layers.
    """

    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "laplace"

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> LaplaceLaw:
        """A law that starts out centred, with scale about 0.7."""
        bias = np.zeros(2 * sizes.returns)
        network = Network(sizes.inputs, self.hidden, bias, generator)
        return LaplaceLaw(network, sizes.returns, recipe.scale_floor)
