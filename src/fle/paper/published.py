"""The published tables, and the sampling floors they should be read beside."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Distance = Literal["tv", "w1"]

# How the paper's short tables and the figures choose h.
SHORT_STEPS = {"1d": (1, 10, 19), "2d": (1, 5, 9)}
FILES = {
    ("1d", "tv"): ("combination_lock_1d_tv.csv", "sampling_floor_1d.csv", "tv_floor"),
    ("1d", "w1"): ("combination_lock_1d_w1.csv", "sampling_floor_1d.csv", "w1_floor"),
    ("2d", "tv"): ("combination_lock_2d_tv.csv", "sampling_floor_2d.csv", "tv_floor"),
}
# Half a unit of the last published digit.
ROUNDING = 0.0005


@dataclass(frozen=True, eq=False)
class Published:
    """One table of the paper: means and standard errors over five runs, at h = 1, 2, ..., H.

    floor: the same distance between two samples of the truth; no method can be below it on average.
    """

    means: dict[str, FloatArray]
    standard_errors: dict[str, FloatArray]
    floor: FloatArray


@cache
def published(experiment: str, distance: Distance) -> Published:
    """The paper's table of an experiment ("1d" or "2d") and a distance."""
    name, floor_name, floor_column = FILES[experiment, distance]
    columns, floors = _columns(name), _columns(floor_name)
    methods = [column for column in columns if f"{column}_se" in columns]
    return Published(
        means={method: columns[method] for method in methods},
        standard_errors={method: columns[f"{method}_se"] for method in methods},
        floor=floors[floor_column],
    )


def _columns(name: str) -> dict[str, FloatArray]:
    text = resources.files("fle.paper").joinpath("tables", name).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return {column: np.array([float(row[column]) for row in rows]) for column in rows[0]}
