"""Means and standard errors over seeds, beside the published figures, as tables."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fle.paper.presets import ALL_METHODS, PRESETS
from fle.paper.published import SHORT_STEPS, Distance, Published, published

FloatArray = NDArray[np.float64]

TITLES = {
    ("1d", "tv"): "Total variation, one-dimensional combination lock (H = 20)",
    ("1d", "w1"): "1-Wasserstein distance, one-dimensional combination lock (H = 20)",
    ("2d", "tv"): "Total variation, two-dimensional combination lock (H = 10)",
}
DISTANCES: tuple[tuple[str, Distance], ...] = (("1d", "tv"), ("1d", "w1"), ("2d", "tv"))
NONE = "-"


class Column(NamedTuple):
    """One method in one preset: its distances at h = 1..H, averaged over seeds.

    each: (seeds, H).
    standard_errors: NaN where there is one seed.
    """

    seeds: tuple[int, ...]
    each: FloatArray
    means: FloatArray
    standard_errors: FloatArray
    seconds: float
    settings: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table as text: one row of the header, then the rows; the first column is a name."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remark: str = ""

    def text(self) -> str:
        """For a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        body = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *filter(None, [self.remark]), "", *body])

    def markdown(self) -> str:
        """For a page that is read as it is."""
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([f"## {self.title}", *filter(None, [self.remark]), "", *body])


def aggregate(
    runs: list[dict[str, Any]], experiment: str, distance: Distance
) -> dict[tuple[str, str], Column]:
    """Columns by (method, preset).

    Where a method was also run for W1 with another learning rate, the W1 table shows that.
    """
    chosen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    special = {(r["method"], r["preset"]) for r in runs if r["experiment"] == f"{experiment}-w1"}
    for run in runs:
        pair = run["method"], run["preset"]
        wanted = experiment
        if distance == "w1" and pair in special:
            wanted = f"{experiment}-w1"
        if run["experiment"] == wanted:
            chosen.setdefault(pair, []).append(run)
    return {pair: _column(several, distance) for pair, several in chosen.items()}


def _column(runs: list[dict[str, Any]], distance: Distance) -> Column:
    ordered = sorted(runs, key=lambda run: run["seed"])
    values = np.array([run[distance] for run in ordered])
    number = len(ordered)
    spread = values.std(axis=0, ddof=1) if number > 1 else np.full(values.shape[1], np.nan)
    return Column(
        tuple(run["seed"] for run in ordered),
        values,
        values.mean(axis=0),
        spread / np.sqrt(number),
        float(np.mean([run["seconds"] for run in ordered])),
        ordered[0]["settings"],
    )


def short_table(
    columns: dict[tuple[str, str], Column], experiment: str, distance: Distance, remark: str
) -> Table:
    """The paper's main table: three values of h, all methods and presets below one another."""
    source = published(experiment, distance)
    places = [h - 1 for h in SHORT_STEPS[experiment]]
    rows = []
    for method in _methods(columns, source):
        if method in source.means:
            errors = source.standard_errors[method]
            cells = [_cell(source.means[method][i], errors[i]) for i in places]
            rows.append((f"{method}, published", *cells, "5", NONE))
        for preset in PRESETS[::-1]:
            column = columns.get((method, preset))
            if column is not None:
                cells = [_cell(column.means[i], column.standard_errors[i]) for i in places]
                end = (str(len(column.seeds)), f"{column.seconds:.0f}")
                rows.append((f"{method}, {preset}", *cells, *end))
    rows.append(("sampling floor", *(f"{source.floor[i]:.4f}" for i in places), NONE, NONE))
    header = ("", *(f"h = {i + 1}" for i in places), "seeds", "seconds")
    return Table(TITLES[experiment, distance], header, tuple(rows), remark)


def full_tables(
    columns: dict[tuple[str, str], Column], experiment: str, distance: Distance, remark: str
) -> list[Table]:
    """Every h, one table a method."""
    source = published(experiment, distance)
    tables = []
    for method in _methods(columns, source):
        presets = [preset for preset in PRESETS[::-1] if (method, preset) in columns]
        rows = []
        for i in range(len(source.floor)):
            told = [
                _cell(columns[method, p].means[i], columns[method, p].standard_errors[i])
                for p in presets
            ]
            first = NONE
            if method in source.means:
                first = _cell(source.means[method][i], source.standard_errors[method][i])
            rows.append((str(i + 1), first, *told, f"{source.floor[i]:.4f}"))
        header = ("h", "published", *presets, "floor")
        title = f"{TITLES[experiment, distance]}: {method}"
        tables.append(Table(title, header, tuple(rows), remark))
    return tables


def _methods(columns: dict[tuple[str, str], Column], source: Published) -> list[str]:
    """Those that have a result, in the paper's order."""
    present = {method for method, _ in columns}
    return [method for method in ALL_METHODS if method in present]


def _cell(mean: float, standard_error: float) -> str:
    return f"{mean:.3f}" if np.isnan(standard_error) else f"{mean:.3f} ± {standard_error:.3f}"
