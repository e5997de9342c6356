"""What the page shows of one sample of a scalar return: moments, tail table, histogram, CDF."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fle.returns import quantile

FloatArray = NDArray[np.float64]

LEVELS = np.arange(1, 100) / 100
# The worst tenth, where every slider begins.
START_LEVEL = 9
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 120
THRESHOLDS = 200
COARSER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
# A chart follows another law than the estimate at most this many of the estimate's widths.
FARTHEST = 4.0
# Share of a law beyond each end of the chart.
CUT = 0.001


@dataclass(frozen=True)
class Axis:
    """The range of a chart, and the round thresholds on it; `thresholds` holds 0 if it is inside.

    `first` and `last` count steps from 0.
    """

    step: float
    first: int
    last: int

    @classmethod
    def around(cls, estimate: FloatArray, others: Sequence[FloatArray]) -> "Axis":
        """Nearly all of the estimate, and of the others as far as they are near."""
        low, high = _central_range(estimate)
        width = high - low
        for sample in others:
            other_low, other_high = _central_range(sample)
            low = min(low, max(other_low, low - FARTHEST * width))
            high = max(high, min(other_high, high + FARTHEST * width))
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            half = 0.1 * max(abs(low), abs(high)) or 1.0
            low, high = low - half, high + half
        margin = 0.03 * (high - low)
        step = _round_step((high - low) / THRESHOLDS)
        return cls(step, math.floor((low - margin) / step), math.ceil((high + margin) / step))

    @property
    def thresholds(self) -> FloatArray:
        """Multiples of the step, from end to end."""
        return np.asarray(np.arange(self.first, self.last + 1) * self.step, dtype=float)

    @property
    def edges(self) -> FloatArray:
        """Edges of the finest histogram."""
        return np.linspace(self.first * self.step, self.last * self.step, BINS + 1)

    def position(self, value: float) -> int:
        """Index of the threshold nearest to a value."""
        return int(np.clip(round(value / self.step), self.first, self.last)) - self.first


@dataclass(frozen=True)
class Law:
    """A scalar sample, boiled down.

    quantiles: at QUANTILES. value_at_risk, cvar: at LEVELS. below: P(Z < t) at the thresholds of
    the axis. edges, heights: a histogram in units of density. outside: share beyond the chart.
    """

    size: int
    mean: float
    std: float
    quantiles: FloatArray
    value_at_risk: FloatArray
    cvar: FloatArray
    loss: float
    below: FloatArray
    edges: FloatArray
    heights: FloatArray
    outside: float

    @classmethod
    def of(cls, sample: FloatArray, axis: Axis) -> "Law":
        """Everything the page needs, from one sorting of the sample."""
        ordered = np.sort(sample)
        edges, heights = _histogram(ordered, axis)
        outside = np.mean((ordered < edges[0]) | (ordered > edges[-1]))
        return cls(
            size=ordered.size,
            mean=float(ordered.mean()),
            std=float(ordered.std()),
            quantiles=quantile(ordered, QUANTILES),
            value_at_risk=quantile(ordered, LEVELS),
            cvar=tail_means(ordered, LEVELS),
            loss=float(np.mean(ordered < 0)),
            below=np.searchsorted(ordered, axis.thresholds, side="left") / ordered.size,
            edges=edges,
            heights=heights,
            outside=float(outside),
        )


def tail_means(ordered: FloatArray, levels: FloatArray) -> FloatArray:
    """CVaR at every level, from running sums; a value at the boundary counts in part."""
    draws = levels * ordered.size
    # Centred sums: running sums of large equal numbers would lose the small differences.
    centre = ordered[0]
    sums = np.concatenate([[0.0], np.cumsum(ordered - centre)])
    whole = np.minimum(np.floor(draws).astype(int), ordered.size - 1)
    return centre + (sums[whole] + (draws - whole) * (ordered[whole] - centre)) / draws


def _central_range(sample: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(sample, [CUT, 1 - CUT])
    return float(low), float(high)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least `least`."""
    power = math.floor(math.log10(least))
    for factor in (1, 2, 5):
        # From text, so that 0.002 is the float nearest to it.
        step = float(f"{factor}e{power}")
        if step >= least:
            return step
    return float(f"1e{power + 1}")


def _histogram(ordered: FloatArray, axis: Axis) -> tuple[FloatArray, FloatArray]:
    """Heights over bins of the axis, merged until small samples look calm (Rice's rule)."""
    edges = axis.edges
    low, high = _central_range(ordered)
    share = min(1.0, (high - low) / (edges[-1] - edges[0]))
    wanted = max(5.0, 2 * ordered.size ** (1 / 3))
    merge = next(factor for factor in COARSER if share * BINS / factor <= wanted or factor == 60)
    edges = edges[::merge]
    counts = np.histogram(ordered, edges)[0]
    return edges, counts / (ordered.size * np.diff(edges))
