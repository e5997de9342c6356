"""What the reproduction must show, judged by the results."""

from typing import NamedTuple

import numpy as np

from fle.paper.published import ROUNDING, SHORT_STEPS, Distance, published
from fle.paper.tables import DISTANCES, Column

Columns = dict[tuple[str, str], Column]

FLOOR_MULTIPLE_1D = 1.3
W1_LIMIT = 0.02
BEST_MULTIPLES_2D = (1.3, 1.6)
DIFFUSION_MULTIPLE_2D = 2.0
ALLOWED_ERRORS = 2.0


class Check(NamedTuple):
    """A statement, whether it holds, and the figures behind it."""

    statement: str
    holds: bool
    figures: str


def all_checks(columns: dict[tuple[str, Distance], Columns]) -> list[Check]:
    """Every statement for which there are results."""
    checks = []
    for experiment, distance in DISTANCES:
        present = columns.get((experiment, distance), {})
        for method, preset in present:
            if method not in published(experiment, distance).means:
                continue
            if preset == "paper":
                checks.append(_matches(experiment, distance, method, present[method, preset]))
            else:
                checks.append(_beats(experiment, distance, method, present[method, preset]))
    gmm_tv = columns.get(("1d", "tv"), {}).get(("gmm", "ours"))
    if gmm_tv is not None:
        ratios = gmm_tv.means / published("1d", "tv").floor
        statement = f"1d: ours, GMM at most {FLOOR_MULTIPLE_1D} × the sampling floor in TV"
        checks.append(_at_most(statement, ratios, np.full(ratios.size, FLOOR_MULTIPLE_1D)))
    gmm_w1 = columns.get(("1d", "w1"), {}).get(("gmm", "ours"))
    if gmm_w1 is not None:
        statement = f"1d: ours, GMM at most {W1_LIMIT} in W1"
        checks.append(_at_most(statement, gmm_w1.means, np.full(gmm_w1.means.size, W1_LIMIT)))
    return checks + _vector_checks(columns.get(("2d", "tv"), {}))


def _matches(experiment: str, distance: Distance, method: str, column: Column) -> Check:
    """At the h of the paper's main tables, not above the published figure by two errors."""
    source = published(experiment, distance)
    places = np.array(SHORT_STEPS[experiment]) - 1
    ours, theirs = column.means[places], source.means[method][places]
    errors = np.hypot(
        np.nan_to_num(column.standard_errors[places]), source.standard_errors[method][places]
    )
    excess = (ours - theirs - ROUNDING) / errors
    figures = ", ".join(
        f"h = {h}: {a:.3f} against {b:.3f} ± {s:.3f}"
        for h, a, b, s in zip(
            SHORT_STEPS[experiment],
            ours,
            theirs,
            source.standard_errors[method][places],
            strict=True,
        )
    )
    statement = (
        f"{experiment}: paper preset, {method} matches or beats the published "
        f"{distance.upper()} within {ALLOWED_ERRORS:g} standard errors"
    )
    return Check(statement, bool(np.all(excess <= ALLOWED_ERRORS)), figures)


def _beats(experiment: str, distance: Distance, method: str, column: Column) -> Check:
    source = published(experiment, distance).means[method]
    statement = (
        f"{experiment}: ours, {method} at least as good as published in {distance.upper()} "
        "at every h"
    )
    return _at_most(statement, column.means, source + ROUNDING)


def _vector_checks(columns: Columns) -> list[Check]:
    floor = published("2d", "tv").floor
    ours = {m: column.means / floor for (m, preset), column in columns.items() if preset == "ours"}
    checks = []
    if ours:
        best = min(ours, key=lambda method: float(ours[method].max()))
        near, far = BEST_MULTIPLES_2D
        limits = np.where(np.arange(floor.size) < floor.size // 2, near, far)
        statement = (
            f"2d: ours, the best model ({best}) at most {near} × the sampling floor for h = 1..5 "
            f"and {far} × for h = 6..10"
        )
        checks.append(_at_most(statement, ours[best], limits))
    if "diffusion" in ours:
        limit = DIFFUSION_MULTIPLE_2D
        statement = f"2d: ours, diffusion at most {limit:g} × the sampling floor"
        checks.append(_at_most(statement, ours["diffusion"], np.full(floor.size, limit)))
    return checks


def _at_most(statement: str, values: np.ndarray, limits: np.ndarray) -> Check:
    worst = int(np.argmax(values / limits))
    over = [str(i + 1) for i in np.flatnonzero(values > limits)]
    figures = f"closest to the limit at h = {worst + 1}: {values[worst]:.3f} ≤ {limits[worst]:.3f}"
    if over:
        figures = (
            f"exceeded at h = {', '.join(over)}; worst at h = {worst + 1}: "
            f"{values[worst]:.3f} > {limits[worst]:.3f}"
        )
    return Check(statement, not over, figures)
