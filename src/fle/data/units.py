"""The centre and the spread of columns, whatever their units."""

import numpy as np

from fle.data.threads import Array

SMALLEST = np.finfo(np.float64).smallest_subnormal


def centre_and_scale(values: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each column (n, p), in float64; 1 where a column is constant.

    Constant means that all values are equal. No spread is too small: it may be the unit.
    """
    low, high = (bound.astype(np.float64) for bound in (values.min(axis=0), values.max(axis=0)))
    constant = low == high
    span = np.where(constant, 1.0, high - low)
    # From 0 to 1: an offset costs no digits, and no square is too large or too small.
    shares = (values.astype(np.float64) - low) / span
    scale = np.maximum(shares.std(axis=0) * span, SMALLEST)
    return low + span * shares.mean(axis=0), np.where(constant, 1.0, scale)
