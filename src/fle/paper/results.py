"""All results: the paper's figures, plain values, and one HTML page that needs no network."""

import base64
import struct
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fle.files import make_directory, write_atomically, write_json
from fle.paper.lock_runs import (
    DISTANCES,
    FIGURE_BINS,
    FIGURE_LIMIT,
    SHORT_STEPS,
    Check,
    Column,
    Distance,
    Table,
    aggregate,
    all_checks,
    full_tables,
    published,
    short_table,
    true_counts,
    unpacked,
)
from fle.paper.presets import ALL_METHODS, DIFFERENCES, ROWS, task_of
from fle.paper.theory import Study, as_plain, table
from fle.report.page import template, verbatim
from fle.report.style import IMAGE, altair_or_error, rendered, specification

PANEL_WIDTH, PANEL_HEIGHT = 190, 90
RING_SIZE = 150
# Deep enough for the ring to be seen where its mass is small.
COLOUR = (42, 106, 176)
BOUND_DASHES = ([6, 4], [2, 3], [8, 3, 2, 3])

Figure = dict[str, Any]
FULL_REMARK = "Mean ± standard error over seeds; the paper's has five."
QUICK_REMARK = (
    "Quick, and rough: 15% of the rows, a tenth of the training steps, one target draw a row."
)


def lock_figures(runs: list[dict[str, Any]]) -> dict[str, Figure]:
    """Densities and rings of the first seed, by the name of their file, for each preset."""
    figures = {}
    for preset in ("ours", "paper"):
        for experiment, name, draw in (("1d", "densities", densities), ("2d", "rings", rings)):
            first = _first_runs(runs, experiment, preset)
            if first:
                figures[f"{name}-{preset}"] = draw(first)
    return figures


def densities(runs: list[dict[str, Any]]) -> Figure:
    """Learned (filled) against true (line) at three steps, one row a method."""
    alt = altair_or_error()
    task, limit, bins = task_of("1d"), FIGURE_LIMIT[1], FIGURE_BINS[1]
    edges = np.linspace(-limit, limit, bins + 1)
    x = alt.X("z:Q", title=None, scale=alt.Scale(domain=[-limit, limit], nice=False))
    y = alt.Y("p:Q", title=None, stack=None, axis=alt.Axis(tickCount=3))
    rows = []
    for run in runs:
        panels = []
        for h in SHORT_STEPS["1d"]:
            learned = _steps(unpacked(run["histograms"][str(h)], 1), edges)
            true = _steps(true_counts(task, h), edges)
            area = alt.Chart(alt.Data(values=learned)).mark_area(
                color=IMAGE.estimate, opacity=0.45, interpolate="step-after", clip=True
            )
            line = alt.Chart(alt.Data(values=true)).mark_line(
                color=IMAGE.truth, strokeWidth=1.3, interpolate="step-after", clip=True
            )
            title = f"{run['method']}, h = {h}"
            panels.append(
                alt.layer(area.encode(x, y), line.encode(x, y)).properties(
                    width=PANEL_WIDTH, height=PANEL_HEIGHT, title={"text": title, "fontSize": 12}
                )
            )
        rows.append(alt.hconcat(*panels))
    subtitle = "density of the return; filled: learned, green line: true"
    heading = {"text": f"1-d combination lock, {_source(runs)}", "subtitle": subtitle}
    return specification(alt.vconcat(*rows).properties(title=heading), IMAGE)


def rings(runs: list[dict[str, Any]]) -> Figure:
    """Heat maps of the two-dimensional return: the truth, then every method, at three steps."""
    alt = altair_or_error()
    task = task_of("2d")
    named = [("truth", {str(h): true_counts(task, h) for h in SHORT_STEPS["2d"]})]
    for run in runs:
        maps = {h: unpacked(text, 2) for h, text in run["histograms"].items()}
        named.append((run["method"], maps))
    rows = []
    for h in SHORT_STEPS["2d"]:
        top = float(named[0][1][str(h)].max())
        panels = [_heat_map(alt, maps[str(h)], top, f"{name}, h = {h}") for name, maps in named]
        rows.append(alt.hconcat(*panels, spacing=12))
    limit = FIGURE_LIMIT[2]
    subtitle = f"density of the two returns on [-{limit:g}, {limit:g}]²; deeper is more likely"
    heading = {"text": f"2-d combination lock, {_source(runs)}", "subtitle": subtitle}
    return specification(alt.vconcat(*rows, spacing=12).properties(title=heading), IMAGE)


