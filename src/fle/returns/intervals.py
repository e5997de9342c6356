"""Intervals by the cheap bootstrap: how far an estimate would move had other episodes been logged.

With B replicates of an estimate, each fitted to resampled episodes, its interval is
estimate ± t · sqrt(mean of (replicate − estimate)²), with t of a Student law with B degrees of
freedom (Lam 2022, "A cheap bootstrap method for fast inference"). Few replicates do: with B = 10 it
is about a tenth wider than with very many. It sees the variance of an estimate, not its bias.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError, nearest
from fle.returns.measures import Measure, measure, usual_measures
from fle.returns.risk import percentage

if TYPE_CHECKING:
    from fle.returns.distribution import ReturnDistribution

FEWEST, MOST = 2, 1_000


@dataclass(frozen=True)
class Interval:
    """Which intervals an evaluation shall have.

    level: how often an interval is to hold the true value, as far as chance alone is to blame.
    replicates: fits to resampled episodes that it is made from.

    Example: `fle.evaluate(data, policy, gamma=0.99, interval=fle.Interval(0.95, replicates=20))`.
    """

    level: float = 0.9
    replicates: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", checked_level(self.level))
        number = self.replicates
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or not FEWEST <= number <= MOST:
            raise SettingsError(
                f"replicates: expected a whole number from {FEWEST} to {MOST:,}, got {number!r}."
            )

    @classmethod
    def of(cls, given: "Interval | float | Mapping[str, Any]") -> "Interval":
        """From what a user may give: a level, or settings."""
        if isinstance(given, Interval):
            return given
        if not isinstance(given, Mapping):
            return cls(given)
        known = ("level", "replicates")
        unknown = [name for name in given if name not in known]
        if unknown:
            raise SettingsError(
                f"An interval has no {unknown[0]!r}{nearest(unknown[0], known)}; expected level "
                "and replicates."
            )
        return cls(**given)

    def in_words(self) -> str:
        """In one line."""
        return f"{percentage(self.level)}, from {self.replicates} more fits to resampled episodes"


def checked_level(level: Any) -> float:
    """A level between 0 and 1, both excluded."""
    number = isinstance(level, int | float | np.number) and not isinstance(level, bool)
    if not number or not 0 < level < 1:
        raise SettingsError(
            f"interval: expected a level above 0 and below 1, such as 0.9, got {level!r}."
        )
    return float(level)


@dataclass(frozen=True)
class Estimate:
    """A number with its interval.

    Example: `low, high = evaluation.interval("cvar:0.1").ends`.
    """

    value: float
    low: float
    high: float
    level: float

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of the interval."""
        return self.low, self.high

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def cheap_bootstrap(value: float, replicates: Sequence[float], level: float) -> Estimate:
    """The interval of an estimate, from its replicates.

    Example:
        >>> # Deviations 1 and -1: root mean square 1, and t with 2 degrees of freedom is 2.92.
        >>> print(cheap_bootstrap(5.0, [6.0, 4.0], level=0.9))
        5 (2.08 to 7.92)
    """
    half = float(half_width(value, replicates, level))
    return Estimate(value, value - half, value + half, level)


def half_width(value: ArrayLike, replicates: ArrayLike, level: float) -> NDArray[np.float64]:
    """Of the intervals of estimates (...) with replicates (B, ...)."""
    # Imported here, as it would slow down the command's help.
    from scipy.special import stdtrit

    deviations = np.asarray(replicates, dtype=float) - np.asarray(value, dtype=float)
    spread = np.sqrt(np.mean(np.square(deviations), axis=0))
    return np.asarray(stdtrit(len(deviations), 0.5 + level / 2) * spread)


@dataclass(frozen=True, eq=False)
class Replicates:
    """The laws that a distribution would have had with other episodes, made when first asked for.

    level: of intervals that are asked for without one.
    """

    make: Callable[[], Sequence["ReturnDistribution"]]
    level: float

    @cached_property
    def laws(self) -> tuple["ReturnDistribution", ...]:
        """One a replicate."""
        return tuple(self.make())

    def mapped(
        self, change: Callable[["ReturnDistribution"], "ReturnDistribution"]
    ) -> "Replicates":
        """The replicates of what a change makes of the distribution."""
        return Replicates(lambda: [change(law) for law in self.laws], self.level)

    def estimate(
        self, value: float, read: Callable[["ReturnDistribution"], float], level: float | None
    ) -> Estimate:
        """Any number that is read off a distribution, with its interval."""
        asked = self.level if level is None else checked_level(level)
        return cheap_bootstrap(value, [read(law) for law in self.laws], asked)


def within(asked: Measure, estimate: Estimate) -> Estimate:
    """The interval as far as the measure can reach: a probability from 0 to 1."""
    if not asked.probability:
        return estimate
    low, high = max(estimate.low, 0.0), min(estimate.high, 1.0)
    return Estimate(estimate.value, low, high, estimate.level)


@dataclass(frozen=True, eq=False)
class Intervals:
    """The intervals of an evaluation; `evaluation.interval` gives those of any measure.

    level, replicates: as of `Interval`. resampled: what was drawn anew for each fit, in words.
    """

    returns: "ReturnDistribution"
    level: float
    replicates: int
    resampled: str

    def of(self, asked: str | Measure, coordinate: int | str = 0) -> Estimate:
        """A measure of a return with its interval."""
        return self.returns.marginal(coordinate).interval(asked)

    def in_words(self) -> str:
        """What the intervals are, in one line."""
        return (
            f"{percentage(self.level)} intervals from {self.replicates} fits, each to "
            f"{self.resampled}; they show what chance did, not what a wrong model does"
        )

    def __repr__(self) -> str:
        lines = [f"Intervals: {self.in_words()}"]
        for name in self.returns.names:
            if self.returns.dim > 1:
                lines.append(f"  {name}")
            column = self.returns.marginal(name)
            found = [(one.label, str(column.interval(one))) for one in usual_measures()]
            width = max(len(label) for label, _ in found)
            lines += [f"  {label:<{width}}  {text}" for label, text in found]
        return "\n".join(lines)


def interval_of(
    law: "ReturnDistribution", asked: str | Measure, level: float | None = None
) -> Estimate:
    """A measure of a scalar return, with its interval."""
    found = measure(asked)
    if law.replicates is None:
        raise SettingsError(
            "No interval: this distribution has no replicates. Evaluate with interval=0.9, on a "
            "log of two episodes or more."
        )
    value = law.measure(found)
    # The thin tails of the replicates are those of the estimate, of which it warned.
    return within(
        found, law.replicates.estimate(value, lambda one: found.of(one.samples[:, 0]), level)
    )


def difference_of(
    first: "ReturnDistribution",
    second: "ReturnDistribution",
    asked: str | Measure,
    level: float | None = None,
) -> Estimate:
    """A measure of one scalar return minus that of another, with its interval.

    Replicate by replicate, so that what both owe to the same resampled episodes cancels.
    """
    found = measure(asked)
    if first.replicates is None or second.replicates is None:
        raise SettingsError(
            "No interval: the policies were evaluated without. Give interval=0.9, on a log of two "
            "episodes or more."
        )
    ours, theirs = (
        [found.of(one.samples[:, 0]) for one in law.replicates.laws]
        for law in (first, second)
        if law.replicates is not None
    )
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    asked_level = first.replicates.level if level is None else checked_level(level)
    return cheap_bootstrap(first.measure(found) - second.measure(found), gaps, asked_level)
