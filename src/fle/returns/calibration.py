"""Whether predicted laws are calibrated: predictions held against what came, without any truth.

A law F of a real z gives the probability integral transform F(z), which is uniform if z was drawn
from F. With m draws of F in its place, the rank of z among them is uniform on {0, ..., m}, exactly;
its place within is drawn, so that (rank + u) / (m + 1) is uniform on [0, 1] (Czado et al. 2009).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BINS = 20
# Returns that stand for the law of all others.
MOST_OTHERS = 2_000
# Of the interval whose hit rate is counted, and the chance below which calibration is denied.
INTERVAL, DENIED = 0.9, 0.01


@dataclass(frozen=True)
class CoordinateCalibration:
    """Of one return.

    counts: of the transform in equal bins from 0 to 1. distance: of Kolmogorov and Smirnov from
    uniform. chance: that of one as large, were the predictions right.
    hits: share of returns inside the central 90% interval.
    crps: mean continuous ranked probability score. reference: the same of the law of all other
    episodes' returns, whatever their start.
    """

    name: str
    counts: tuple[int, ...]
    distance: float
    chance: float
    hits: float
    crps: float
    reference: float


@dataclass(frozen=True)
class Calibration:
    """Predictions of the logging policy's return for episodes that their fit never saw.

    episodes: how many were predicted, out of `cut` that were cut off and filled up by the fit.

    Example: `fle.evaluate(data, policy, gamma=0.9, calibration=True).calibration.in_words()`.
    """

    episodes: int
    cut: int
    coordinates: tuple[CoordinateCalibration, ...]

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        drawn: FloatArray,
        seen: FloatArray,
        others: FloatArray,
        cut: int,
        generator: np.random.Generator,
    ) -> Self:
        """From draws (n, m, d) of n predictions, what came (n, d), and other returns (k, d)."""
        found = [
            _coordinate(name, drawn[:, :, i], seen[:, i], others[:, i], generator)
            for i, name in enumerate(names)
        ]
        return cls(len(seen), int(cut), tuple(found))

    @property
    def chance(self) -> float:
        """The least of all coordinates, times their number (Bonferroni)."""
        return min(1.0, len(self.coordinates) * min(one.chance for one in self.coordinates))

    @property
    def denied(self) -> bool:
        """Whether the predictions are wrong beyond chance."""
        return self.chance < DENIED

    def in_words(self) -> str:
        """One sentence."""
        worst = min(self.coordinates, key=lambda one: one.chance)
        of = f" of {worst.name}" if len(self.coordinates) > 1 else ""
        error = np.sqrt(INTERVAL * (1 - INTERVAL) / self.episodes)
        judged = "are not calibrated" if self.denied else "are calibrated as far as can be seen"
        return (
            f"predictions{of} for {self.episodes:,} held-out episodes of the logging policy"
            f" {judged} (a deviation as large has a chance of {self.chance:.2g}):"
            f" {worst.hits:.0%} of them lie in their 90% interval (± {error:.0%}), and their CRPS"
            f" is {worst.crps:.3g}, against {worst.reference:.3g} of the distribution of all others"
        )

    def as_plain(self) -> dict[str, Any]:
        """For files and machines."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """From the content of a file."""
        coordinates = tuple(
            CoordinateCalibration(**{**one, "counts": tuple(one["counts"])})
            for one in plain["coordinates"]
        )
        return cls(plain["episodes"], plain["cut"], coordinates)


def _coordinate(
    name: str,
    drawn: FloatArray,
    seen: FloatArray,
    others: FloatArray,
    generator: np.random.Generator,
) -> CoordinateCalibration:
    from scipy.stats import kstest

    levels = transform(drawn, seen, generator)
    test = kstest(levels, "uniform")
    outside = (1 - INTERVAL) / 2
    return CoordinateCalibration(
        name,
        tuple(np.histogram(levels, BINS, (0, 1))[0].tolist()),
        float(test.statistic),
        float(test.pvalue),
        float(np.mean((levels > outside) & (levels < 1 - outside))),
        float(crps(drawn, seen).mean()),
        float(crps(others[None, :MOST_OTHERS], seen).mean()),
    )


def transform(drawn: FloatArray, seen: FloatArray, generator: np.random.Generator) -> FloatArray:
    """(n,) The randomised transform of what came (n,) among draws (n, m) of its prediction."""
    below = (drawn < seen[:, None]).sum(axis=1)
    equal = (drawn == seen[:, None]).sum(axis=1)
    among = below + generator.random(len(seen)) * (equal + 1)
    return np.asarray(among / (drawn.shape[1] + 1), np.float64)


def crps(drawn: FloatArray, seen: FloatArray) -> FloatArray:
    """(n,) E|Y - z| - ½ E|Y - Y'| of each z (n,), from draws (n, m) of Y, or (1, m) for all.

    Without bias, whatever m is (Gneiting & Raftery 2007).

    >>> crps(np.array([[0.0, 2.0]]), np.array([1.0]))
    array([0.])
    """
    ordered, m = np.sort(drawn, axis=1), drawn.shape[1]
    between = 2 * ordered @ (2 * np.arange(1, m + 1) - m - 1) / (m * (m - 1))
    away = np.abs(drawn - seen[:, None]).mean(axis=1)
    return np.asarray(away - 0.5 * between, np.float64)
