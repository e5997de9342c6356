"""What can be told from chance: intervals of an estimate, and returns held against each other.

Intervals are those of the cheap bootstrap: how far an estimate would move had other episodes been
logged. With B replicates of an estimate, each fitted to resampled episodes, its interval is
estimate ± t · sqrt(mean of (replicate − estimate)²), with t of a Student law with B degrees of
freedom (Lam 2022, "A cheap bootstrap method for fast inference"). Few replicates do: with B = 10 it
is about a tenth wider than with very many. It sees the variance of an estimate, not its bias.

Dominance is judged from samples. Candidates are dropped after a cheap look, with a stated chance of
an error. All are judged by one log, so that most of what chance did to one it did to the others:
differences are judged, and an error of a difference is that of what its two sides do not share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError, nearest
from fle.returns.measures import Measure, measure, usual_measures
from fle.returns.risk import percentage

if TYPE_CHECKING:
    from fle.returns.distribution import ReturnDistribution

FEWEST, MOST = 2, 1_000
# Up to as many policies, each is held against every other.
MOST_IN_PAIRS = 20
# Two samples of one distribution cross by chance; below this many standard errors they are equal.
# Somewhere on the line, 3 are passed by chance in one comparison of ten, 4 in one of a hundred.
CROSSING_ERRORS = 4.0
MEANING = (
    "a policy dominates another in the first order where every return is at least as likely to be "
    "exceeded, so that everybody who wants more prefers it; in the second order, everybody who "
    "also shuns risk does"
)
FloatArray = NDArray[np.float64]
# Chance that the candidate that is truly best is dropped, over all looks of a comparison.
ERROR = 0.05
# Candidates whose differences from all others are worked out together.
BLOCK = 256


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


def pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Which policies are held against each other: all, or of very many the first and neighbours.

    names: in the order of their ranking, so that the first is the best.

    Example: `pairs_of(["a", "b", "c"])` is `[("a", "b"), ("a", "c"), ("b", "c")]`.
    """
    if len(names) <= MOST_IN_PAIRS:
        return list(combinations(names, 2))
    return [*((names[0], other) for other in names[1:]), *pairwise(names[1:])]


@dataclass(frozen=True)
class Difference:
    """Return of the first minus return of the second, in pairs with the same start.

    low, high: its 5% and 95% quantiles. beats: share of the pairs that the first wins. ties: share
    that neither wins.
    """

    first: str
    second: str
    mean: float
    low: float
    high: float
    beats: float
    ties: float

    @classmethod
    def of(cls, first: str, second: str, ours: np.ndarray, theirs: np.ndarray) -> "Difference":
        """From paired returns (n,)."""
        gaps = ours - theirs
        low, high = np.quantile(gaps, [0.05, 0.95])
        return cls(
            first,
            second,
            float(gaps.mean()),
            float(low),
            float(high),
            float(np.mean(gaps > 0)),
            float(np.mean(gaps == 0)),
        )


@dataclass(frozen=True)
class Dominance:
    """Whether the first policy's return dominates the second's.

    order 1: F_first(z) <= F_second(z) at every z, so that everybody who wants more prefers it.
    order 2: the same of the integrals of F up to z, so that everybody who also shuns risk does.
    violation: by how much the other side is larger at most, in units of F or of the return; what
        the sampling of the two explains is not counted.
    """

    first: str
    second: str
    order: Literal[1, 2]
    holds: bool
    violation: float


def dominance(
    first: str, second: str, ours: np.ndarray, theirs: np.ndarray, order: Literal[1, 2]
) -> Dominance:
    """From sorted samples (n,); what CROSSING_ERRORS standard errors explain does not count.

    Levy (2016), Stochastic Dominance: Z dominates Y in the second order if, at every z,
    E[(z - Z)+] <= E[(z - Y)+], which are the integrals of the distribution functions up to z.

    Example: `dominance("new", "old", np.sort(new), np.sort(old), 1).holds`.
    """
    # Centred, since squares of returns far from zero would leave no figures for their spread.
    centre = (ours.mean() + theirs.mean()) / 2
    ours, theirs = ours - centre, theirs - centre
    grid = np.concatenate([ours, theirs])
    grid.sort()
    shares = [np.searchsorted(rows, grid, side="right") / rows.size for rows in (ours, theirs)]
    error = np.sqrt(sum(share * (1 - share) for share in shares) / ours.size)
    gap = shares[0] - shares[1]
    if order == 2:
        widths = np.diff(grid, append=grid[-1])
        gap = np.concatenate([[0.0], np.cumsum(gap * widths)[:-1]])
        error = _shortfall_errors(grid, ours, theirs)
    violation = float(np.max(np.maximum(gap - CROSSING_ERRORS * error, 0.0)))
    return Dominance(first, second, order, violation == 0.0, violation)


