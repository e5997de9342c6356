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
from fle.models.conditionals import Conditionals
from fle.models.hyperparameters import Hyperparameters


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

    One network a coordinate.
    """

    conditionals: Conditionals
    return_dim: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """Each coordinate picks a component and draws from it."""
        return 2 * self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> Law:
        """What can be said before the first coordinate is drawn."""
        first, *others = self.conditionals.project(inputs)
        return Law(_cumulated(self._components(first, jnp.zeros(0))), tuple(others))

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """The sum over coordinates of their conditional log densities."""
        total = jnp.zeros(())
        for j, projected in enumerate(self.conditionals.project(inputs)):
            logits, means, scales = self._components(projected, returns[:j])
            logs = logits - jnp.log(scales) - 0.5 * ((returns[j] - means) / scales) ** 2
            total += jax.nn.logsumexp(logs) - jax.nn.logsumexp(logits) - 0.5 * np.log(2 * np.pi)
        return total

    def draw(self, law: Law, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """One coordinate after the other."""
        returns = _draw(law.first, uniforms[:2])[None]
        for j, projected in enumerate(law.others, start=1):
            components = _cumulated(self._components(projected, returns))
            value = _draw(components, uniforms[2 * j : 2 * j + 2])
            returns = jnp.concatenate([returns, value[None]])
        return returns

    def _components(
        self, projected: Float[Array, " hidden"], earlier: Float[Array, " j"]
    ) -> Components:
        outputs = self.conditionals.outputs(projected, earlier)
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
        conditionals = Conditionals.build(sizes, self.hidden, bias, generator)
        return AutoregressiveModel(conditionals, sizes.returns, self.scale_floor)
