"""Draws and checks that several tasks share."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def draw_categorical(probabilities: ArrayLike, generator: np.random.Generator) -> IntArray:
    """One index a row from row-wise probabilities (n, k), by inverting the cumulative sum."""
    cumulative = np.cumsum(np.asarray(probabilities, dtype=float), axis=-1)
    # Scaling by the last entry keeps a rounding error from ever choosing an index beyond it.
    thresholds = generator.random(len(cumulative))[:, None] * cumulative[:, -1:]
    return (thresholds >= cumulative).sum(axis=-1)


def checked_distribution(name: str, probabilities: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Probabilities over the last axis, of exactly this shape."""
    values = np.asarray(probabilities, dtype=float)
    if values.shape != shape:
        raise SettingsError(f"{name}: expected shape {shape}, got {values.shape}")
    sums = values.sum(axis=-1)
    if not (np.all(values >= 0) and np.allclose(sums, 1.0, atol=1e-9)):
        raise SettingsError(
            f"{name}: expected probabilities that sum to 1 over the last axis, got a smallest of"
            f" {values.min():.6g} and sums from {sums.min():.6g} to {sums.max():.6g}"
        )
    return values


def require_count(name: str, value: float) -> None:
    """At least 1 of something."""
    if not value >= 1:
        raise SettingsError(f"{name}: expected at least 1, got {value}")


def require_step(step: int, horizon: int) -> None:
    """A step counts from 0 and lies before the horizon."""
    if not 0 <= step < horizon:
        raise SettingsError(f"step: expected one of 0..{horizon - 1}, got {step}")


def require_discount(gamma: float) -> None:
    """A discount without a horizon lies in [0, 1)."""
    if not 0 <= gamma < 1:
        raise SettingsError(f"gamma: expected a number in [0, 1), got {gamma}")
