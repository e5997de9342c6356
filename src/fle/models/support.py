"""Where returns can lie: what logged rewards allow, and the values that many of them share."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

# How many atoms a coordinate may have; fewer are filled up with infinity, which nothing is near.
MOST_ATOMS = 64


class Support(NamedTuple):
    """The least and the largest return, and its atoms: values of positive probability.

    A smooth law shows an atom as a narrow peak. A draw that is nearer to an atom than its `band`
    is taken for it. Atoms are in ascending order.
    """

    low: Float[Array, " d"]
    high: Float[Array, " d"]
    atoms: Float[Array, "d atoms"]
    bands: Float[Array, "d atoms"]

    def standardised(self, centre: Float[Array, " d"], scale: Float[Array, " d"]) -> "Support":
        """The same in units of a frame."""
        low, high = (self.low - centre) / scale, (self.high - centre) / scale
        atoms = (self.atoms - centre[:, None]) / scale[:, None]
        return Support(low, high, atoms, self.bands / scale[:, None])

    def project(self, returns: Float[Array, "*shape d"]) -> Float[Array, "*shape d"]:
        """Returns as they may be: an atom where one is near, else inside the limits.

        What lies beyond a limit is reflected: cut off, it would make an atom of the limit.
        """
        inside = jnp.where(returns < self.low, 2 * self.low - returns, returns)
        inside = jnp.where(inside > self.high, 2 * self.high - inside, inside)
        inside = jnp.clip(inside, self.low, self.high)
        # Atoms are in order: the nearest is found by counting, which is faster than a search.
        halfway = (self.atoms[:, 1:] + self.atoms[:, :-1]) / 2
        nearest = jnp.sum(returns[..., None] > halfway, axis=-1)
        coordinate = jnp.arange(self.atoms.shape[0])
        atom, band = self.atoms[coordinate, nearest], self.bands[coordinate, nearest]
        return jnp.where(jnp.abs(returns - atom) <= band, atom, inside)
