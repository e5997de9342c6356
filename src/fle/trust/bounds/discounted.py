"""Discounted returns: Wasserstein distance between the estimated and the true distribution.

Rewards lie in [0, 1]^d in the paper, so returns lie in a box of diameter sqrt(d) / (1 - γ). `n`
counts the rows of all stages together; each of the T stages has n / T of its own.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from fle.trust.bounds.complexity import (
    count_of,
    coverage_of,
    discount_of,
    errors_of,
    finite_coverage_of,
    not_negative,
    order_of,
    positive,
    probability_of,
)


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
