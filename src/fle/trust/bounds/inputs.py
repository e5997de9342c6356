"""Checks of what the bounds are given: a wrong input makes a guarantee that holds for nothing."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError

FloatArray = NDArray[np.float64]


def coverage_of(coverage: float) -> float:
    """C >= 1; infinity is allowed and gives an infinite bound."""
    value = _number("coverage", coverage, "at least 1")
    if not value >= 1:
        raise SettingsError(
            f"coverage must be at least 1, got {coverage!r}. Data covers a policy no better than "
            "the policy itself does; where a computed constant is smaller, give 1."
        )
    return value


def probability_of(name: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    checked = _number(name, value, "strictly between 0 and 1")
    if not 0 < checked < 1:
        raise SettingsError(f"{name} must lie strictly between 0 and 1, got {value!r}.")
    return checked


def count_of(name: str, value: float) -> int:
    """A whole number of at least 1."""
    checked = _number(name, value, "a whole number of at least 1")
    if not (checked >= 1 and checked.is_integer()):
        raise SettingsError(f"{name} must be a whole number of at least 1, got {value!r}.")
    return int(checked)


def positive(name: str, value: float) -> float:
    """A finite number above 0."""
    checked = _number(name, value, "positive")
    if not 0 < checked < math.inf:
        raise SettingsError(f"{name} must be positive and finite, got {value!r}.")
    return checked


def not_negative(name: str, value: float) -> float:
    """A number of at least 0."""
    checked = _number(name, value, "at least 0")
    if not checked >= 0:
        raise SettingsError(f"{name} must be at least 0, got {value!r}.")
    return checked


def discount_of(gamma: float) -> float:
    """0 <= gamma < 1."""
    checked = _number("gamma", gamma, "in [0, 1)")
    if not 0 <= checked < 1:
        raise SettingsError(
            f"gamma must lie in [0, 1), got {gamma!r}. For gamma = 1 use the finite-horizon bounds."
        )
    return checked


def order_of(order: float) -> float:
    """Order p >= 1 of a Wasserstein distance."""
    checked = _number("order", order, "at least 1")
    if not 1 <= checked < math.inf:
        raise SettingsError(f"order must be at least 1 and finite, got {order!r}.")
    return checked


def errors_of(zetas: ArrayLike) -> FloatArray:
    """Errors of the stages, (stages,), none negative."""
    return _line("zetas", zetas)


def of_every_step(name: str, values: ArrayLike, horizon: int) -> FloatArray:
    """One number for all steps, or one a step: (horizon,), none negative."""
    given = _line(name, np.atleast_1d(np.asarray(values, dtype=float)))
    if given.size not in (1, horizon):
        raise SettingsError(
            f"{name} must be one number or one a step ({horizon}), got {given.size}."
        )
    return np.broadcast_to(given, (horizon,))


def second_moment(name: str, matrix: ArrayLike) -> FloatArray:
    """A finite symmetric matrix."""
    values = np.asarray(matrix, dtype=float)
    square = values.ndim == 2 and values.shape[0] == values.shape[1]
    if not (square and np.all(np.isfinite(values)) and np.allclose(values, values.T)):
        raise SettingsError(
            f"{name} must be a finite symmetric matrix E[phi phiᵀ], got shape {values.shape}."
        )
    return values


def _line(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0 or not np.all(array >= 0):
        raise SettingsError(
            f"{name} must be a non-empty 1-d array of numbers that are at least 0, got {values!r}."
        )
    return array


def _number(name: str, value: float, expected: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise SettingsError(f"{name} must be a number {expected}, got {value!r}.") from None
