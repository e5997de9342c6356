"""Autoregressive mixtures: each coordinate of the return given the coordinates before it."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float
from scipy.special import ndtri as normal_quantile

from fle.models.base import (
    FrameRule,
    LikelihoodModel,
    Sizes,
    Tuning,
    cumulative_weights,
    moments_frame,
    pick,
)
from fle.models.hyperparameters import Hyperparameters
from fle.models.network import Network, fourier_features

FREQUENCIES = (1.0, 2.0, 4.0)


class Components(NamedTuple):
    """A mixture of normal laws on the line; its weights as logits or cumulated."""

    weights: Float[Array, " k"]
    means: Float[Array, " k"]
    scales: Float[Array, " k"]


class Law(NamedTuple):
    """The first coordinate's mixture, and what the other networks make of the input alone."""

    first: Components
    others: tuple[Float[Array, " hidden"], ...]


class AutoregressiveModel(LikelihoodModel):
    """p(z | x, a) = prod_j sum_k w_jk N(z_j; mu_jk, s_jk²), all given by (x, a) and z_1 .. z_j-1.

    One network a coordinate. The earlier coordinates enter its first layer through waves of
    several lengths, so that a sharp change along one coordinate can be followed by the next.
    """

    networks: tuple[Network, ...]
    histories: tuple[Float[Array, "features hidden"], ...]
    scale_floor: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """Each coordinate picks a component and draws from it."""
        return 2 * len(self.networks)

    def condition(self, inputs: Float[Array, " inputs"]) -> Law:
        """What can be said before the first coordinate is drawn."""
        first, *others = (network.project(inputs) for network in self.networks)
        return Law(_cumulated(self._components(0, first)), tuple(others))

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """The sum over coordinates of their conditional log densities."""
        total = jnp.zeros(())
        for j, network in enumerate(self.networks):
            projected = self._with_history(j, network.project(inputs), returns[:j])
            logits, means, scales = self._components(j, projected)
            logs = logits - jnp.log(scales) - 0.5 * ((returns[j] - means) / scales) ** 2
            total += jax.nn.logsumexp(logs) - jax.nn.logsumexp(logits) - 0.5 * np.log(2 * np.pi)
        return total

    def draw(self, law: Law, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """One coordinate after the other."""
        returns = _draw(law.first, uniforms[:2])[None]
        for j, projected in enumerate(law.others, start=1):
            projected = self._with_history(j, projected, returns)
            components = _cumulated(self._components(j, projected))
            value = _draw(components, uniforms[2 * j : 2 * j + 2])
            returns = jnp.concatenate([returns, value[None]])
        return returns

    def _with_history(
        self, coordinate: int, projected: Float[Array, " hidden"], earlier: Float[Array, " j"]
    ) -> Float[Array, " hidden"]:
        if coordinate == 0:
            return projected
        return projected + fourier_features(earlier, FREQUENCIES) @ self.histories[coordinate - 1]

    def _components(self, coordinate: int, projected: Float[Array, " hidden"]) -> Components:
        outputs = self.networks[coordinate].finish(projected)
        location, spread, logits, offsets, scales = jnp.split(
            outputs, np.cumsum([1, 1, *[(outputs.size - 2) // 3] * 2])
        )
        return Components(
            logits, location + offsets, self.scale_floor + jax.nn.softplus(spread + scales)
        )


def _cumulated(components: Components) -> Components:
    return components._replace(weights=cumulative_weights(components.weights))


def _draw(components: Components, uniforms: Float[Array, " 2"]) -> Float[Array, ""]:
    component = pick(components.weights, uniforms[0])
    return components.means[component] + components.scales[component] * ndtri(uniforms[1])


@dataclass(frozen=True)
class Autoregressive(Hyperparameters):
    """A mixture for each coordinate of the return, given the coordinates before it.

    components: number of Gaussians a coordinate.
    hidden: widths of the hidden layers of each coordinate's network.
    scale_floor: least standard deviation of a component, as a share of the return scale.
    """

    components: int = 24
    hidden: tuple[int, ...] = (64, 64)
    scale_floor: float = 0.01

    name: ClassVar[str] = "autoregressive"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(moments_frame)
    tuning: ClassVar[Tuning] = Tuning(draws=2)

    def build(self, sizes: Sizes, generator: np.random.Generator) -> AutoregressiveModel:
        """A model that starts out as independent, roughly standard normal coordinates."""
        k = self.components
        spread_out = normal_quantile((np.arange(k) + 0.5) / k)
        bias = np.concatenate([np.zeros(2 + k), spread_out, np.zeros(k)])
        networks = [
            Network(sizes.inputs, self.hidden, bias, generator) for _ in range(sizes.returns)
        ]
        histories = []
        for earlier in range(1, sizes.returns):
            width = earlier * (1 + 2 * len(FREQUENCIES))
            matrix = generator.standard_normal((width, self.hidden[0])) / np.sqrt(width)
            histories.append(jnp.asarray(matrix, jnp.float32))
        return AutoregressiveModel(tuple(networks), tuple(histories), self.scale_floor)
