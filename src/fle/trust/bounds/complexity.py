"""What the bounds are given: checks, and bracketing numbers of the paper's two examples.

The paper measures brackets in supremum norm, which bounded returns need. The `_by_integral`
versions measure ∫ (upper - lower) dz instead: the maximum-likelihood lemma uses no more, and they
hold on unbounded returns such as Gaussian ones. Pair each with its `bracket_width`.
"""

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


def tabular_log_brackets(
    width: float, states: int, actions: int, density_bound: float, laws: int | None = None
) -> float:
    """log N <= SAK log⌈K r_∞/ε⌉ for mixtures of K known distributions in each of SA pairs.

    The paper's Lemma B.1, where K = SA and the constant is not given: a simplex of K weights
    needs ⌈1/η⌉^K brackets of side η, and side η widens the density by at most η K r_∞.

    Args:
        width: ε, largest width of a bracket in density units (one over return).
        states: S.
        actions: A.
        density_bound: r_∞, the largest density of any of them.
        laws: K; SA if not given.
    """
    pairs = count_of("states", states) * count_of("actions", actions)
    kinds = pairs if laws is None else count_of("laws", laws)
    ratio = kinds * positive("density_bound", density_bound) / positive("width", width)
    return pairs * kinds * math.log(math.ceil(ratio))


def tabular_log_brackets_by_integral(
    width: float, states: int, actions: int, laws: int | None = None
) -> float:
    """log N <= SAK log⌈K/ε⌉: side η widens the integral by η K, whatever they are.

    Arguments as for `tabular_log_brackets`, but `width` has no unit.
    """
    return tabular_log_brackets(width, states, actions, 1.0, laws)


def lqr_log_brackets(
    width: float,
    state_bound: float,
    action_bound: float,
    matrix_bounds: tuple[float, float, float],
    noise_std: float,
    state_dim: int,
    action_dim: int,
    remaining: int = 1,
) -> float:
    """log N <= Σ_i D_i log+(6 m_i G / (ε v √(2πe))), G = mx² + mx ma + ma² (Lemma B.3).

    v = remaining σ² is the variance, D = (dx², dx da, da²); a Gaussian's density changes by at most
    1/(v √(2πe)) with its mean, and a ball of radius m has a cover of (3m/η)^D points.

    Args:
        width: ε, largest width of a bracket in density units.
        state_bound: mx, largest norm of a state.
        action_bound: ma, largest norm of an action.
        matrix_bounds: (m1, m2, m3), largest Frobenius norms of M1 (x, x), M2 (a, x), M3 (a, a).
        noise_std: σ of one reward.
        state_dim: dx.
        action_dim: da.
        remaining: H - h + 1, rewards that the return adds up.
    """
    variance = count_of("remaining", remaining) * positive("noise_std", noise_std) ** 2
    mean_gap = positive("width", width) * variance * math.sqrt(2 * math.pi * math.e) / 2
    return _log_cover(mean_gap, state_bound, action_bound, matrix_bounds, state_dim, action_dim)


def lqr_log_brackets_by_integral(
    width: float,
    state_bound: float,
    action_bound: float,
    matrix_bounds: tuple[float, float, float],
    noise_std: float,
    state_dim: int,
    action_dim: int,
    remaining: int = 1,
) -> float:
    """log N <= Σ_i D_i log+(12 m_i G / (ε √(2πv))): the same class, usable with Gaussian returns.

    The envelope of Gaussians whose means lie within η of each other integrates to 1 + 2η/√(2πv),
    their minimum to at least 1 - 2η/√(2πv). Arguments as for `lqr_log_brackets`; `width` has no
    unit.
    """
    variance = count_of("remaining", remaining) * positive("noise_std", noise_std) ** 2
    mean_gap = positive("width", width) * math.sqrt(2 * math.pi * variance) / 4
    return _log_cover(mean_gap, state_bound, action_bound, matrix_bounds, state_dim, action_dim)


def _log_cover(
    mean_gap: float,
    state_bound: float,
    action_bound: float,
    matrix_bounds: tuple[float, float, float],
    state_dim: int,
    action_dim: int,
) -> float:
    """log of how many (M1, M2, M3) bring every mean within `mean_gap`."""
    x, a = positive("state_bound", state_bound), positive("action_bound", action_bound)
    dx, da = count_of("state_dim", state_dim), count_of("action_dim", action_dim)
    radius = mean_gap / (x * x + x * a + a * a)
    return sum(
        dimension * max(0.0, math.log(3 * positive("matrix_bounds", bound) / radius))
        for dimension, bound in zip((dx * dx, dx * da, da * da), matrix_bounds, strict=True)
    )
