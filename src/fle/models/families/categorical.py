"""The categorical algorithm: atoms on a full grid over the return range."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Law, Sizes, pick
from fle.models.network import Network
from fle.models.objectives import GradientObjective, Transition
from fle.models.specs import ModelSpec, Moments, grid_cells, range_frame
from fle.models.support import SUMS, common_spacing
from fle.recipe import Resolved

# Default resolutions by dimension. All the mass of an atom is at one place, so that it takes more
# of them than of a histogram's bins.
ATOMS = {1: 150, 2: 30, 3: 12}


class CategoricalLaw(Law):
    """Probabilities on atoms^d points of [-1, 1]^d: the categorical algorithm in any dimension.

    Bellemare, Dabney, Munos (2017).
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

    def draw(
        self, conditioned: Float[Array, " cells"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """An atom by its mass."""
        cell = jnp.unravel_index(
            pick(jnp.cumsum(conditioned), uniforms[0]), (self.atoms,) * self.return_dim
        )
        return jnp.stack(cell) * 2 / (self.atoms - 1) - 1


class Projection(GradientObjective):
    """Cross-entropy against the Bellman target, projected on the atoms.

    The target's atoms are moved by the Bellman update and their mass is shared among the 2^d
    nearest atoms. The grid is a product and the update acts on each coordinate by itself, so the
    projection is one interpolation a coordinate.
    """

    def prepare(
        self, law: CategoricalLaw, previous: CategoricalLaw, transition: Transition
    ) -> Float[Array, " cells"]:
        """Projected probabilities of r + discount * y, exact over next actions and returns."""
        mass = transition.probabilities @ transition.at_candidates(previous.condition)
        mass = mass.reshape((law.atoms,) * law.return_dim)
        points = jnp.linspace(-1, 1, law.atoms)
        for axis in range(law.return_dim):
            moved = transition.reward[axis] + transition.discount[axis] * points
            mass = _project(mass, moved, axis)
        return mass.reshape(-1)

    def loss(
        self,
        law: CategoricalLaw,
        inputs: Float[Array, "rows inputs"],
        targets: Float[Array, "rows cells"],
    ) -> Float[Array, ""]:
        """Cross-entropy against the projected targets."""
        logs = jax.nn.log_softmax(jax.vmap(law.network)(inputs), axis=1)
        return -jnp.mean(jnp.sum(targets * logs, axis=1))


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
class Categorical(ModelSpec):
    """The categorical algorithm with its projection, on a grid of atoms, any dimension.

    p(z | x, a) = sum_k w_k(x, a) [z = z_k], the z_k a grid over the return range. The atoms of a
    target r + gamma z_k are shared among their neighbours (Bellemare, Dabney & Munos 2017).

    atoms: atoms a coordinate; None for 151 in one dimension, 31 in two, 13 in three.
    hidden: widths of the hidden layers.

    Example: `fle.evaluate(data, policy, horizon=20, model=fle.Categorical(atoms=51))`.
    """

    atoms: int | None = None
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "categorical"
    reads_codes: ClassVar[bool] = True

    def build(
        self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator
    ) -> CategoricalLaw:
        """Equal mass everywhere."""
        atoms = self.atoms or 1 + ATOMS.get(sizes.returns, 12)
        cells = grid_cells("Categorical", atoms, sizes.returns)
        network = Network(sizes.inputs, self.hidden, np.zeros(cells), generator, codes=sizes.codes)
        return CategoricalLaw(network, atoms, sizes.returns)

    def objective(self, recipe: Resolved) -> Projection:
        """Cross-entropy against the projected target."""
        return Projection()

    def frame(self, samples: np.ndarray) -> Moments:
        """The range of the targets and a margin; or atoms on the lattice that the targets lie on.

        On a lattice that has no more points than there are atoms, targets fall on atoms, and the
        projection is exact.
        """
        atoms = self.atoms or 1 + ATOMS.get(samples.shape[1], 12)
        centre, scale = (np.array(part, float) for part in range_frame(samples))
        for place, column in enumerate(samples.T.astype(float)):
            low, spacing = common_spacing(column, float(column.min()), SUMS)
            points = 0 if spacing == 0 else 1 + round((float(column.max()) - low) / spacing)
            if 1 < points <= atoms:
                scale[place] = spacing * (atoms - 1) / 2
                centre[place] = low - spacing * ((atoms - points) // 2) + scale[place]
        return centre, scale
