"""The paper's guarantees as pure functions, each with its inputs named.

Finite horizon (total variation), discounted (Wasserstein), what follows for CVaR, how large the
classes of the two examples are, and how well data covers a policy. `docs/guarantees.md` lists them.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fle.errors import SettingsError
from fle.trust.complexity import (
    FloatArray,
    count_of,
    coverage_of,
    density_ratio,
    discount_of,
    errors_of,
    finite_coverage_of,
    gaussian_coverage,
    gaussian_total_variation,
    gaussian_zeta,
    lqr_log_brackets,
    lqr_log_brackets_by_integral,
    not_negative,
    of_every_step,
    order_of,
    positive,
    probability_of,
    relative_condition_number,
    tabular_log_brackets,
    tabular_log_brackets_by_integral,
)

LogBrackets = Callable[[float], ArrayLike]
MOST_ROWS = 2**80

__all__ = [
    "balanced_stages",
    "bracket_width",
    "bracketing_bound",
    "bracketing_sample_size",
    "bracketing_zetas",
    "contraction_factor",
    "cvar_bound",
    "cvar_finite_class_bound",
    "density_ratio",
    "discounted_bracketing_bound",
    "discounted_bracketing_zeta",
    "discounted_finite_class_bound",
    "discounted_finite_class_zeta",
    "finite_class_bound",
    "finite_class_sample_size",
    "finite_class_zetas",
    "gaussian_coverage",
    "gaussian_total_variation",
    "gaussian_zeta",
    "lqr_log_brackets",
    "lqr_log_brackets_by_integral",
    "relative_condition_number",
    "return_diameter",
    "sharp_cvar_bound",
    "simplified_balanced_stages",
    "simplified_wasserstein_bound",
    "tabular_log_brackets",
    "tabular_log_brackets_by_integral",
    "total_variation_bound",
    "wasserstein_bound",
    "wasserstein_from_total_variation",
]


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


def return_diameter(gamma: float, dimension: int = 1, reward_span: float = 1.0) -> float:
    """reward_span sqrt(d) / (1 - γ): diameter of the returns of rewards in a cube of that side."""
    side = positive("reward_span", reward_span) / (1 - discount_of(gamma))
    return side * math.sqrt(count_of("dimension", dimension))


def contraction_factor(gamma: float, order: float = 1.0) -> float:
    """γ^(1 - 1/2p): what one Bellman update leaves of (E_policy W_p^2p)^(1/2p) (Lemma 4.9).

    Args:
        gamma: discount.
        order: p of the Wasserstein distance.
    """
    return discount_of(gamma) ** (1 - 1 / (2 * order_of(order)))


def wasserstein_bound(
    zetas: ArrayLike, coverage: float, gamma: float, diameter: float, order: float = 1.0
) -> float:
    """W_p <= (C/(1-γ))^(1/2p) Σ_t κ^(T-t) ζ_t + κ^T D / (1-γ)^(1/2p), κ = `contraction_factor`.

    The paper's refined Theorem D.2. In units of the return.

    Args:
        zetas: (T,) ζ_t = (E_data W_p^2p(fit of stage t, its Bellman target))^(1/2p), first stage
            first.
        coverage: C >= 1, with E_policy W_p^2p <= C E_data W_p^2p for the discounted occupancy.
        gamma: discount.
        diameter: D, how far what the first stage starts from may be from the truth; the
            diameter of the set of returns is always enough.
        order: p.
    """
    errors = errors_of(zetas)
    factor = contraction_factor(gamma, order)
    remaining = factor ** np.arange(errors.size - 1, -1, -1, dtype=float)
    start = (1 - gamma) ** (-1 / (2 * order))
    learned = coverage_of(coverage) ** (1 / (2 * order)) * float(remaining @ errors)
    return start * (learned + factor**errors.size * not_negative("diameter", diameter))


def simplified_wasserstein_bound(
    zeta: float, stages: int, coverage: float, gamma: float, diameter: float, order: float = 1.0
) -> float:
    """W_p <= 2 C^(1/2p) ζ / (1-γ)^(3/2) + D γ^(T/2) / (1-γ)^(1/2) (Theorem 4.11).

    With D = sqrt(d)/(1-γ) the second term is the paper's. Never below `wasserstein_bound`.

    Args:
        zeta: an upper bound of every ζ_t.
        stages: T.
        coverage: C >= 1.
        gamma: discount.
        diameter: D.
        order: p.
    """
    left = 1 - discount_of(gamma)
    power = 1 / (2 * order_of(order))
    learned = 2 * coverage_of(coverage) ** power / left**1.5 * not_negative("zeta", zeta)
    missing = gamma ** (count_of("stages", stages) / 2) / math.sqrt(left)
    return learned + missing * not_negative("diameter", diameter)


def discounted_finite_class_zeta(
    n: int, stages: int, log_size: float, delta: float, diameter: float, order: float = 1.0
) -> float:
    """ζ = D (4T/n log(|F| T/δ))^(1/2p): every stage's error at once, with probability 1 - δ.

    The paper's Lemma 4.13, finite classes.

    Args:
        n: rows of all stages.
        stages: T.
        log_size: log |F|.
        delta: probability of failure.
        diameter: D of the returns, which turns total variation into W_p.
        order: p.
    """
    complexity = _complexity(log_size, stages, delta)
    return _zeta(4 * complexity, n, stages, diameter, order)


def discounted_bracketing_zeta(
    n: int, stages: int, log_brackets: float, delta: float, diameter: float, order: float = 1.0
) -> float:
    """ζ = D (10T/n max(1, log(N T/δ)))^(1/2p), the same lemma for infinite classes.

    `log_brackets` is log N of brackets as narrow as `bracket_width(n, |Y|)`, |Y| = (1-γ)^-d in the
    paper; the other arguments are those of `discounted_finite_class_zeta`.
    """
    complexity = max(1.0, _complexity(log_brackets, stages, delta))
    return _zeta(10 * complexity, n, stages, diameter, order)


def balanced_stages(
    n: int, log_complexity: float, delta: float, coverage: float, gamma: float, order: float = 1.0
) -> int:
    """T of the paper's Corollary 4.14: ⌈log((Cι/n)^(1/2p) / (1-√γ)) / log γ^(1-1/2p)⌉, at least 1.

    This T goes with `wasserstein_bound`, where it makes what is left out about as large as what is
    mislearned.

    Args:
        n: rows of all stages.
        log_complexity: log |F|, or the log of the bracketing number at `bracket_width`.
        delta: probability of failure; ι = log_complexity + log(1/δ).
        coverage: C >= 1, finite.
        gamma: discount.
        order: p.
    """
    return _stages(
        _accuracy(n, log_complexity, delta, coverage, order) / (1 - math.sqrt(discount_of(gamma))),
        contraction_factor(gamma, order),
    )


def simplified_balanced_stages(
    n: int, log_complexity: float, delta: float, coverage: float, gamma: float, order: float = 1.0
) -> int:
    """T of that corollary's proof: ⌈log((Cι/n)^(1/2p) / (1-γ)) / log √γ⌉, at least 1.

    This T goes with `simplified_wasserstein_bound`. Arguments as for `balanced_stages`.
    """
    return _stages(
        _accuracy(n, log_complexity, delta, coverage, order) / (1 - discount_of(gamma)),
        math.sqrt(gamma),
    )


def discounted_finite_class_bound(
    n: int,
    log_size: float,
    delta: float,
    coverage: float,
    gamma: float,
    diameter: float,
    order: float = 1.0,
) -> float:
    """W_p after `balanced_stages`, with probability 1 - δ: Corollary 4.14, with constants.

    Arguments as for `balanced_stages` and `discounted_finite_class_zeta`.
    """
    stages = balanced_stages(n, log_size, delta, coverage, gamma, order)
    zeta = discounted_finite_class_zeta(n, stages, log_size, delta, diameter, order)
    return wasserstein_bound(np.full(stages, zeta), coverage, gamma, diameter, order)


def discounted_bracketing_bound(
    n: int,
    log_brackets: float,
    delta: float,
    coverage: float,
    gamma: float,
    diameter: float,
    order: float = 1.0,
) -> float:
    """The same for infinite classes; `log_brackets` as for `discounted_bracketing_zeta`."""
    stages = balanced_stages(n, log_brackets, delta, coverage, gamma, order)
    zeta = discounted_bracketing_zeta(n, stages, log_brackets, delta, diameter, order)
    return wasserstein_bound(np.full(stages, zeta), coverage, gamma, diameter, order)


def _complexity(log_size: float, stages: int, delta: float) -> float:
    union = count_of("stages", stages) / probability_of("delta", delta)
    return not_negative("the log of the class size", log_size) + math.log(union)


def _zeta(scaled: float, n: int, stages: int, diameter: float, order: float) -> float:
    squared = scaled * stages / count_of("n", n)
    return positive("diameter", diameter) * squared ** (1 / (2 * order_of(order)))


def _accuracy(n: int, log_complexity: float, delta: float, coverage: float, order: float) -> float:
    iota = _complexity(log_complexity, 1, delta)
    constant = finite_coverage_of(coverage)
    return (constant * iota / count_of("n", n)) ** (1 / (2 * order_of(order)))


def _stages(left_out: float, factor: float) -> int:
    """The least T >= 1 with factor^T <= left_out."""
    if factor == 0 or left_out >= 1:
        return 1
    return max(1, math.ceil(math.log(left_out) / math.log(factor)))
