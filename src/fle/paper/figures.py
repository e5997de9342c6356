"""The paper's figures, and the theory's errors against n, as PNG and SVG."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fle.files import make_directory, write_atomically
from fle.paper.lock_runs import FIGURE_BINS, FIGURE_LIMIT, true_counts, unpacked
from fle.paper.lock_tables import SHORT_STEPS
from fle.paper.presets import ALL_METHODS, ROWS, task_of
from fle.paper.studies import Study
from fle.report.style import IMAGE, altair_or_error, rendered, specification

PANEL_WIDTH, PANEL_HEIGHT = 190, 90
RING_SIZE = 150
# Deep enough for the ring to be seen where its mass is small.
COLOUR = (42, 106, 176)
BOUND_DASHES = ([6, 4], [2, 3], [8, 3, 2, 3])

Figure = dict[str, Any]


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
