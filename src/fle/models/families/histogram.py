"""Densities on a full grid over the return range."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Density, Sizes, pick
from fle.models.network import Network
from fle.models.objectives import Likelihood
from fle.models.specs import ModelSpec, Moments, grid_cells, range_frame
from fle.recipe import Resolved

# Default resolutions by dimension: as fine as the cell limit and the data can sensibly carry.
BINS = {1: 100, 2: 30, 3: 12}


class HistogramLaw(Density):
    """Piecewise-uniform density on bins^d equal cells of [-1, 1]^d, and zero outside.

    In training a target outside the range counts for the nearest edge cell.
    """

    bounded: ClassVar[bool] = True
    network: Network
    bins: int = eqx.field(static=True)
    return_dim: int = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number picks the cell, d place the return in it."""
        return 1 + self.return_dim

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log mass of the cell that holds the return, divided by the cell's volume."""
        cell = jnp.clip(jnp.floor((returns + 1) / 2 * self.bins), 0, self.bins - 1).astype(int)
        place = jnp.ravel_multi_index(tuple(cell), (self.bins,) * self.return_dim, mode="clip")
        logits = self.network(inputs)
        volume = self.return_dim * np.log(2 / self.bins)
        inside = jnp.all(jnp.abs(returns) <= 1)
        return jnp.where(inside, logits[place] - jax.nn.logsumexp(logits) - volume, -jnp.inf)

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " cells"]:
        """Cumulative mass of the cells, last coordinate fastest."""
        return jnp.cumsum(jax.nn.softmax(self.network(inputs)))

    def draw(
        self, conditioned: Float[Array, " cells"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """A cell by its mass, then a uniform point in it."""
        cell = jnp.unravel_index(pick(conditioned, uniforms[0]), (self.bins,) * self.return_dim)
        return (jnp.stack(cell) + uniforms[1:]) * 2 / self.bins - 1


@dataclass(frozen=True)
class Histogram(ModelSpec):
    """Piecewise-uniform density on a grid over the return range, any dimension.

    p(z | x, a) = w_k(x, a) / volume in cell k, and zero outside of the grid.

    bins: cells a coordinate; None for 100 in one dimension, 30 in two, 12 in three.
    hidden: widths of the hidden layers.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.Histogram(bins=50))`.
    """

    bins: int | None = None
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "histogram"
    reads_codes: ClassVar[bool] = True

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> HistogramLaw:
        """A uniform density."""
        bins = self.bins or BINS.get(sizes.returns, 12)
        cells = grid_cells("Histogram", bins, sizes.returns)
        network = Network(sizes.inputs, self.hidden, np.zeros(cells), generator, codes=sizes.codes)
        return HistogramLaw(network, bins, sizes.returns)

    def objective(self, recipe: Resolved) -> Likelihood:
        """Maximum likelihood; targets outside the range count for the nearest edge cell."""
        return Likelihood(edge=1.0)

    def frame(self, samples: np.ndarray) -> Moments:
        """The range of the targets and a margin."""
        return range_frame(samples)
