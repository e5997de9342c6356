"""One return held against others: in pairs, by stochastic dominance, and which can be dropped.

Dominance is judged from samples. Candidates are dropped after a cheap look, with a stated chance of
an error. All are judged by one log, so that most of what chance did to one it did to the others:
differences are judged, and an error of a difference is that of what its two sides do not share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fle.errors import SettingsError

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
