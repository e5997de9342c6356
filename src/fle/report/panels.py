"""What the page shows of one distribution of a scalar return: tail table, histogram, CDF."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fle.returns import Measure, ReturnDistribution, risk
from fle.returns.intervals import half_width
from fle.returns.measures import RISK_LEVEL, enough_in_tail

FloatArray = NDArray[np.float64]

LEVELS = np.arange(1, 100) / 100
# Where every slider begins.
START_LEVEL = int(np.searchsorted(LEVELS, RISK_LEVEL))
BINS = 120
THRESHOLDS = 200
COARSER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
# A chart follows another distribution than the estimate at most this many of the estimate's widths.
FARTHEST = 4.0
# Share of a distribution beyond each end of the chart.
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
    def around(cls, estimate: ReturnDistribution, others: Sequence[ReturnDistribution]) -> "Axis":
        """Nearly all of the estimate, and of the others as far as they are near."""
        low, high = _central_range(estimate)
        width = high - low
        for other in others:
            other_low, other_high = _central_range(other)
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


@dataclass(frozen=True, eq=False)
class Ends:
    """Both ends (2, k) of the intervals of what sliders show; see `Panel`."""

    value_at_risk: FloatArray
    cvar: FloatArray
    below: FloatArray

    @classmethod
    def of(cls, returns: ReturnDistribution, axis: Axis) -> "Ends | None":
        """Where there are replicates."""
        if returns.replicates is None:
            return None
        laws, level = returns.replicates.laws, returns.replicates.level

        def ends(read: Callable[[FloatArray], FloatArray]) -> FloatArray:
            value = read(returns.samples[:, 0])
            half = half_width(value, [read(law.samples[:, 0]) for law in laws], level)
            return np.stack([value - half, value + half])

        return cls(
            value_at_risk=ends(lambda values: risk.quantile(values, LEVELS)),
            cvar=ends(lambda values: risk.cvar(values, LEVELS)),
            below=np.clip(ends(lambda values: risk.below(values, axis.thresholds)), 0.0, 1.0),
        )


@dataclass(frozen=True, eq=False)
class Panel:
    """One distribution of a scalar return, boiled down to what charts and sliders show.

    value_at_risk, cvar: at LEVELS. supported: at which of them enough draws lie in the tail. below:
    P(Z < t) at the thresholds of the axis. edges, heights: a histogram in units of density.
    outside: share beyond the chart. ends: of intervals, where there are any. Every other number is
    asked of `returns`.
    """

    returns: ReturnDistribution
    value_at_risk: FloatArray
    cvar: FloatArray
    supported: NDArray[np.bool_]
    below: FloatArray
    edges: FloatArray
    heights: FloatArray
    outside: float
    ends: Ends | None = None

    @classmethod
    def of(cls, returns: ReturnDistribution, axis: Axis) -> "Panel":
        """What the page needs of a scalar return, by the functions of the register."""
        values, weights = returns.samples[:, 0], returns.weights
        edges, heights = _histogram(returns, axis)
        return cls(
            returns=returns,
            value_at_risk=risk.quantile(values, LEVELS, weights),
            cvar=risk.cvar(values, LEVELS, weights),
            supported=enough_in_tail(LEVELS, returns.effective_size),
            below=risk.below(values, axis.thresholds, weights),
            edges=edges,
            heights=heights,
            outside=1.0 - float(heights @ np.diff(edges)),
            ends=Ends.of(returns, axis),
        )

    @property
    def size(self) -> int:
        """Number of draws or episodes."""
        return len(self.returns.samples)

    @property
    def mean(self) -> float:
        """Mean of the return."""
        return float(self.returns.mean())

    def edge(self, level: int) -> float | None:
        """Where the tail of a level begins, None where too few draws lie in it."""
        return float(self.value_at_risk[level]) if self.supported[level] else None

    def tail_mean(self, level: int) -> float | None:
        """The mean of the tail, None where too few draws lie in it."""
        return float(self.cvar[level]) if self.supported[level] else None

    def measure(self, asked: str | Measure) -> float | None:
        """A measure, None where too few draws decide it."""
        return self.returns.measure_if_supported(asked)


def _central_range(returns: ReturnDistribution) -> tuple[float, float]:
    low, high = risk.quantile(returns.samples[:, 0], [CUT, 1 - CUT], returns.weights)
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


def _histogram(returns: ReturnDistribution, axis: Axis) -> tuple[FloatArray, FloatArray]:
    """Heights over bins of the axis, merged until small samples look calm (Rice's rule)."""
    edges = axis.edges
    low, high = _central_range(returns)
    share = min(1.0, (high - low) / (edges[-1] - edges[0]))
    wanted = max(5.0, 2 * returns.effective_size ** (1 / 3))
    merge = next(factor for factor in COARSER if share * BINS / factor <= wanted or factor == 60)
    edges = edges[::merge]
    weights = returns.weights
    masses = np.histogram(returns.samples[:, 0], edges, weights=weights)[0]
    total = len(returns.samples) if weights is None else weights.sum()
    return edges, masses / (total * np.diff(edges))