def _shortfall_errors(grid: np.ndarray, *samples: np.ndarray) -> np.ndarray:
    """Standard errors of the difference of E[(z - Z)+] at every z of the grid."""
    variances = np.zeros(grid.size)
    for rows in samples:
        count = np.searchsorted(rows, grid, side="right")
        sums = np.concatenate([[0.0], np.cumsum(rows)])[count]
        squares = np.concatenate([[0.0], np.cumsum(rows**2)])[count]
        mean = (count * grid - sums) / rows.size
        square = (count * grid**2 - 2 * grid * sums + squares) / rows.size
        variances += np.maximum(square - mean**2, 0.0) / rows.size
    return np.sqrt(variances)


def preference(a: str, b: str, first: set[tuple[str, str]], second: set[tuple[str, str]]) -> str:
    """What stochastic dominance says about two policies, from the pairs where it holds."""
    if {(a, b), (b, a)} <= first:
        return f"{a} and {b} cannot be told apart: their distributions differ by chance alone"
    for better, worse in ((a, b), (b, a)):
        if (better, worse) in first:
            return f"{better} dominates {worse} in the first order"
    for better, worse in ((a, b), (b, a)):
        if (better, worse) in second and (worse, better) not in second:
            return f"{better} dominates {worse} in the second order only"
    return f"neither of {a} and {b} dominates the other"


@dataclass(frozen=True, eq=False)
class Looks:
    """What one and the same look said of P candidates; larger values are better.

    values: (P,) estimates. influence: (P, G) what each of G independent groups of episodes did to
        them: estimate minus truth is about the sum over groups, each of mean zero.
    errors: (P,) standard errors of what candidates do not share.
    moved: (P,) how far the estimate moves in a class of half the size: a sign of what is wrong with
        the class, of which two candidates share a part.
    """

    names: Sequence[str]
    values: FloatArray
    influence: FloatArray
    errors: FloatArray
    moved: FloatArray

    def __post_init__(self) -> None:
        number = len(self.names)
        lengths = {len(self.values), len(self.influence), len(self.errors), len(self.moved)}
        if lengths != {number} or not np.all(np.isfinite(self.values)):
            raise SettingsError(
                f"looks: expected a finite value, influence, error and shift for each of {number}"
                f" candidates, got {sorted(lengths)} of them, {np.sum(~np.isfinite(self.values))}"
                " not finite"
            )

    def order(self) -> list[int]:
        """Places of the candidates, the best first."""
        return [int(place) for place in np.argsort(-self.values, kind="stable")]

    def outcomes(self, error: float = ERROR) -> list["Outcome"]:
        """Of every candidate, the rival that speaks most clearly against it, and whether it is out.

        With z the quantile at 1 - error / (P - 1) of a normal law, the difference of i over j lies
        above D_ij - z SE_ij - |moved_i - moved_j|. Where that is positive for some i, j is dropped.
        The best is dropped only if one of its P - 1 differences is that far off: a chance of at
        most `error` (Bonferroni), as far as estimates are normal and the class is as wrong as half
        of it shows.
        """
        number = len(self.names)
        if number == 1:
            return [Outcome(self.names[0], float(self.values[0]), None, 0.0, 0.0)]
        # Imported here, as it would slow down the command's help.
        from scipy.special import ndtri

        reach = float(ndtri(1 - error / (number - 1)))
        squares = np.sum(self.influence**2, axis=1) + self.errors**2
        found = []
        for start in range(0, number, BLOCK):
            mine = slice(start, start + BLOCK)
            shared = self.influence @ self.influence[mine].T
            variance = np.maximum(squares[:, None] + squares[None, mine] - 2 * shared, 0.0)
            gaps = self.values[:, None] - self.values[None, mine]
            wrong = np.abs(self.moved[:, None] - self.moved[None, mine])
            margins = reach * np.sqrt(variance) + wrong
            lows = gaps - margins
            # None is its own rival.
            own = np.arange(number)[:, None] == np.arange(start, start + gaps.shape[1])
            rivals = np.argmax(np.where(own, -np.inf, lows), axis=0)
            for place, rival in enumerate(rivals):
                found.append(
                    Outcome(
                        self.names[start + place],
                        float(self.values[start + place]),
                        self.names[rival],
                        float(gaps[rival, place]),
                        float(margins[rival, place]),
                    )
                )
        return found


@dataclass(frozen=True)
class Outcome:
    """What a look says of one candidate.

    rival: whose lead over it is clearest; None where it is alone. lead: how much better the rival
    is. margin: how far off that may be.
    """

    name: str
    value: float
    rival: str | None
    lead: float
    margin: float

    @property
    def dropped(self) -> bool:
        """Whether the rival is better, beyond what chance and the class may be to blame for."""
        return self.rival is not None and self.lead > self.margin
