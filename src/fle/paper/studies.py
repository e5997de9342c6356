"""Errors against the number of rows, beside what the theorems allow; as files and as tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fle.errors import SettingsError
from fle.paper.lock_tables import Table

FloatArray = NDArray[np.float64]

EXPECTED_SLOPE, SLOPE_TOLERANCE = -0.5, 0.1


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


def as_plain(study: Study, settings: dict[str, Any]) -> dict[str, Any]:
    """All of a study, and what follows from it."""
    return {
        "settings": settings,
        "name": study.name,
        "distance": study.distance,
        "coverage": float(study.coverage),
        "errors": study.errors.tolist(),
        "bounds": {name: values.tolist() for name, values in study.bounds.items()},
        "slope": study.slope,
        "slope_error": study.slope_error,
        "violations": study.violations(),
        "looseness": {name: list(value) for name, value in study.looseness().items()},
    }


def from_plain(plain: dict[str, Any]) -> Study:
    """The study that was written."""
    return Study(
        plain["name"],
        plain["distance"],
        np.array(plain["settings"]["sizes"], dtype=float),
        np.array(plain["errors"]),
        {name: np.array(values) for name, values in plain["bounds"].items()},
        plain["coverage"],
    )


def table(study: Study) -> Table:
    """Mean error and mean bounds against n, the slope, and how often a bound was broken."""
    names = list(study.bounds)
    rows = [
        (
            f"{int(n):,}",
            f"{study.mean_errors[i]:.3g} ± {study.standard_errors[i]:.1g}",
            *(f"{study.bounds[name][i].mean():.3g}" for name in names),
        )
        for i, n in enumerate(study.sizes)
    ]
    loose = study.looseness()
    rows.append(("largest error / bound", "", *(f"{loose[name].largest:.2g}" for name in names)))
    rows.append(("times exceeded", "", *(str(study.violations()[name]) for name in names)))
    remark = (
        f"Slope of log error against log n: {study.slope:.3f} ± {study.slope_error:.3f} "
        f"(theory: {EXPECTED_SLOPE:g}; {verdict(study)}). {study.errors.shape[1]} seeds. "
        f"C = {study.coverage:.3g}."
    )
    header = ("n", f"error ({study.distance})", *(f"bound: {name}" for name in names))
    return Table(f"Theory: {study.name}", header, tuple(rows), remark)


def verdict(study: Study) -> str:
    """Whether the slope is what theory says."""
    near = abs(study.slope - EXPECTED_SLOPE) <= SLOPE_TOLERANCE
    return f"within {SLOPE_TOLERANCE:g}" if near else f"not within {SLOPE_TOLERANCE:g}"
