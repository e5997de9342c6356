"""Where returns can lie: what rewards allow, values that many targets share, and lattices."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fle.models.law import placed

# How many atoms a coordinate may have; fewer are filled up with infinity, which nothing is near.
MOST_ATOMS = 64
# Standard deviations of a blurred atom in its band, the most that one is, and how far from an atom
# float32 may leave it, in units of the return scale.
BAND_WIDTHS, MOST_BLUR, TIE = 3.5, 0.05, 1e-4
# Different values that may have a lattice; how fine one may be, as a share of the largest gap; and
# what single precision leaves of decimal numbers, and of their sums.
MOST_VALUES, FINEST, DECIMALS, SUMS = 1_000, 1e-4, 1e-7, 1e-6
# Targets that must share a value, up to float32's digits, for it to be an atom.
LEAST_TIES = 8
DIGITS = 1e-6
# Share of an atom's own targets that others may be in its band, and the most that a band may be,
# in units of the return scale.
OTHERS, WIDEST = 0.02, 0.25


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

    @property
    def has_atoms(self) -> Bool[Array, ""]:
        """Most continuous returns have none, and then nothing is looked for."""
        return jnp.isfinite(self.atoms).any()

    def project(self, returns: Float[Array, "*shape d"]) -> Float[Array, "*shape d"]:
        """Returns as they may be: an atom where one is near, else inside the limits.

        What lies beyond a limit is reflected: cut off, it would make an atom of the limit.
        """
        inside = jnp.where(returns < self.low, 2 * self.low - returns, returns)
        inside = jnp.where(inside > self.high, 2 * self.high - inside, inside)
        inside = jnp.clip(inside, self.low, self.high)

        def on_atoms() -> Float[Array, "*shape d"]:
            atom, band = self._nearest(returns)
            return jnp.where(jnp.abs(returns - atom) <= band, atom, inside)

        return jax.lax.cond(self.has_atoms, on_atoms, lambda: inside)

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
        """The nearest atom and its band. Atoms are in order: counting is faster than a search.

        Counted one atom after another, in one loop: a sum over an axis would be written out first.
        """
        halfway = (self.atoms[:, 1:] + self.atoms[:, :-1]) / 2
        nearest = sum((returns > level).astype(jnp.int32) for level in halfway.T)
        # Places in one row of all coordinates' atoms: an index of two numbers takes longer to make.
        places = nearest + self.atoms.shape[1] * jnp.arange(self.atoms.shape[0])
        return self.atoms.reshape(-1)[places], self.bands.reshape(-1)[places]


class Lattice(NamedTuple):
    """Points origin + k · spacing, for whole numbers k; no lattice where the spacing is 0."""

    origin: np.ndarray
    spacing: np.ndarray

    def nearest(self, returns: np.ndarray) -> np.ndarray:
        """The nearest point to each of the returns (n, d)."""
        exists = self.spacing > 0
        spacing = np.where(exists, self.spacing, 1.0)
        points = self.origin + spacing * np.round((returns - self.origin) / spacing)
        return np.where(exists, points, returns)


def lattice_of(rewards: np.ndarray, terminations: np.ndarray) -> Lattice:
    """The coarsest lattice that holds all rewards (n, d), if there is one.

    A sum of h rewards then lies on the lattice h · origin + k · spacing. Where an episode may end
    early, h is not known, and the lattice must have the point 0.
    """
    ends = bool(terminations.any())
    found = [
        common_spacing(column, origin=0.0 if ends else float(column.min()))
        for column in rewards.T.astype(float)
    ]
    origin, spacing = (np.array(part) for part in zip(*found, strict=True))
    return Lattice(origin, spacing)


def common_spacing(
    values: np.ndarray, origin: float, precision: float = DECIMALS
) -> tuple[float, float]:
    """The origin, and the largest number that all values (n,) are away from it by multiples of.

    0 and 0 if there is none, or one so fine that it says nothing.
    precision: relative to the largest value.
    """
    tolerance = precision * float(np.abs(values).max())
    ordered = np.unique(values)
    # Equal up to rounding: the first of each run.
    ordered = ordered[np.append(True, np.diff(ordered) > tolerance)]
    gaps = np.abs(ordered - origin)
    gaps = gaps[gaps > tolerance]
    if gaps.size == 0 or ordered.size > MOST_VALUES:
        return 0.0, 0.0
    spacing = float(gaps[0])
    for gap in gaps[1:]:
        # Euclid's algorithm, up to rounding.
        rest = float(gap)
        while rest > 4 * tolerance:
            spacing, rest = rest, abs(spacing - rest * round(spacing / rest))
    if spacing < max(FINEST * gaps.max(), 100 * tolerance):
        return 0.0, 0.0
    # As near as all of them together can tell.
    counts = np.round(gaps / spacing)
    spacing = float(counts @ gaps / (counts @ counts))
    exact = np.abs(gaps - counts * spacing).max() <= 8 * tolerance
    return (origin, spacing) if exact else (0.0, 0.0)


def return_limits(
    rewards: np.ndarray, terminations: np.ndarray, gamma: float, horizon: int | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Least and largest return over 1, 2, ..., `horizon` steps; without one, discounted.

    Rewards stay within those logged. A row adds its reward to what may follow, unless it
    terminated: low = min(r_end, r + gamma low), and high likewise.
    """
    ends = [_least(sign * rewards[terminations]) for sign in (1, -1)]
    goes_on = [_least(sign * rewards[~terminations]) for sign in (1, -1)]
    if horizon is None:
        low, high = (np.fmin(end, go / (1 - gamma)) for end, go in zip(ends, goes_on, strict=True))
        return [(low, -high)]
    found, limits = [np.zeros(rewards.shape[1])] * 2, []
    for step in range(horizon):
        ahead = zip(ends, goes_on, found, strict=True)
        # The last step of a horizon ends there, whichever row it is.
        found = [np.fmin(end, go + (gamma * value if step else 0)) for end, go, value in ahead]
        limits.append((found[0], -found[1]))
    return limits


