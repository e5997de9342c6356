"""Finite horizon: total variation between estimate and truth, and what it says about CVaR.

Returns lie in a set of volume |Y|, [0, H]^d in the paper. `n` counts the rows of all stages
together; each of the H stages has n / H of its own.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fle.errors import SettingsError
from fle.trust.bounds.complexity import (
    FloatArray,
    count_of,
    coverage_of,
    errors_of,
    finite_coverage_of,
    not_negative,
    of_every_step,
    order_of,
    positive,
    probability_of,
)

LogBrackets = Callable[[float], ArrayLike]
MOST_ROWS = 2**80


def total_variation_bound(zetas: ArrayLike, coverage: float) -> float:
    """TV(estimate, truth) <= sqrt(C) Σ_h ζ_h (the paper's Theorem 4.2).

    Above 1 it says nothing: it is not clipped, so that it can be compared.

    Args:
        zetas: (H,) ζ_h = (E_data TV²(fit of step h, its Bellman target))^½.
        coverage: C >= 1, E_policy TV² <= C E_data TV² of the fits at every step; the largest
            ratio of occupancy to data density is always enough.
    """
    return math.sqrt(coverage_of(coverage)) * float(errors_of(zetas).sum())


def finite_class_zetas(n: int, horizon: int, log_sizes: ArrayLike, delta: float) -> FloatArray:
    """ζ_h = sqrt(4H/n log(|F_h| H/δ)), (H,): all hold at once with probability 1 - δ.

    The paper's Lemma 4.4: maximum likelihood in finite classes that contain their Bellman targets.

    Args:
        n: rows of all stages.
        horizon: H.
        log_sizes: log |F_h|, one number or one a step.
        delta: probability of failure.
    """
    rows, steps, sizes, failure = _setting(n, horizon, log_sizes, delta)
    return np.sqrt(4 * steps / rows * (sizes + math.log(steps / failure)))


def bracketing_zetas(n: int, horizon: int, log_brackets: ArrayLike, delta: float) -> FloatArray:
    """ζ_h = sqrt(10H/n max(1, log(N_h H/δ))), (H,): all hold at once with probability 1 - δ.

    The paper's Lemma 4.6, for infinite classes. Its proof ends with
    4 + 6 log(N H/δ) <= 10 log(N H/δ), which needs that logarithm to be at least 1; hence the max.

    Args:
        n: rows of all stages.
        horizon: H.
        log_brackets: log N_h of brackets as narrow as `bracket_width`, one number or one a step.
        delta: probability of failure.
    """
    rows, steps, numbers, failure = _setting(n, horizon, log_brackets, delta)
    complexity = np.maximum(1.0, numbers + math.log(steps / failure))
    return np.sqrt(10 * steps / rows * complexity)


def bracket_width(n: int, return_volume: float = 1.0) -> float:
    """1 / (n |Y|): how narrow, in supremum norm, the brackets of `bracketing_zetas` have to be.

    Give return_volume = 1 for brackets measured by their integral over returns: that is all the
    proof uses, and it serves unbounded returns, where |Y| is infinite.

    Args:
        n: rows of all stages.
        return_volume: |Y|, H^d for rewards in [0, 1]^d.
    """
    return 1 / (count_of("n", n) * positive("return_volume", return_volume))


def finite_class_bound(
    n: int, horizon: int, log_sizes: ArrayLike, delta: float, coverage: float
) -> float:
    """TV <= sqrt(C) Σ_h sqrt(4H/n log(|F_h| H/δ)) with probability 1 - δ (Corollary 4.7).

    Arguments as for `finite_class_zetas` and `total_variation_bound`.
    """
    return total_variation_bound(finite_class_zetas(n, horizon, log_sizes, delta), coverage)


def bracketing_bound(
    n: int, horizon: int, log_brackets: ArrayLike, delta: float, coverage: float
) -> float:
    """TV <= sqrt(C) Σ_h sqrt(10H/n max(1, log(N_h H/δ))) with probability 1 - δ (Corollary 4.7).

    Arguments as for `bracketing_zetas` and `total_variation_bound`.
    """
    return total_variation_bound(bracketing_zetas(n, horizon, log_brackets, delta), coverage)


def finite_class_sample_size(
    error: float, horizon: int, log_sizes: ArrayLike, delta: float, coverage: float
) -> int:
    """The least n with `finite_class_bound` <= error: ⌈4CH (Σ_h sqrt(log(|F_h| H/δ)))² / error²⌉.

    Args:
        error: the total variation that is accepted.
        horizon: H.
        log_sizes: log |F_h|, one number or one a step.
        delta: probability of failure.
        coverage: C >= 1, finite.
    """
    accepted = positive("error", error)
    at_one_row = finite_class_bound(1, horizon, log_sizes, delta, finite_coverage_of(coverage))
    return math.ceil((at_one_row / accepted) ** 2)


def bracketing_sample_size(
    error: float,
    horizon: int,
    log_brackets: LogBrackets,
    delta: float,
    coverage: float,
    return_volume: float = 1.0,
) -> int:
    """An n with `bracketing_bound` <= error where n - 1 rows would not do.

    The brackets narrow as n grows, so n is found by search.

    Args:
        error: the total variation that is accepted.
        horizon: H.
        log_brackets: width -> log N_h, one number or one a step.
        delta: probability of failure.
        coverage: C >= 1, finite.
        return_volume: as for `bracket_width`.
    """
    accepted = positive("error", error)
    constant = finite_coverage_of(coverage)

    def enough(n: int) -> bool:
        numbers = log_brackets(bracket_width(n, return_volume))
        return bracketing_bound(n, horizon, numbers, delta, constant) <= accepted

    high = 1
    while not enough(high):
        high *= 2
        if high > MOST_ROWS:
            raise SettingsError(
                f"error: expected one that some n up to 2^80 reaches, got {error!r}; log_brackets"
                " has to grow more slowly than the rows"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def wasserstein_from_total_variation(
    total_variation: float, diameter: float, order: float = 1.0
) -> float:
    """W_p <= D TV^(1/p) for distributions on a set of diameter D (the paper's Lemma C.6).

    Tight: a share TV of the mass moved across the whole set.

    Args:
        total_variation: TV, or a bound of it.
        diameter: D, in units of the return; m sqrt(d) for [0, m]^d.
        order: p.
    """
    distance = not_negative("total_variation", total_variation)
    return positive("diameter", diameter) * distance ** (1 / order_of(order))


def cvar_bound(total_variation: float, span: float, level: float) -> float:
    """|CVaR difference| <= (2 span/τ) TV (the paper's Lemma A.1), in units of the return.

    Args:
        total_variation: TV, or a bound of it.
        span: width of an interval that holds both returns; H for rewards in [0, 1].
        level: τ, the share of worst returns.
    """
    return 2 * sharp_cvar_bound(total_variation, span, level)


def sharp_cvar_bound(total_variation: float, span: float, level: float) -> float:
    """|CVaR difference| <= (span/τ) TV: half the paper's constant, and attained.

    (b - z)+ lies in [0, span], so its means under two distributions differ by at most span TV, not
    by span ∫|f - f'| = 2 span TV. Moving a share t <= τ from one end to the other attains it.
    Arguments as for `cvar_bound`.
    """
    factor = positive("span", span) / probability_of("level", level)
    return factor * not_negative("total_variation", total_variation)


def cvar_finite_class_bound(
    n: int, horizon: int, log_sizes: ArrayLike, delta: float, coverage: float, level: float
) -> float:
    """(2H/τ) sqrt(C) Σ_h sqrt(4H/n log(|F_h| H/δ)), with probability 1 - δ: CVaR from n rows.

    With one class size this is the paper's 4 sqrt(C) H^2.5/τ sqrt(log(|F| H/δ)/n), whose
    logarithm lacks the H of the union over steps. Rewards lie in [0, 1]; other arguments as for
    `finite_class_bound` and `cvar_bound`.
    """
    distance = finite_class_bound(n, horizon, log_sizes, delta, coverage)
    return cvar_bound(distance, float(horizon), level)


def _setting(
    n: int, horizon: int, complexity: ArrayLike, delta: float
) -> tuple[int, int, FloatArray, float]:
    steps = count_of("horizon", horizon)
    logs = of_every_step("the log of the class size", complexity, steps)
    return count_of("n", n), steps, logs, probability_of("delta", delta)
