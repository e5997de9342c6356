"""In which units a model sees returns: centre and scale, from drawn targets of a stage."""

from typing import TypeAlias

import numpy as np

FrameRule: TypeAlias = "staticmethod[[np.ndarray], tuple[np.ndarray, np.ndarray]]"
RANGE_MARGIN = 1.1


def moments_frame(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale of unbounded models: mean and standard deviation."""
    return samples.mean(axis=0), _positive(samples.std(axis=0), samples)


def range_frame(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half-width of models on [-1, 1]: the sampled range and a margin."""
    low, high = samples.min(axis=0), samples.max(axis=0)
    return (low + high) / 2, _positive(RANGE_MARGIN * (high - low) / 2, samples)


def identity_frame(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Models that are defined in the units of the data."""
    return np.zeros(samples.shape[1]), np.ones(samples.shape[1])


def _positive(scale: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Constant returns have no spread: their scale is a hundredth of their size."""
    size = np.abs(samples).max(axis=0)
    return np.where(scale > 1e-5 * size, scale, np.where(size > 0, 1e-2 * size, 1.0))
