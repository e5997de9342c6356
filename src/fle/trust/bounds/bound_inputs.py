"""Checks of what the bounds are given: a wrong input makes a guarantee that holds for nothing."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError

FloatArray = NDArray[np.float64]


def coverage_of(coverage: float) -> float:
    """C >= 1; infinity is allowed and gives an infinite bound."""
    hint = (
        "; data covers a policy no better than the policy itself does: where a computed constant is"
        " smaller, give 1"
    )
    return _number("coverage", coverage, "of at least 1", lambda value: value >= 1, hint)


def finite_coverage_of(coverage: float) -> float:
    """1 <= C < infinity, where an infinite bound is of no use."""
    value = coverage_of(coverage)
    if math.isinf(value):
        raise SettingsError(
            "coverage: expected a finite number, got infinity; no number of such rows is enough"
        )
    return value


def probability_of(name: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    return _number(name, value, "strictly between 0 and 1", lambda number: 0 < number < 1)


def count_of(name: str, value: float) -> int:
    """A whole number of at least 1."""
    return int(
        _number(
            name,
            value,
            "that is whole and at least 1",
            lambda number: number >= 1 and number.is_integer(),
        )
    )


def positive(name: str, value: float) -> float:
    """A finite number above 0."""
    return _number(name, value, "that is positive and finite", lambda number: 0 < number < math.inf)


def not_negative(name: str, value: float) -> float:
    """A number of at least 0."""
    return _number(name, value, "of at least 0", lambda number: number >= 0)


def discount_of(gamma: float) -> float:
    """0 <= gamma < 1."""
    hint = "; for gamma = 1 use the finite-horizon bounds"
    return _number("gamma", gamma, "in [0, 1)", lambda number: 0 <= number < 1, hint)


def order_of(order: float) -> float:
    """Order p >= 1 of a Wasserstein distance."""
    return _number(
        "order", order, "that is at least 1 and finite", lambda number: 1 <= number < math.inf
    )


def errors_of(zetas: ArrayLike) -> FloatArray:
    """Errors of the stages, (stages,), none negative."""
    return _line("zetas", zetas)


def of_every_step(name: str, values: ArrayLike, horizon: int) -> FloatArray:
    """One number for all steps, or one a step: (horizon,), none negative."""
    given = _line(name, np.atleast_1d(np.asarray(values, dtype=float)))
    if given.size not in (1, horizon):
        raise SettingsError(
            f"{name}: expected one number or one a step ({horizon}), got {given.size}"
        )
    return np.broadcast_to(given, (horizon,))


def second_moment(name: str, matrix: ArrayLike) -> FloatArray:
    """A finite symmetric matrix."""
    values = np.asarray(matrix, dtype=float)
    square = values.ndim == 2 and values.shape[0] == values.shape[1]
    if not (square and np.all(np.isfinite(values)) and np.allclose(values, values.T)):
        raise SettingsError(
            f"{name}: expected a finite symmetric matrix E[phi phiᵀ], got shape {values.shape}"
        )
    return values


def _line(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0 or not np.all(array >= 0):
        raise SettingsError(
            f"{name}: expected a non-empty 1-d array of numbers of at least 0, got {values!r}"
        )
    return array


def _number(
    name: str, value: float, expected: str, holds: Callable[[float], bool], hint: str = ""
) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    # Every condition fails for NaN.
    if not holds(number):
        raise SettingsError(f"{name}: expected a number {expected}, got {value!r}{hint}")
    return number
