"""Laws that describe one coordinate of the return after the other, by one network each."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Density, Sizes, over_draws
from fle.models.network import Network, fourier_features

FREQUENCIES = (1.0, 2.0, 4.0)


class Conditionals(eqx.Module):
    """What networks say of each coordinate of the return, given (x, a) and the earlier coordinates.

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
            Network(sizes.inputs, hidden, output_bias, generator, codes=sizes.codes)
            for _ in range(sizes.returns)
        ]
        histories = []
        for earlier in range(1, sizes.returns):
            width = earlier * (1 + 2 * len(FREQUENCIES))
            matrix = generator.standard_normal((width, hidden[0])) / np.sqrt(width)
            histories.append(jnp.asarray(matrix, jnp.float32))
        return cls(tuple(networks), tuple(histories))

    def first(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Outputs of the first network, which knows no other coordinate."""
        return self.networks[0](inputs)

    def projected(self, inputs: Float[Array, " inputs"]) -> tuple[Float[Array, " hidden"], ...]:
        """What each of the other networks makes of the input alone."""
        return tuple(network.project(inputs) for network in self.networks[1:])

    def outputs(
        self, projected: Float[Array, " hidden"], earlier: Float[Array, " j"]
    ) -> Float[Array, " outputs"]:
        """Of the network that comes after the earlier coordinates."""
        coordinate = earlier.size
        waves = fourier_features(earlier, FREQUENCIES) @ self.histories[coordinate - 1]
        return self.networks[coordinate].finish(projected + waves)


class Known(NamedTuple):
    """What is known before any coordinate is: of the first one all, and the others' beginnings."""

    first: Any
    others: tuple[Float[Array, " hidden"], ...]


class TriangularLaw(Density):
    """p(z | x, a) = prod_j p(z_j | x, a, z_1 .. z_j-1), where a network gives each factor."""

    conditionals: eqx.AbstractVar[Conditionals]

    # Uniform numbers that `draw_one` consumes.
    noise_a_coordinate: ClassVar[int]

    @abstractmethod
    def factor(self, outputs: Float[Array, " outputs"]) -> Any:
        """The distribution of one coordinate, from the outputs of its network."""

    @abstractmethod
    def log_prob_of_one(self, factor: Any, value: Float[Array, ""]) -> Float[Array, ""]:
        """Log density of one coordinate."""

    @abstractmethod
    def draw_one(self, factor: Any, uniforms: Float[Array, " noise"]) -> Float[Array, ""]:
        """One coordinate, from its distribution as `ready` made it."""

    def ready(self, factor: Any) -> Any:
        """The distribution of a coordinate in the form that `draw_one` needs."""
        return factor

    @property
    def return_dim(self) -> int:
        """A network for each coordinate."""
        return len(self.conditionals.networks)

    @property
    def noise_size(self) -> int:
        """As many numbers for each coordinate."""
        return self.noise_a_coordinate * self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> Known:
        """What can be said before the first coordinate is drawn."""
        known = self._known(inputs)
        return known._replace(first=self.ready(known.first))

    def draw(self, conditioned: Known, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """One coordinate after the other."""
        noise = uniforms.reshape(-1, self.noise_a_coordinate)
        returns = self.draw_one(conditioned.first, noise[0])[None]
        for projected, numbers in zip(conditioned.others, noise[1:], strict=True):
            following = self.ready(self.factor(self.conditionals.outputs(projected, returns)))
            returns = jnp.append(returns, self.draw_one(following, numbers))
        return returns

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """The sum over coordinates of their conditional log densities."""
        return self._log_density(self._known(inputs), returns, self._plain)

    def log_probs(
        self,
        inputs: Float[Array, "rows inputs"],
        returns: Float[Array, "rows draws d"],
        density: Callable[[Any, Array], Array] | None = None,
    ) -> Float[Array, " rows*draws"]:
        """Log densities of all rows and draws, which are one axis to the networks.

        density: that of a coordinate's distribution at a return (1,), of the same values and
            perhaps with other gradients.
        """
        one = self._plain if density is None else density
        return over_draws(
            self._known, lambda known, z: self._log_density(known, z, one), inputs, returns
        )

    def _plain(self, factor: Any, value: Float[Array, "1"]) -> Float[Array, ""]:
        return self.log_prob_of_one(factor, value[0])

    def _known(self, inputs: Float[Array, " inputs"]) -> Known:
        conditionals = self.conditionals
        return Known(self.factor(conditionals.first(inputs)), conditionals.projected(inputs))

    def _log_density(
        self, known: Known, returns: Float[Array, " d"], density: Callable[[Any, Array], Array]
    ) -> Float[Array, ""]:
        total = density(known.first, returns[:1])
        for j, projected in enumerate(known.others, start=1):
            factor = self.factor(self.conditionals.outputs(projected, returns[:j]))
            total += density(factor, returns[j : j + 1])
        return total
