"""What the bounds are given: how large a class is, and how well data covers a policy.

Sizes are bracketing numbers of the paper's two examples. The paper measures brackets in supremum
norm, which bounded returns need. The `_by_integral` versions measure ∫ (upper - lower) dz instead:
the maximum-likelihood lemma uses no more, and they hold on unbounded returns such as Gaussian ones.
Pair each with its `bracket_width`.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError

FloatArray = NDArray[np.float64]
# Directions in which the data varies less than this share of the most are taken for none.
NEGLIGIBLE = 1e-10


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


def density_ratio(occupancy: ArrayLike, data: ArrayLike) -> float:
    """C = max of occupancy / data over states and actions (and steps), at least 1.

    For classes that are free in every state and action, such as tables, this is the paper's C
    exactly: fits that are wrong at the worst pair alone attain it. For others it is an upper bound.
    Infinite where the policy goes and the data does not.

    Args:
        occupancy: probabilities of the policy, (S, A), or (H, S, A) for every step.
        data: probabilities of the logged pairs, which broadcast against them.
    """
    policy, logged = np.broadcast_arrays(
        np.asarray(occupancy, dtype=float), np.asarray(data, dtype=float)
    )
    if policy.size == 0 or not (np.all(policy >= 0) and np.all(logged >= 0)):
        raise SettingsError(
            "occupancy and data: expected probabilities, none negative or missing, got shapes"
            f" {np.shape(occupancy)} and {np.shape(data)}"
        )
    visited = policy > 0
    with np.errstate(divide="ignore"):
        ratios = policy[visited] / logged[visited]
    return float(max(1.0, ratios.max(initial=1.0)))


def relative_condition_number(policy_moment: ArrayLike, data_moment: ArrayLike) -> float:
    """sup_w (wᵀ E_policy[φφᵀ] w) / (wᵀ E_data[φφᵀ] w), the paper's C for linear features.

    It bounds how mean square errors of w·φ carry over from the data to the policy, and may be
    below 1. Directions that neither visits are left out, so repeated features do no harm. Infinite
    if the policy moves where the data does not. For many steps take the largest.

    Args:
        policy_moment: E[φφᵀ] under the policy, (F, F).
        data_moment: E[φφᵀ] under the data, (F, F).
    """
    policy = second_moment("policy_moment", policy_moment)
    data = second_moment("data_moment", data_moment)
    if policy.shape != data.shape:
        raise SettingsError(
            f"policy_moment and data_moment: expected one shape, got {policy.shape} and"
            f" {data.shape}"
        )
    values, vectors = np.linalg.eigh(data)
    seen = values > NEGLIGIBLE * max(values[-1], np.finfo(float).tiny)
    unseen = vectors[:, ~seen]
    if unseen.size and np.any(
        np.einsum("fi,fg,gi->i", unseen, policy, unseen) > NEGLIGIBLE * np.trace(policy)
    ):
        return math.inf
    whitening = vectors[:, seen] / np.sqrt(values[seen])
    if not whitening.size:
        return 0.0
    return float(np.linalg.eigvalsh(whitening.T @ policy @ whitening)[-1])


def gaussian_total_variation(gap: float, std: float) -> float:
    """TV of two Gaussians with one standard deviation and means `gap` apart: erf(gap/(√8 std))."""
    return math.erf(abs(gap) / (math.sqrt(8) * positive("std", std)))


def gaussian_zeta(root_mean_square_gap: float, std: float) -> float:
    """ζ = sqrt(E_data gap²) / (√(2π) std), for Gaussians of one known standard deviation.

    At least (E_data TV²)^½, and unlike that it carries over by the relative condition number κ:
    TV <= sqrt(κ) Σ_h ζ_h holds with these ζ_h. With the smaller ones it can fail, as total
    variation saturates at 1 and then no longer grows with the gap.

    Args:
        root_mean_square_gap: root mean square difference of the means, under the data.
        std: their standard deviation.
    """
    gap = not_negative("root_mean_square_gap", root_mean_square_gap)
    return gap / (math.sqrt(2 * math.pi) * positive("std", std))


def gaussian_coverage(condition_number: float, largest_gap: float, std: float) -> float:
    """C = κ (gap / (√(2π) std TV(gap)))², at least 1: the paper's C of linear-Gaussian classes.

    What the relative condition number alone lacks: between 0 and the largest gap, TV is at most
    gap / (√(2π) std) and at least its share of that line.

    Args:
        condition_number: κ of the features.
        largest_gap: largest difference of two means of the class, over all logged pairs.
        std: their standard deviation.
    """
    gap = positive("largest_gap", largest_gap)
    saturation = gaussian_zeta(gap, std) / gaussian_total_variation(gap, std)
    return max(1.0, not_negative("condition_number", condition_number) * saturation**2)
