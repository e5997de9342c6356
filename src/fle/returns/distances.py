"""Distances between two distributions of the return, with floors, and calibration without truth.

Calibration holds predictions against what came. A distribution F of a real z gives the probability
integral transform F(z), which is uniform if z was drawn from F. With m draws of F in its place, the
rank of z among them is uniform on {0, ..., m}, exactly; its place within is drawn, so that
(rank + u) / (m + 1) is uniform on [0, 1] (Czado et al. 2009).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple, Self
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import DataError, FLEError, FLEWarning, SettingsError
from fle.returns.distribution import ReturnDistribution

FloatArray = NDArray[np.float64]
Density = Callable[[FloatArray], FloatArray]

# Draws of each side where an estimate is held against the truth; sorting is cheap, slicing is not.
MOST_DRAWS = 20_000
MOST_VECTOR_DRAWS = 5_000
TRUTH_PROJECTIONS = 64
BINS = 20
# Returns that stand for the law of all others.
MOST_OTHERS = 2_000
# Of the interval whose hit rate is counted, and the chance below which calibration is denied.
INTERVAL, DENIED = 0.9, 0.01


class Floor(NamedTuple):
    """What a distance reads between two independent samples of one distribution."""

    mean: float
    std: float


class TruthDistance(NamedTuple):
    """A distance (W1) in standard deviations of the true return, with its sampling floor.

    name: of the coordinate, or what is compared.
    """

    name: str
    distance: float
    floor: Floor

    def in_words(self) -> str:
        """How far, and how far chance alone is."""
        return (
            f"{self.distance:.3f} standard deviations away from the truth (W1); two samples of the "
            f"truth are {self.floor.mean:.3f} apart"
        )


def total_variation(
    p: Density,
    q: Density,
    *,
    low: float | Sequence[float],
    high: float | Sequence[float],
    points: int | None = None,
) -> float:
    """TV(p, q) = 1/2 ∫ |p - q| over the box [low, high], by the midpoint rule in 1-d or 2-d.

    Densities (not their logs) take (n,) in one dimension and (n, 2) in two. Mass outside the box
    is not counted; a warning tells when more than 1% of a density is missing from it.

    Args:
        p: the one density.
        q: the other.
        low: lower end of the box; a pair makes it two-dimensional.
        high: upper end of the box.
        points: grid points a dimension; 20,000 in one dimension and 500 in two by default.
    """
    lows, highs = _box(low, high)
    if lows.size not in (1, 2):
        raise SettingsError(
            f"low and high: expected a box in 1 or 2 dimensions, got {lows.size}. Use "
            "total_variation_from_samples or sliced_wasserstein."
        )
    count = points if points is not None else {1: 20_000, 2: 500}[lows.size]
    if count < 1:
        raise SettingsError(f"points: expected at least 1, got {points}")
    axes = [
        a + (b - a) * (np.arange(count) + 0.5) / count for a, b in zip(lows, highs, strict=True)
    ]
    grid = axes[0] if lows.size == 1 else np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    cell = float(np.prod((highs - lows) / count))
    values = [np.asarray(density(grid), dtype=float).reshape(-1) for density in (p, q)]
    for name, density_values in zip("pq", values, strict=True):
        if density_values.size != len(grid):
            raise SettingsError(
                f"{name}: expected one density for each of {len(grid)} points, got "
                f"{density_values.size}"
            )
        mass = float(density_values.sum()) * cell
        if not abs(mass - 1) <= 0.01:
            warn(
                f"Density {name} integrates to {mass:.4g} over the box, not 1. Widen low and high, "
                "raise points, or check that it is a density and not its log.",
                FLEWarning,
                stacklevel=2,
            )
    return 0.5 * float(np.abs(values[0] - values[1]).sum()) * cell


def total_variation_from_samples(
    a: ArrayLike,
    b: ArrayLike,
    *,
    bins: int,
    low: float | Sequence[float],
    high: float | Sequence[float],
) -> float:
    """TV between the histograms of two samples, `bins` a dimension, in any dimension.

    Samples outside [low, high] are counted in the edge bins. The paper's tables use 50 bins on
    [-2, 2] and 50 x 50 on [-5, 5]^2 with 20,000 samples each.
    """
    first, second = _pair(a, b)
    lows, highs = _box(low, high)
    if lows.size == 1:
        lows, highs = (np.repeat(end, first.shape[1]) for end in (lows, highs))
    if lows.size != first.shape[1]:
        raise SettingsError(
            f"low and high: expected {first.shape[1]} entries, as samples have, got {lows.size}"
        )
    if bins < 1:
        raise SettingsError(f"bins: expected at least 1, got {bins}")
    both = np.concatenate([first, second])
    positions = np.clip(np.floor((both - lows) / (highs - lows) * bins), 0, bins - 1).astype(int)
    # Only occupied bins are stored, so that bins ** d need not fit in memory.
    occupied, which = np.unique(positions, axis=0, return_inverse=True)
    which = which.reshape(-1)
    shares = [
        np.bincount(part, minlength=len(occupied)) / part.size
        for part in (which[: len(first)], which[len(first) :])
    ]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())


def wasserstein(
    a: ArrayLike, b: ArrayLike, *, order: float = 1, max_points: int = 2000, seed: int = 0
) -> float:
    """The order-Wasserstein distance with Euclidean ground cost.

    One dimension: exact quantile coupling, samples of any and unequal sizes. More dimensions:
    exact optimal transport by POT between at most `max_points` of each sample, drawn without
    replacement with `seed`; time grows about as points^3 and memory as points^2 (2000 points: about
    two seconds and 32 MB; 5000: ten seconds and 200 MB). Read it beside its sampling floor.
    """
    _check_order(order)
    first, second = _pair(a, b)
    if first.shape[1] == 1:
        return _transport_on_the_line(first[:, 0], second[:, 0], order) ** (1 / order)
    try:
        import ot
    except ImportError as error:
        raise FLEError(
            "Wasserstein distances of vectors need POT: install fle[transport], "
            "or use sliced_wasserstein."
        ) from error
    generator = np.random.default_rng(seed)
    first, second = (
        rows[generator.choice(len(rows), max_points, replace=False)]
        if len(rows) > max_points
        else rows
        for rows in (first, second)
    )
    cost = ot.dist(first, second, metric="euclidean") ** order
    masses = (np.full(len(rows), 1 / len(rows)) for rows in (first, second))
    return float(max(ot.emd2(*masses, cost, numItermax=10_000_000), 0.0)) ** (1 / order)


def sliced_wasserstein(
    a: ArrayLike, b: ArrayLike, *, order: float = 1, projections: int = 128, seed: int = 0
) -> float:
    """(mean over random unit directions u of W_order(u·a, u·b)^order)^(1/order)."""
    _check_order(order)
    first, second = _pair(a, b)
    if projections < 1:
        raise SettingsError(f"projections: expected at least 1, got {projections}")
    directions = np.random.default_rng(seed).standard_normal((projections, first.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    costs = [_transport_on_the_line(first @ u, second @ u, order) for u in directions]
    return float(np.mean(costs)) ** (1 / order)


def energy_distance(a: ArrayLike, b: ArrayLike) -> float:
    """sqrt(2 E|X - Y| - E|X - X'| - E|Y - Y'|) between scalar samples (Székely, 2002)."""
    first, second = _pair(a, b)
    if first.shape[1] != 1:
        raise SettingsError("energy_distance serves scalar returns; use sliced_wasserstein.")
    from scipy.stats import energy_distance as one_dimensional

    return float(one_dimensional(first[:, 0], second[:, 0]))


def sampling_floor(
    distance: Callable[[FloatArray, FloatArray], float],
    draw: Callable[[np.random.Generator, int], FloatArray],
    size: int | tuple[int, int],
    repetitions: int = 10,
    seed: int = 0,
) -> Floor:
    """The distance between two independent samples of one distribution.

    Print it beside any measured distance: a perfect estimator would read this, on average, against
    the truth.

    Args:
        distance: the statistic, with its settings bound.
        draw: (generator, n) -> n samples of it.
        size: size of both samples, or of each.
        repetitions: how many pairs are drawn; `std` is over these.
        seed: seed of the pairs.
    """
    if repetitions < 2:
        raise SettingsError(f"repetitions: expected at least 2, got {repetitions}")
    sizes = (size, size) if isinstance(size, int) else size
    generator = np.random.default_rng(seed)
    readings = [
        distance(draw(generator, sizes[0]), draw(generator, sizes[1])) for _ in range(repetitions)
    ]
    return Floor(mean=float(np.mean(readings)), std=float(np.std(readings, ddof=1)))


def distances_to_truth(
    estimate: ReturnDistribution, truth: ReturnDistribution
) -> tuple[TruthDistance, ...]:
    """W1 of each coordinate and, for vectors, sliced W1 of all of them first."""
    names = estimate.names
    std = np.atleast_1d(truth.std())
    unit = np.where(std > 0, std, 1.0)
    ours, theirs = _pair_of_draws(estimate, truth, MOST_DRAWS)
    ours, theirs = ours / unit, theirs / unit
    single = tuple(
        _held_against(name, wasserstein, ours[:, i], theirs[:, i]) for i, name in enumerate(names)
    )
    if len(names) == 1:
        return single
    ours, theirs = _pair_of_draws(estimate, truth, MOST_VECTOR_DRAWS)
    sliced = partial(sliced_wasserstein, projections=TRUTH_PROJECTIONS)
    together = _held_against("all returns together, sliced", sliced, ours / unit, theirs / unit)
    return (together, *single)


def _pair_of_draws(
    estimate: ReturnDistribution, truth: ReturnDistribution, most: int
) -> tuple[FloatArray, FloatArray]:
    # Two seeds: with one, the two sides would be more alike than they are.
    return estimate.some_draws(most, seed=0), truth.some_draws(most, seed=1)


def _held_against(
    name: str,
    distance: Callable[[FloatArray, FloatArray], float],
    ours: FloatArray,
    theirs: FloatArray,
) -> TruthDistance:
    """The floor is that of two samples of the truth, of the sizes that are compared."""
    floor = sampling_floor(
        distance,
        lambda generator, n: theirs[generator.integers(len(theirs), size=n)],
        (len(ours), len(theirs)),
    )
    return TruthDistance(name, distance(ours, theirs), floor)


def _transport_on_the_line(a: FloatArray, b: FloatArray, order: float) -> float:
    """∫_0^1 |F_a^-1(u) - F_b^-1(u)|^order du, exact for step functions of n and m steps."""
    a, b = np.sort(a), np.sort(b)
    if len(a) == len(b):
        return float(np.mean(np.abs(a - b) ** order))
    # Both quantile functions are constant between consecutive levels i/n and j/m; in units of
    # 1/(nm) those levels are whole numbers and compare exactly.
    n, m = len(a), len(b)
    levels = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    left, widths = levels[:-1], np.diff(levels) / (n * m)
    return float(widths @ np.abs(a[left // m] - b[left // n]) ** order)


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Both samples as (n, d) rows of the same d, finite and not empty."""
    both = []
    for samples in (a, b):
        rows = np.asarray(samples, dtype=float)
        rows = rows[:, None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.size == 0:
            raise DataError(f"samples: expected shape (n,) or (n, d), got {np.shape(samples)}")
        if not np.all(np.isfinite(rows)):
            raise DataError("samples: expected finite numbers, got NaN or infinity")
        both.append(rows)
    if both[0].shape[1] != both[1].shape[1]:
        raise DataError(
            "samples: expected both to share a dimension, got "
            f"{both[0].shape[1]} and {both[1].shape[1]}"
        )
    return both[0], both[1]


def _box(
    low: float | Sequence[float], high: float | Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    lows, highs = np.broadcast_arrays(np.atleast_1d(low), np.atleast_1d(high))
    lows, highs = lows.astype(float), highs.astype(float)
    if lows.ndim != 1 or not np.all(lows < highs) or not np.all(np.isfinite([lows, highs])):
        raise SettingsError(f"low and high: expected finite low < high, got {low} and {high}")
    return lows, highs


def _check_order(order: float) -> None:
    if not order >= 1:
        raise SettingsError(f"order: expected at least 1, got {order}")


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
