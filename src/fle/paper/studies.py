"""The studies of the theory as files: computed once, read afterwards."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fle.files import read_json, write_json
from fle.paper import theory
from fle.paper.study import Study
from fle.paper.tables import Table

Make = Callable[[Sequence[int], Sequence[int]], Study]
STUDIES: dict[str, Make] = {
    "tabular": theory.tabular_study,
    "lqr": theory.lqr_study,
    "cvar": theory.cvar_study,
    "discounted": theory.discounted_study,
}
QUICK_SIZES = (3_000, 12_000, 48_000)
EXPECTED_SLOPE, SLOPE_TOLERANCE = -0.5, 0.1


def plan(*, quick: bool) -> dict[str, list[int]]:
    """Sizes and seeds of every study."""
    sizes = QUICK_SIZES if quick else theory.SIZES
    return {"sizes": [int(n) for n in sizes], "seeds": list(theory.SEEDS)}


def is_kept(path: Path, *, quick: bool) -> bool:
    """Whether the study is there with these sizes and seeds."""
    return path.exists() and read_json(path)["settings"] == plan(quick=quick)


def keep(name: str, path: Path, *, quick: bool) -> None:
    """Compute a study and write it."""
    settings = plan(quick=quick)
    write_json(path, as_plain(STUDIES[name](settings["sizes"], settings["seeds"]), settings))


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
