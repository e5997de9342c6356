"""Risk functionals of a scalar return, as pure functions of a (weighted) sample.

They take samples (n,) and weights (n,), which need not sum to one. A level or threshold that is an
`ArrayLike` may be an array: the answer has its shape.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import DataError, SettingsError

FloatArray = NDArray[np.float64]
Weights = ArrayLike | None


@dataclass(frozen=True)
class Parameter:
    """What a family of measures is asked at.

    name: in what users write. expected: in errors, after "expected". hint: how to go on.
    default: of a parameter that may be left out. words: the value as labels show it.
    """

    name: str
    expected: str
    allows: Callable[[FloatArray], NDArray[np.bool_]]
    hint: str = ""
    default: float | None = None
    words: Callable[[float], str] = "{:.10g}".format

    def checked(self, value: ArrayLike) -> FloatArray:
        """The value, or an array of them, as floats that the parameter may have."""
        values = np.asarray(value, dtype=float)
        if not np.all(self.allows(values)):
            raise SettingsError(
                f"{self.name.lower()}: expected {self.expected}, got {values}{self.hint}"
            )
        return values


def percentage(level: float) -> str:
    """A share without needless decimals."""
    return f"{100 * level:.4g}%"


LEVEL = Parameter(
    "LEVEL",
    "a number strictly between 0 and 1",
    lambda level: (level > 0) & (level < 1),
    "; the worst 10% of returns is level 0.1",
    words=percentage,
)
THRESHOLD = Parameter("RETURN", "a finite number", np.isfinite)
ORDER = Parameter(
    "ORDER",
    "a finite number above 0",
    lambda order: (order > 0) & (order < math.inf),
    "; order 0 is the probability of a return below the threshold, below:RETURN",
    default=1.0,
)
AVERSION = Parameter(
    "AVERSION",
    "a finite number above 0",
    lambda rate: (rate > 0) & (rate < math.inf),
    "; aversion 0 would be the mean",
)


def mean(samples: ArrayLike, weights: Weights = None) -> float:
    """E[Z]."""
    values, masses = checked_sample(samples, weights)
    return float(np.average(values, weights=masses))


def variance(samples: ArrayLike, weights: Weights = None) -> float:
    """E[(Z - E[Z])²]."""
    values, masses = checked_sample(samples, weights)
    return float(np.average((values - mean(values, masses)) ** 2, weights=masses))


def std(samples: ArrayLike, weights: Weights = None) -> float:
    """sqrt(E[(Z - E[Z])²])."""
    return math.sqrt(variance(samples, weights))


def quantile(samples: ArrayLike, level: ArrayLike, weights: Weights = None) -> FloatArray:
    """inf {z : P(Z <= z) >= level}; of a return, this is also its value at risk."""
    levels = LEVEL.checked(level)
    values, cumulative = _ordered(samples, weights)
    # A running sum of weights may fall short of the level by a rounding error.
    wanted = levels * cumulative[-1] * (1 - 1e-12)
    positions = np.searchsorted(cumulative, wanted, side="left")
    return values[np.minimum(positions, values.size - 1)]


def median(samples: ArrayLike, weights: Weights = None) -> float:
    """inf {z : P(Z <= z) >= 1/2}."""
    return float(quantile(samples, 0.5, weights))


def cvar(samples: ArrayLike, level: ArrayLike, weights: Weights = None) -> FloatArray:
    """Conditional value at risk: max over b of b - E[(b - Z)+] / level.

    This is the mean of the worst `level` share. Exact on the sample: the value at the boundary
    counts with the fraction of its mass that belongs to the tail (Rockafellar & Uryasev, 2002).

    Example:
        >>> cvar([1.0, 2.0, 3.0, 4.0, 5.0], [0.2, 0.4])
        array([1. , 1.5])
    """
    levels = LEVEL.checked(level)
    values, cumulative = _ordered(samples, weights)
    tail = levels * cumulative[-1]
    boundary = np.minimum(np.searchsorted(cumulative, tail, side="right"), values.size - 1)
    # Centred sums: running sums of large equal numbers would lose the small differences.
    gains = values - values[0]
    before = np.concatenate([[0.0], cumulative])
    sums = np.concatenate([[0.0], np.cumsum(np.diff(before) * gains)])
    in_part = (tail - before[boundary]) * gains[boundary]
    return (values[0] + (sums[boundary] + in_part) / tail)[()]


def upper_cvar(samples: ArrayLike, level: ArrayLike, weights: Weights = None) -> FloatArray:
    """The mean of the best `level` share: min_b b + E[(Z - b)+] / level."""
    return -cvar(-np.asarray(samples, dtype=float), level, weights)


def below(samples: ArrayLike, threshold: ArrayLike, weights: Weights = None) -> FloatArray:
    """P(Z < threshold)."""
    reached, total = _mass_up_to(samples, threshold, weights, "left")
    return reached / total


def above(samples: ArrayLike, threshold: ArrayLike, weights: Weights = None) -> FloatArray:
    """P(Z > threshold)."""
    reached, total = _mass_up_to(samples, threshold, weights, "right")
    return (total - reached) / total


def distribution_function(
    samples: ArrayLike, threshold: ArrayLike, weights: Weights = None
) -> FloatArray:
    """P(Z <= threshold)."""
    reached, total = _mass_up_to(samples, threshold, weights, "right")
    return reached / total


def loss(samples: ArrayLike, weights: Weights = None) -> float:
    """P(Z < 0)."""
    return float(below(samples, 0.0, weights))


def lower_partial_moment(
    samples: ArrayLike, threshold: float, order: float = 1, weights: Weights = None
) -> float:
    """E[((threshold - Z)+)^order]; for order 1 the mean shortfall (Fishburn, 1977).

    Example:
        >>> lower_partial_moment([0.0, 1.0, 5.0], threshold=2.0, order=2)
        1.6666666666666667
    """
    bound, power = THRESHOLD.checked(threshold), ORDER.checked(order)
    values, masses = checked_sample(samples, weights)
    return float(np.average(np.maximum(bound - values, 0.0) ** power, weights=masses))


def entropic(samples: ArrayLike, aversion: float, weights: Weights = None) -> float:
    """-log(E[exp(-aversion Z)]) / aversion, in units of the return.

    The sure return that is as good as Z under exponential utility; minus the entropic risk measure
    of Föllmer & Schied (2002). It falls from the mean to the worst return as the aversion grows.

    Example:
        >>> round(entropic([0.0, 1.0], aversion=1.0), 4)
        0.3799
    """
    rate = AVERSION.checked(aversion)
    values, masses = checked_sample(samples, weights)
    worst = values.min()
    exponents = rate * (worst - values)
    # For small rates the exponentials differ from 1 by less than they can show.
    drop = np.average(np.expm1(exponents), weights=masses)
    logarithm = (
        np.log1p(drop) if drop > -0.5 else np.log(np.average(np.exp(exponents), weights=masses))
    )
    return float(worst - logarithm / rate)


def expectile(samples: ArrayLike, level: float, weights: Weights = None) -> float:
    """The e with level E[(Z - e)+] = (1 - level) E[(e - Z)+]; level 1/2 gives the mean.

    Exact on the sample: between two of its values the equation is linear (Newey & Powell, 1987).

    Example:
        >>> expectile([0.0, 1.0], level=0.25)
        0.25
    """
    share = LEVEL.checked(level)
    values, cumulative = _ordered(samples, weights)
    gains, total = values - values[0], cumulative[-1]
    sums = np.cumsum(np.diff(cumulative, prepend=0.0) * gains)
    short = gains * cumulative - sums
    over = sums[-1] - sums - gains * (total - cumulative)
    # The excess falls from value to value; the solution lies after the last that is not negative.
    last = max(int(np.searchsorted((1 - share) * short - share * over, 0.0, side="right")) - 1, 0)
    upper, lower = share * (sums[-1] - sums[last]), (1 - share) * sums[last]
    mass = share * (total - cumulative[last]) + (1 - share) * cumulative[last]
    return float(values[0] + (upper + lower) / mass)


def effective_size(samples: ArrayLike, weights: Weights = None) -> float:
    """How many equally weighted draws say as much: (Σ w)² / Σ w² (Kish, 1965)."""
    if weights is None:
        return float(np.size(samples))
    masses = np.asarray(weights, dtype=float)
    # Products of many ratios may be so small that their squares are zero.
    masses = masses / masses.max()
    return float(masses.sum() ** 2 / np.sum(masses**2))


def checked_weights(weights: ArrayLike, size: int) -> FloatArray:
    """Weights (size,), finite and non-negative with a positive sum."""
    masses = np.asarray(weights, dtype=float)
    if masses.shape != (size,) or not (np.all(masses >= 0) and 0 < masses.sum() < np.inf):
        raise DataError(
            f"weights: expected {size} finite numbers, none negative and not all zero, got shape "
            f"{masses.shape} with sum {masses.sum():g}"
        )
    return masses


def checked_sample(samples: ArrayLike, weights: Weights) -> tuple[FloatArray, FloatArray | None]:
    """A sample (n,) with its weights, without the values that have none."""
    values = np.asarray(samples, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise DataError(f"samples: expected a non-empty sample of shape (n,), got {values.shape}")
    if weights is None:
        return values, None
    masses = checked_weights(weights, values.size)
    return values[masses > 0], masses[masses > 0]


def _ordered(samples: ArrayLike, weights: Weights) -> tuple[FloatArray, FloatArray]:
    """The sample in ascending order and the mass up to and including each value."""
    values, masses = checked_sample(samples, weights)
    if masses is None:
        # Ranks rather than a running sum: exact where it matters, at level = k/n.
        return np.sort(values, kind="stable"), np.arange(1.0, values.size + 1)
    order = np.argsort(values, kind="stable")
    return values[order], np.cumsum(masses[order])


def _mass_up_to(
    samples: ArrayLike, threshold: ArrayLike, weights: Weights, side: Literal["left", "right"]
) -> tuple[FloatArray, float]:
    """The mass below each threshold (side "left") or up to it (side "right"), and the whole."""
    values, cumulative = _ordered(samples, weights)
    thresholds = np.asarray(threshold, dtype=float)
    if np.any(np.isnan(thresholds)):
        raise SettingsError(f"threshold: expected numbers, got {thresholds}")
    positions = np.searchsorted(values, thresholds, side=side)
    return np.concatenate([[0.0], cumulative])[positions], float(cumulative[-1])
