"""Where returns can lie: what logged rewards allow, and the values that many of them share."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

# How many atoms a coordinate may have; fewer are filled up with infinity, which nothing is near.
MOST_ATOMS = 64
# Standard deviations of a blurred atom in its band, the most that one is, and how far from an atom
# float32 may leave it, in units of the return scale.
BAND_WIDTHS, MOST_BLUR, TIE = 3.5, 0.05, 1e-4


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
        atom, band = self._nearest(returns)
        return jnp.where(jnp.abs(returns - atom) <= band, atom, inside)

    def blurred(
        self, returns: Float[Array, "*shape d"], noise: Float[Array, "*shape d"]
    ) -> Float[Array, "*shape d"]:
        """Atoms as narrow peaks, inside their bands, from standard normal noise; in a frame.

        A density that must grow without bound is not learned reliably.
        """
        atom, band = self._nearest(returns)
        width = jnp.minimum(band / BAND_WIDTHS, MOST_BLUR)
        return jnp.where(jnp.abs(returns - atom) <= TIE, atom + width * noise, returns)

    def _nearest(
        self, returns: Float[Array, "*shape d"]
    ) -> tuple[Float[Array, "*shape d"], Float[Array, "*shape d"]]:
        """The nearest atom and its band. Atoms are in order: counting is faster than a search."""
        halfway = (self.atoms[:, 1:] + self.atoms[:, :-1]) / 2
        nearest = jnp.sum(returns[..., None] > halfway, axis=-1)
        coordinate = jnp.arange(self.atoms.shape[0])
        return self.atoms[coordinate, nearest], self.bands[coordinate, nearest]
