"""Risk functionals of a scalar return, as pure functions of a (weighted) sample."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import DataError, SettingsError


def checked_level(level: ArrayLike) -> NDArray[np.float64]:
    """The level(s) as floats, each strictly between 0 and 1."""
    levels = np.asarray(level, dtype=float)
    if not np.all((levels > 0) & (levels < 1)):
        raise SettingsError(
            f"A level must lie strictly between 0 and 1, but {levels} came. "
            "The worst 10% of returns is level=0.1."
        )
    return levels


def _ordered(
    samples: ArrayLike, weights: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sample in ascending order and the probability up to and including each value."""
    values = np.asarray(samples, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise DataError(
            f"Expected a non-empty sample of shape (n,), but shape {values.shape} came."
        )
    order = np.argsort(values, kind="stable")
    if weights is None:
        # Ranks rather than a running sum: k/n is exact where it matters, at level = k/n.
        return values[order], np.arange(1, values.size + 1) / values.size
    masses = np.asarray(weights, dtype=float)
    if masses.shape != values.shape or np.any(masses < 0) or not 0 < masses.sum() < np.inf:
        raise DataError(
            f"Expected {values.size} weights, non-negative with a positive sum, "
            f"but weights of shape {masses.shape} came."
        )
    cumulative = np.cumsum(masses[order])
    return values[order], cumulative / cumulative[-1]


def quantile(
    samples: ArrayLike, level: ArrayLike, weights: ArrayLike | None = None
) -> NDArray[np.float64]:
    """inf {z : P(Z <= z) >= level}, shaped like `level`."""
    levels = checked_level(level)
    values, cumulative = _ordered(samples, weights)
    # A running sum of weights may fall short of the level by a rounding error.
    positions = np.searchsorted(cumulative, levels * (1 - 1e-12), side="left")
    return values[np.minimum(positions, values.size - 1)]


def value_at_risk(samples: ArrayLike, level: float, weights: ArrayLike | None = None) -> float:
    """The level-quantile of the return: the best of the worst `level` share."""
    return float(quantile(samples, level, weights))


def cvar(samples: ArrayLike, level: float, weights: ArrayLike | None = None) -> float:
    """Mean of the worst `level` share, max over b of b - E[(b - Z)+] / level.

    Exact on the sample: the value at the boundary counts with the fraction of its mass that
    belongs to the tail (Rockafellar & Uryasev, 2002).
    """
    share = float(checked_level(level))
    values, cumulative = _ordered(samples, weights)
    masses_in_tail = np.diff(np.minimum(cumulative, share), prepend=0.0)
    return float(masses_in_tail @ values / masses_in_tail.sum())


def lower_partial_moment(
    samples: ArrayLike, threshold: float, order: float = 1, weights: ArrayLike | None = None
) -> float:
    """E[(threshold - Z)+ ^ order]: the expected shortfall below the threshold for order 1."""
    if not order > 0:
        raise SettingsError(
            f"order must be positive, but {order} came. For P(Z < threshold), order 0, "
            "use probability(below=threshold)."
        )
    shortfall = np.maximum(threshold - np.asarray(samples, dtype=float), 0.0) ** order
    masses = None if weights is None else np.asarray(weights, dtype=float)
    return float(np.average(shortfall, weights=masses))
