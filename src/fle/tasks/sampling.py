"""Random draws that several tasks share."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError


def draw_categorical(probabilities: ArrayLike, generator: np.random.Generator) -> NDArray[np.int64]:
    """One index a row from row-wise probabilities (n, k), by inverting the cumulative sum."""
    cumulative = np.cumsum(np.asarray(probabilities, dtype=float), axis=-1)
    # Scaling by the last entry keeps a rounding error from ever choosing an index beyond it.
    thresholds = generator.random(len(cumulative))[:, None] * cumulative[:, -1:]
    return (thresholds >= cumulative).sum(axis=-1)


def checked_distribution(
    name: str, probabilities: ArrayLike, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Probabilities over the last axis, of exactly this shape."""
    values = np.asarray(probabilities, dtype=float)
    if values.shape != shape:
        raise SettingsError(f"{name} must have shape {shape}; {values.shape} came.")
    if not (np.all(values >= 0) and np.allclose(values.sum(axis=-1), 1.0, atol=1e-9)):
        raise SettingsError(f"{name} must be non-negative and sum to 1 over its last axis.")
    return values