def study_figure(study: Study) -> Figure:
    """Error against n on log axes: every seed, the mean, the bounds, and the slope."""
    alt = altair_or_error()
    sizes = [float(n) for n in study.sizes]
    points = [
        {"n": n, "e": float(e)} for n, row in zip(sizes, study.errors, strict=True) for e in row
    ]
    ends = [sizes[0] / 1.3, sizes[-1] * 1.3]
    x = alt.X(
        "n:Q",
        title="rows n",
        scale=alt.Scale(type="log", domain=ends, nice=False),
        axis=alt.Axis(values=sizes, format=","),
    )
    y = alt.Y("e:Q", title=study.distance, scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=6))
    means = _line(alt, sizes, study.mean_errors)
    dots = alt.Chart(alt.Data(values=points)).mark_circle(
        color=IMAGE.estimate, opacity=0.25, size=14
    )
    layers = [
        dots.encode(x, y),
        means.mark_line(color=IMAGE.estimate, strokeWidth=2, point=True).encode(x, y),
    ]
    for (name, values), dash in zip(study.bounds.items(), BOUND_DASHES, strict=False):
        line = _line(alt, sizes, values.mean(axis=1))
        label = alt.Chart(
            alt.Data(values=[{"n": sizes[-1], "e": float(values[-1].mean()), "t": name}])
        )
        layers.append(line.mark_line(color=IMAGE.tail, strokeDash=dash).encode(x, y))
        layers.append(
            label.mark_text(align="left", dx=8, color=IMAGE.tail, clip=False).encode(
                x, y, text="t:N"
            )
        )
    subtitle = (
        f"slope {study.slope:.2f} ± {study.slope_error:.2f}, theory -1/2; "
        "blue: measured, orange: bounds (means over seeds)"
    )
    heading = {"text": f"{study.name}: error against rows", "subtitle": subtitle}
    chart = alt.layer(*layers).properties(width=460, height=300, title=heading)
    return specification(chart, IMAGE)


def write_figures(figures: dict[str, Figure], directory: Path) -> None:
    """Every figure as PNG and SVG."""
    if figures:
        make_directory(directory)
    for name, figure in figures.items():
        for suffix in (".png", ".svg"):
            write_atomically(directory / f"{name}{suffix}", rendered(figure, suffix))


def png_image(shares: NDArray[np.float64], colour: tuple[int, int, int]) -> bytes:
    """A PNG whose pixels are the colour, as opaque as the shares (rows, columns) in [0, 1] say."""
    height, width = shares.shape
    pixels = np.empty((height, width, 4), dtype=np.uint8)
    pixels[..., :3] = colour
    pixels[..., 3] = np.round(255 * np.clip(shares, 0, 1))
    # Every line begins with its filter type, 0: none.
    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)])
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def _heat_map(alt: Any, cells: NDArray[np.int64], top: float, title: str) -> Any:
    # Histograms have the first coordinate first; images the second, downwards.
    shares: NDArray[np.float64] = np.sqrt(cells.T[::-1] / top)
    # Cells become whole blocks of pixels, as viewers smooth what they enlarge.
    enlarged = shares.repeat(4, axis=0).repeat(4, axis=1)
    picture = base64.b64encode(png_image(enlarged, COLOUR)).decode("ascii")
    place = [{"x": RING_SIZE / 2, "y": RING_SIZE / 2, "url": f"data:image/png;base64,{picture}"}]
    return (
        alt.Chart(alt.Data(values=place))
        .mark_image(width=RING_SIZE, height=RING_SIZE)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(domain=[0, RING_SIZE]), axis=None),
            y=alt.Y("y:Q", scale=alt.Scale(domain=[0, RING_SIZE]), axis=None),
            url="url:N",
        )
        .properties(width=RING_SIZE, height=RING_SIZE, title={"text": title, "fontSize": 12})
    )


def _line(alt: Any, sizes: list[float], values: NDArray[np.float64]) -> Any:
    rows = [{"n": n, "e": float(e)} for n, e in zip(sizes, values, strict=True)]
    return alt.Chart(alt.Data(values=rows))


def _steps(counts: NDArray[np.int64], edges: NDArray[np.float64]) -> list[dict[str, float]]:
    heights = counts / counts.sum() / (edges[1] - edges[0])
    return [
        {"z": round(float(z), 4), "p": round(float(p), 4)}
        for z, p in zip(edges, [*heights, 0.0], strict=True)
    ]


def _first_runs(runs: list[dict[str, Any]], experiment: str, preset: str) -> list[dict[str, Any]]:
    """The lowest seed of every method, in the paper's order."""
    chosen = [r for r in runs if r["experiment"] == experiment and r["preset"] == preset]
    chosen.sort(key=lambda r: (ALL_METHODS.index(r["method"]), -r["seed"]))
    return list({run["method"]: run for run in chosen}.values())


def _source(runs: list[dict[str, Any]]) -> str:
    quick = ", quick" if runs[0]["settings"]["rows"] < ROWS else ""
    return f"{runs[0]['preset']} preset, seed {runs[0]['seed']}{quick}"


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
