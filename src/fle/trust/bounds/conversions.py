"""What a bound on total variation says about other distances and about CVaR."""

import math

from numpy.typing import ArrayLike

from fle.trust.bounds.finite_horizon import finite_class_bound
from fle.trust.bounds.inputs import not_negative, order_of, positive, probability_of


def wasserstein_from_total_variation(
    total_variation: float, diameter: float, order: float = 1.0
) -> float:
    """W_p <= D TV^(1/p) for laws on a set of diameter D (the paper's Lemma C.6).

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
        span: width of an interval that holds both laws; H for rewards in [0, 1].
        level: τ, the share of worst returns.
    """
    return 2 * sharp_cvar_bound(total_variation, span, level)


def sharp_cvar_bound(total_variation: float, span: float, level: float) -> float:
    """|CVaR difference| <= (span/τ) TV: half the paper's constant, and attained.

    (b - z)+ lies in [0, span], so its means under two laws differ by at most span TV, not by
    span ∫|f - f'| = 2 span TV. Moving a share t <= τ from one end to the other attains it.
    Arguments as for `cvar_bound`.
    """
    slope = positive("span", span) / probability_of("level", level)
    return slope * not_negative("total_variation", total_variation)


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


def gaussian_total_variation(gap: float, std: float) -> float:
    """TV of two Gaussians with one standard deviation and means `gap` apart: erf(gap/(√8 std))."""
    return math.erf(abs(gap) / (math.sqrt(8) * positive("std", std)))
