"""Errors against the number of rows, beside what the theorems allow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fle.errors import SettingsError

FloatArray = NDArray[np.float64]


class Looseness(NamedTuple):
    """Measured error over bound: its median and its largest value; above 1 the bound is broken."""

    median: float
    largest: float


@dataclass(frozen=True, eq=False)
class Study:
    """One distance, measured for several sizes of the data and several seeds.

    Args:
        name: of the task.
        distance: what is measured, with its unit.
        sizes: (m,) rows of all stages.
        errors: (m, seeds).
        bounds: by name, (m, seeds) each.
        coverage: C that the bounds use.
    """

    name: str
    distance: str
    sizes: FloatArray
    errors: FloatArray
    bounds: Mapping[str, FloatArray]
    coverage: float

    def __post_init__(self) -> None:
        shape = (len(self.sizes), self.errors.shape[-1])
        if len(self.sizes) < 2 or any(
            values.shape != shape for values in (self.errors, *self.bounds.values())
        ):
            raise SettingsError(
                f"A study needs at least 2 sizes and one number for each size and seed {shape}."
            )

    @property
    def mean_errors(self) -> FloatArray:
        """(m,) over the seeds."""
        return self.errors.mean(axis=1)

    @property
    def standard_errors(self) -> FloatArray:
        """(m,) of the mean errors."""
        return self.errors.std(axis=1, ddof=1) / np.sqrt(self.errors.shape[1])

    @property
    def slope(self) -> float:
        """Least-squares slope of log mean error against log n; theory says -1/2."""
        return float(self._slope_weights @ np.log(self.mean_errors))

    @property
    def slope_error(self) -> float:
        """Standard error of the slope, from the spread over seeds."""
        relative = self.standard_errors / self.mean_errors
        return float(np.sqrt(self._slope_weights**2 @ relative**2))

    def looseness(self) -> dict[str, Looseness]:
        """How much of each bound is used."""
        ratios = {name: self.errors / bound for name, bound in self.bounds.items()}
        return {
            name: Looseness(float(np.median(ratio)), float(ratio.max()))
            for name, ratio in ratios.items()
        }

    def violations(self) -> dict[str, int]:
        """How often the measured error exceeds each bound."""
        return {name: int((self.errors > bound).sum()) for name, bound in self.bounds.items()}

    @property
    def _slope_weights(self) -> FloatArray:
        centred = np.log(self.sizes) - np.log(self.sizes).mean()
        return centred / (centred @ centred)