def _least(rewards: np.ndarray) -> np.ndarray:
    """NaN where there are none."""
    return rewards.min(axis=0) if len(rewards) else np.full(rewards.shape[1], np.nan)


def anywhere(dim: int) -> Support:
    """No limits and no atoms."""
    limits, atoms = np.full(dim, np.inf), np.full((dim, MOST_ATOMS), np.inf)
    return Support(*map(placed, (-limits, limits, atoms, np.zeros_like(atoms))))


def support_of(targets: np.ndarray, limits: Sequence[np.ndarray]) -> Support:
    """The support of a fit to these targets (n, d), in the same units."""
    found = [atoms_of(column) for column in targets.T]
    atoms, bands = (np.stack(part) for part in zip(*found, strict=True))
    return Support(*map(placed, (*limits, atoms, bands)))


def atoms_of(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values that at least LEAST_TIES of the targets (n,) share, and the band around each.

    The band ends where other targets begin, halfway to the next atom, or, where there are any
    others, at a share of the scale.
    """
    atoms, bands = np.full(MOST_ATOMS, np.inf), np.zeros(MOST_ATOMS)
    values, size = np.sort(targets), float(np.abs(targets).max())
    scale = float(targets.std())
    if scale <= 1e-5 * size:
        # A sure return: as wide as its frame.
        scale = 1e-2 * size if size > 0 else 1.0
    apart = np.diff(values) > DIGITS * np.maximum(np.abs(values[1:]), 1e-3 * scale)
    starts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    counts = np.diff(np.append(starts, values.size))
    # The value in the middle of the ties; a run of close values that are not equal is no atom.
    middles = values[starts + counts // 2]
    widths = values[starts + counts - 1] - values[starts]
    tied = (counts >= LEAST_TIES) & (widths <= 4 * DIGITS * np.maximum(np.abs(middles), scale))
    chosen = np.flatnonzero(tied)
    chosen = np.sort(chosen[np.argsort(-counts[chosen], kind="stable")[:MOST_ATOMS]])
    if chosen.size == 0:
        return atoms, bands
    others = np.sort(
        np.repeat(middles, np.where(np.isin(np.arange(counts.size), chosen), 0, counts))
    )
    found = middles[chosen]
    gaps = np.diff(found) / 2
    room = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    if others.size or chosen.size == 1:
        room = np.minimum(room, WIDEST * scale)
    for place, (value, count) in enumerate(zip(found, counts[chosen], strict=True)):
        distances = np.sort(np.abs(others - value))
        allowed = int(OTHERS * count)
        free = distances[allowed] / 2 if allowed < distances.size else np.inf
        atoms[place], bands[place] = value, min(room[place], free)
    return atoms, bands
