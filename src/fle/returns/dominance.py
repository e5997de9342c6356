"""Stochastic dominance of one return over another, from samples of both."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

# Two samples of one distribution cross by chance; below this many standard errors they are equal.
# Somewhere on the line, 3 are passed by chance in one comparison of ten, 4 in one of a hundred.
CROSSING_ERRORS = 4.0
MEANING = (
    "a policy dominates another in the first order where every return is at least as likely to be "
    "exceeded, so that everybody who wants more prefers it; in the second order, everybody who "
    "also shuns risk does"
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
