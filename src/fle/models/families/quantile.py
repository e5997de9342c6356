"""Quantile-regression TD, the classic rival: scalar returns only."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri as normal_quantile

from fle.models.law import Law, Sizes
from fle.models.network import Network
from fle.models.objectives import GradientObjective, Transition
from fle.models.specs import ModelSpec, require_scalar
from fle.recipe import Resolved


class WeightedPoints(NamedTuple):
    """A discrete target distribution."""

    points: Float[Array, " k"]
    weights: Float[Array, " k"]


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def pairwise_huber(
    points: Float[Array, " quantiles"], target: WeightedPoints, huber: float
) -> Float[Array, ""]:
    """Quantile Huber loss, summed over the points, averaged over the target."""
    return _loss_and_gradient(points, target, huber)[0]


@pairwise_huber.defjvp
def _(huber: float, values: Any, tangents: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The target is data: only the points move."""
    points, target = values
    loss, gradient = _loss_and_gradient(points, target, huber)
    return loss, gradient @ tangents[0]


def _loss_and_gradient(
    points: Float[Array, " quantiles"], target: WeightedPoints, huber: float
) -> tuple[Float[Array, ""], Float[Array, " quantiles"]]:
    """Loss and its derivative by the points in one pass over the target.

    The table of all pairs is never held: it is far larger than the cache.
    """
    levels = (jnp.arange(points.size) + 0.5) / points.size

    def add(sums: Any, point: Any) -> tuple[Any, None]:
        losses, gradients = sums
        place, weight = point
        error = place - points
        clipped = jnp.clip(error, -huber, huber)
        gradient = weight * jnp.where(error < 0, 1 - levels, levels) * clipped
        return (losses + gradient * (error - 0.5 * clipped), gradients - gradient), None

    start = (jnp.zeros_like(points), jnp.zeros_like(points))
    (losses, gradients), _ = jax.lax.scan(add, start, tuple(target), unroll=5)
    return jnp.sum(losses) / huber, gradients / huber


class QuantileLaw(Law):
    """n equally weighted points at the levels (i + 1/2)/n. Not a density."""

    network: Network
    quantiles: int = eqx.field(static=True)

    smooth_draws: ClassVar[bool] = True

    @property
    def noise_size(self) -> int:
        """One number picks the point."""
        return 1

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " quantiles"]:
        """The points at one input."""
        return self.network(inputs)

    def draw(
        self, conditioned: Float[Array, " quantiles"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """One of the points, all equally likely."""
        place = jnp.clip(jnp.floor(uniforms[0] * self.quantiles), 0, self.quantiles - 1)
        return conditioned[place.astype(int)][None]


class QuantileRegression(GradientObjective):
    """The pairwise quantile Huber loss. Dabney, Rowland, Bellemare, Munos (2018).

    huber: threshold of the Huber loss, in units of the return scale.
    """

    huber: float = eqx.field(static=True)

    def prepare(
        self, law: QuantileLaw, previous: QuantileLaw, transition: Transition
    ) -> WeightedPoints:
        """All moved points of all candidate actions."""
        points = transition.at_candidates(previous.condition)
        weights = jnp.broadcast_to(transition.probabilities[:, None] / law.quantiles, points.shape)
        moved = transition.reward[0] + transition.discount[0] * points
        return WeightedPoints(moved.reshape(-1), weights.reshape(-1))

    def loss(
        self, law: QuantileLaw, inputs: Float[Array, "rows inputs"], targets: WeightedPoints
    ) -> Float[Array, ""]:
        """Quantile Huber loss of every point against every target point."""
        points = jax.vmap(law.network)(inputs)
        return jnp.mean(jax.vmap(lambda p, t: pairwise_huber(p, t, self.huber))(points, targets))


@dataclass(frozen=True)
class Quantile(ModelSpec):
    """Quantile-regression TD with the pairwise Huber loss; scalar returns only.

    N points q_i(x, a) of equal weight, each trained to be the quantile of level (i - 1/2) / N of
    the targets (Dabney et al. 2018).

    quantiles: number of points.
    huber: threshold of the Huber loss, as a share of the return scale.
    hidden: widths of the hidden layers.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.Quantile(quantiles=100))`.
    """

    quantiles: int = 50
    huber: float = 0.05
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "quantile"
    reads_codes: ClassVar[bool] = True

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> QuantileLaw:
        """Points that start at the quantiles of a standard normal."""
        require_scalar("Quantile", sizes.returns)
        points = normal_quantile((np.arange(self.quantiles) + 0.5) / self.quantiles)
        network = Network(sizes.inputs, self.hidden, points, generator, codes=sizes.codes)
        return QuantileLaw(network, self.quantiles)

    def objective(self, recipe: Resolved) -> QuantileRegression:
        """The pairwise Huber loss."""
        return QuantileRegression(self.huber)
