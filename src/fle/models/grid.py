"""Models on a full grid over the return range: histogram (density) and categorical (atoms)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.errors import ModelError
from fle.models.base import (
    GradientModel,
    LikelihoodModel,
    Sizes,
    Transition,
    candidate_outputs,
    pick,
)
from fle.models.frames import FrameRule, range_frame
from fle.models.hyperparameters import Hyperparameters
from fle.models.network import Network

CELL_LIMIT = 20_000
# Default resolutions by dimension: as fine as the cell limit and the data can sensibly carry. All
# the mass of an atom is at one place, so that it takes more of them.
BINS = {1: 100, 2: 30, 3: 12}
ATOMS = {1: 150, 2: 30, 3: 12}


class HistogramModel(LikelihoodModel):
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

    def loss(
        self, inputs: Float[Array, " inputs"], target: Float[Array, "draws d"]
    ) -> Float[Array, ""]:
        """Negative log likelihood of the draws, moved into the range."""
        return super().loss(inputs, jnp.clip(target, -1, 1))

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
        self, law: Float[Array, " cells"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """A cell by its mass, then a uniform point in it."""
        cell = jnp.unravel_index(pick(law, uniforms[0]), (self.bins,) * self.return_dim)
        return (jnp.stack(cell) + uniforms[1:]) * 2 / self.bins - 1


class CategoricalModel(GradientModel):
    """Probabilities on atoms^d points of [-1, 1]^d: the categorical algorithm in any dimension.

    The target's atoms are moved by the Bellman update and their mass is shared among the 2^d
    nearest atoms. The grid is a product and the update acts on each coordinate by itself, so the
    projection is one interpolation a coordinate. Bellemare, Dabney, Munos (2017).
    """

    bounded: ClassVar[bool] = True
    network: Network
    atoms: int = eqx.field(static=True)
    return_dim: int = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number picks the atom."""
        return 1

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " cells"]:
        """Mass of every atom, last coordinate fastest."""
        return jax.nn.softmax(self.network(inputs))

    def prepare(self, previous: Self, transition: Transition) -> Float[Array, " cells"]:
        """Projected probabilities of r + discount * y, exact over next actions and returns."""
        mass = transition.probabilities @ candidate_outputs(previous.condition, transition)
        mass = mass.reshape((self.atoms,) * self.return_dim)
        points = jnp.linspace(-1, 1, self.atoms)
        for axis in range(self.return_dim):
            moved = transition.reward[axis] + transition.discount[axis] * points
            mass = _project(mass, moved, axis)
        return mass.reshape(-1)

    def loss(
        self, inputs: Float[Array, " inputs"], target: Float[Array, " cells"]
    ) -> Float[Array, ""]:
        """Cross-entropy against the projected target."""
        return -jnp.vdot(target, jax.nn.log_softmax(self.network(inputs)))

    def draw(
        self, law: Float[Array, " cells"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """An atom by its mass."""
        cell = jnp.unravel_index(
            pick(jnp.cumsum(law), uniforms[0]), (self.atoms,) * self.return_dim
        )
        return jnp.stack(cell) * 2 / (self.atoms - 1) - 1


def _project(
    mass: Float[Array, "..."], moved: Float[Array, " atoms"], axis: int
) -> Float[Array, "..."]:
    """Share the mass of the moved points of one axis between their two neighbours on the grid."""
    atoms = moved.shape[0]
    position = jnp.clip((moved + 1) / 2 * (atoms - 1), 0, atoms - 1)
    left = jnp.clip(jnp.floor(position), 0, atoms - 2).astype(int)
    share = (position - left).reshape((-1,) + (1,) * (mass.ndim - 1))
    mass = jnp.moveaxis(mass, axis, 0)
    projected = jnp.zeros_like(mass).at[left].add((1 - share) * mass)
    projected = projected.at[left + 1].add(share * mass)
    return jnp.moveaxis(projected, 0, axis)


@dataclass(frozen=True)
class Histogram(Hyperparameters):
    """Piecewise-uniform density on a grid over the return range, any dimension.

    bins: cells a coordinate; None for 100 in one dimension, 30 in two, 12 in three.
    hidden: widths of the hidden layers.
    """

    bins: int | None = None
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "histogram"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(range_frame)

    def build(self, sizes: Sizes, generator: np.random.Generator) -> HistogramModel:
        """A uniform density."""
        bins = self.bins or BINS.get(sizes.returns, 12)
        cells = _cells("Histogram", bins, sizes.returns)
        network = Network(sizes.inputs, self.hidden, np.zeros(cells), generator)
        return HistogramModel(network, bins, sizes.returns)


@dataclass(frozen=True)
class Categorical(Hyperparameters):
    """The categorical algorithm with its projection, on a grid of atoms, any dimension.

    atoms: atoms a coordinate; None for 151 in one dimension, 31 in two, 13 in three.
    hidden: widths of the hidden layers.
    """

    atoms: int | None = None
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "categorical"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(range_frame)

    def build(self, sizes: Sizes, generator: np.random.Generator) -> CategoricalModel:
        """Equal mass everywhere."""
        atoms = self.atoms or 1 + ATOMS.get(sizes.returns, 12)
        cells = _cells("Categorical", atoms, sizes.returns)
        network = Network(sizes.inputs, self.hidden, np.zeros(cells), generator)
        return CategoricalModel(network, atoms, sizes.returns)


def _cells(model: str, per_dimension: int, returns: int) -> int:
    """Number of cells of a full grid, refused where it cannot be held or learned."""
    cells = per_dimension**returns
    if cells > CELL_LIMIT:
        raise ModelError(
            f"{model} would need {per_dimension}^{returns} = {cells:,} cells for a return of "
            f"{returns} coordinates (at most {CELL_LIMIT:,}). Use fewer cells a coordinate, or "
            "GMM, whose size does not grow with the dimension."
        )
    return cells
