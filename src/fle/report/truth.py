"""The estimate against draws of the true return: how far apart, and how far chance alone is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError
from fle.returns import (
    Floor,
    ReturnDistribution,
    sampling_floor,
    sliced_wasserstein,
    wasserstein,
)

FloatArray = NDArray[np.float64]

MOST_DRAWS = 20_000
MOST_VECTOR_DRAWS = 5_000
PROJECTIONS = 64


@dataclass(frozen=True)
class Comparison:
    """A distance in standard deviations of the true return, with its sampling floor.

    name: of the coordinate, or what is compared.
    """

    name: str
    distance: float
    floor: Floor


def checked_truth(
    truth: ArrayLike | ReturnDistribution | None, names: tuple[str, ...]
) -> FloatArray | None:
    """Draws (n, d) of the true return, of the estimate's dimension."""
    if truth is None:
        return None
    if not isinstance(truth, ReturnDistribution):
        truth = ReturnDistribution.from_samples(truth)
    if truth.dim != len(names):
        raise SettingsError(
            f"truth must have {len(names)} columns, for {', '.join(names)}; {truth.dim} came."
        )
    return truth.samples


def comparisons(
    estimate: FloatArray, truth: FloatArray, names: tuple[str, ...]
) -> tuple[Comparison, ...]:
    """W1 of each coordinate and, for vectors, sliced W1 of all of them first."""
    std = truth.std(axis=0)
    unit = np.where(std > 0, std, 1.0)
    a, b = estimate / unit, truth / unit
    single = tuple(
        _compared(name, wasserstein, a[:, i], b[:, i], MOST_DRAWS) for i, name in enumerate(names)
    )
    if len(names) == 1:
        return single
    sliced = partial(sliced_wasserstein, projections=PROJECTIONS)
    return (_compared("all returns together, sliced", sliced, a, b, MOST_VECTOR_DRAWS), *single)


def _compared(
    name: str,
    distance: Callable[[FloatArray, FloatArray], float],
    a: FloatArray,
    b: FloatArray,
    most: int,
) -> Comparison:
    """The floor is that of two samples of the truth, of the sizes that were compared."""
    generator = np.random.default_rng(0)
    a, b = (
        rows[generator.choice(len(rows), min(len(rows), most), replace=False)] for rows in (a, b)
    )
    floor = sampling_floor(
        distance, lambda g, n: b[g.integers(len(b), size=n)], (len(a), len(b)), repetitions=10
    )
    return Comparison(name, distance(a, b), floor)
