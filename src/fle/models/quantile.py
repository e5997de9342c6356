"""Quantile-regression TD, the classic rival: scalar returns only."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri as normal_quantile

from fle.models.base import (
    FrameRule,
    GradientModel,
    Sizes,
    Transition,
    candidate_outputs,
    moments_frame,
    require_scalar,
)
from fle.models.hyperparameters import Hyperparameters
from fle.models.network import Network


class WeightedPoints(NamedTuple):
    """A discrete target law."""

    points: Float[Array, " k"]
    weights: Float[Array, " k"]


class QuantileModel(GradientModel):
    """n equally weighted points at the levels (i + 1/2)/n, fitted by the pairwise Huber loss.

    Dabney, Rowland, Bellemare, Munos (2018). Not a likelihood and not a density.
    """

    network: Network
    quantiles: int = eqx.field(static=True)
    huber: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number picks the point."""
        return 1

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " quantiles"]:
        """The points at one input."""
        return self.network(inputs)

    def prepare(self, previous: Self, transition: Transition) -> WeightedPoints:
        """All moved points of all candidate actions."""
        points = candidate_outputs(previous.condition, transition)
        weights = jnp.broadcast_to(transition.probabilities[:, None] / self.quantiles, points.shape)
        moved = transition.reward[0] + transition.discount[0] * points
        return WeightedPoints(moved.reshape(-1), weights.reshape(-1))

    def loss(self, inputs: Float[Array, " inputs"], target: WeightedPoints) -> Float[Array, ""]:
        """Quantile Huber loss of every point against every target point."""
        levels = (jnp.arange(self.quantiles) + 0.5) / self.quantiles
        error = target.points[None, :] - self.network(inputs)[:, None]
        size = jnp.abs(error)
        smooth = jnp.where(size <= self.huber, 0.5 * error**2 / self.huber, size - 0.5 * self.huber)
        tilt = jnp.where(error < 0, 1 - levels[:, None], levels[:, None])
        return jnp.sum(tilt * smooth @ target.weights)

    def draw(
        self, law: Float[Array, " quantiles"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """One of the points, all equally likely."""
        place = jnp.clip(jnp.floor(uniforms[0] * self.quantiles), 0, self.quantiles - 1)
        return law[place.astype(int)][None]


@dataclass(frozen=True)
class Quantile(Hyperparameters):
    """Quantile-regression TD with the pairwise Huber loss; scalar returns only.

    quantiles: number of points.
    huber: threshold of the Huber loss, as a share of the return scale.
    hidden: widths of the hidden layers.
    """

    quantiles: int = 50
    huber: float = 0.05
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "quantile"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(moments_frame)

    def build(self, sizes: Sizes, generator: np.random.Generator) -> QuantileModel:
        """Points that start at the quantiles of a standard normal."""
        require_scalar("Quantile", sizes.returns)
        points = normal_quantile((np.arange(self.quantiles) + 0.5) / self.quantiles)
        network = Network(sizes.inputs, self.hidden, points, generator)
        return QuantileModel(network, self.quantiles, self.huber)
