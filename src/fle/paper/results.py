"""All results as one HTML page that needs no network, and as plain values."""

import base64
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fle.files import write_atomically, write_json
from fle.paper.lock_tables import (
    DISTANCES,
    Check,
    Column,
    Distance,
    Table,
    aggregate,
    all_checks,
    full_tables,
    published,
    short_table,
)
from fle.paper.presets import DIFFERENCES
from fle.paper.studies import Study, as_plain, table
from fle.report.page import template, verbatim

FULL_REMARK = "Mean ± standard error over seeds; the paper's has five."
QUICK_REMARK = (
    "Quick, and rough: 15% of the rows, a tenth of the training steps, one target draw a row."
)


@dataclass(frozen=True)
class Results:
    """Everything that was found.

    runs: of the combination lock.
    studies: of the theory, by name.
    quick: whether they were cut short.
    environment: machine, versions and commit.
    command: what was asked for last.
    """

    runs: list[dict[str, Any]]
    studies: dict[str, Study]
    quick: bool
    environment: dict[str, Any]
    command: str

    def columns(self) -> dict[tuple[str, Distance], dict[tuple[str, str], Column]]:
        """Aggregated results of every table that has any."""
        every = {pair: aggregate(self.runs, *pair) for pair in DISTANCES}
        return {pair: columns for pair, columns in every.items() if columns}

    def main_tables(self) -> list[Table]:
        """The short tables, and one a study."""
        remark = QUICK_REMARK if self.quick else FULL_REMARK
        shorts = [short_table(columns, *pair, remark) for pair, columns in self.columns().items()]
        return [*shorts, *(table(study) for study in self.studies.values())]

    def full_tables(self) -> list[Table]:
        """Every h of every method."""
        remark = QUICK_REMARK if self.quick else ""
        return [
            full
            for pair, columns in self.columns().items()
            for full in full_tables(columns, *pair, remark)
        ]

    def checks(self) -> list[Check]:
        """What must be shown; a quick run shows nothing."""
        return [] if self.quick else all_checks(self.columns())

    def as_plain(self) -> dict[str, Any]:
        """The content of results.json."""
        return {
            **self.environment,
            "command": self.command,
            "quick": self.quick,
            "tables": [
                _plain_column(pair, method, preset, column)
                for pair, columns in self.columns().items()
                for (method, preset), column in columns.items()
            ],
            "studies": {
                name: as_plain(study, {"sizes": study.sizes.tolist()})
                for name, study in self.studies.items()
            },
            "checks": [check._asdict() for check in self.checks()],
        }


def write_results(results: Results, figures: list[str], directory: Path) -> None:
    """results.json, tables.md and index.html; figures are the names of those already written."""
    write_json(directory / "results.json", results.as_plain())
    tables = [*results.main_tables(), *results.full_tables()]
    text = "\n\n".join(["# Results", *(table.markdown() for table in tables)]) + "\n"
    write_atomically(directory / "tables.md", text.encode("utf-8"))
    write_atomically(directory / "index.html", render(results, figures, directory).encode("utf-8"))


def render(results: Results, figures: list[str], directory: Path) -> str:
    """The page as text."""
    style = resources.files("fle.report").joinpath("page.css").read_text(encoding="utf-8")
    source = resources.files("fle.paper").joinpath("results.html").read_text(encoding="utf-8")
    images = [(name, _data_address(directory / "figures" / f"{name}.svg")) for name in figures]
    settings = {
        f"{run['experiment']} {run['method']}, {run['preset']}": run["settings"]
        for run in results.runs
    }
    return template(source).render(
        style=verbatim(style),
        results=results,
        checks=results.checks(),
        images=images,
        differences=DIFFERENCES if any(r["preset"] == "paper" for r in results.runs) else (),
        settings=settings,
    )


def _data_address(path: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _plain_column(
    pair: tuple[str, Distance],
    method: str,
    preset: str,
    column: Column,
) -> dict[str, Any]:
    experiment, distance = pair
    source = published(experiment, distance)
    several = len(column.seeds) > 1
    plain = {
        "experiment": experiment,
        "distance": distance,
        "method": method,
        "preset": preset,
        "seeds": list(column.seeds),
        "each": column.each.tolist(),
        "mean": column.means.tolist(),
        "standard_error": column.standard_errors.tolist() if several else None,
        "seconds": column.seconds,
        "sampling_floor": source.floor.tolist(),
        "settings": column.settings,
    }
    if method in source.means:
        plain["published"] = source.means[method].tolist()
        plain["published_standard_error"] = source.standard_errors[method].tolist()
    return plain
