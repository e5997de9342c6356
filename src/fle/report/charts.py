"""All charts of a page, as Vega-Lite specifications, and the density as an image file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fle.files import write_atomically
from fle.fitting import StageRecord
from fle.report.contents import (
    LEVELS,
    START_LEVEL,
    Contents,
    Coordinate,
    FloatArray,
    Joint,
    Panel,
    coordinates_of,
)
from fle.report.style import (
    HEIGHT,
    IMAGE,
    PAGE,
    Chart,
    NumberStyle,
    Palette,
    Rows,
    altair_or_error,
    at,
    between,
    one_line,
    rendered,
    rule,
    specification,
    value_axis,
)
from fle.returns import ReturnDistribution

IMAGE_WIDTH = 480
MOST_STAGES = 300
SOLID, DASHED = [1, 0], [5, 3]
# A distribution beside the estimate may be drawn this many times as high.
TALLEST = 3.0


def page_charts(contents: Contents) -> dict[str, dict[str, Any]]:
    """Vega-Lite specifications by the id of the element that shows them."""
    alt = altair_or_error()
    charts: dict[str, Chart] = {}
    for i, coordinate in enumerate(contents.coordinates):
        charts[f"density-{i}"] = density_chart(alt, coordinate, PAGE)
        charts[f"cdf-{i}"] = cdf_chart(alt, coordinate, PAGE)
        charts[f"returns-by-stage-{i}"] = stage_returns_chart(alt, contents, i, PAGE)
    for k, joint in enumerate(contents.joints):
        charts[f"joint-{k}"] = joint_chart(alt, joint, contents.coordinates, PAGE)
    if contents.draws is not None:
        charts["weighted"] = weighted_chart(alt, PAGE)
    charts["likelihood"] = likelihood_chart(alt, contents, PAGE)
    return {
        name: specification(chart.properties(width="container"), PAGE)
        for name, chart in charts.items()
    }


def save_density(
    path: str | os.PathLike[str],
    estimate: ReturnDistribution,
    *,
    truth: ReturnDistribution | None = None,
    behaviour: ReturnDistribution | None = None,
    title: str = "Return of the target policy",
) -> None:
    """Write the estimated density as .png or .svg, beside the true and the observed one.

    Vector returns give one panel a coordinate.
    """
    alt = altair_or_error()
    path = Path(path)
    coordinates = coordinates_of(estimate, behaviour, truth)
    key = ["filled: estimate", "orange: its worst 10%, and their mean"]
    key += ["grey line: logged behaviour"] if behaviour is not None else []
    key += ["green dashes: truth"] if truth is not None else []
    panels = [
        density_chart(alt, coordinate, IMAGE, tag=str(i)).properties(width=IMAGE_WIDTH)
        for i, coordinate in enumerate(coordinates)
    ]
    chart = alt.hconcat(*panels).properties(title={"text": title, "subtitle": "; ".join(key)})
    write_atomically(path, rendered(specification(chart, IMAGE), path.suffix))


def density_chart(alt: Any, coordinate: Coordinate, palette: Palette, *, tag: str = "") -> Chart:
    """Histograms of the three distributions, with the tail shaded up to the value at risk.

    `tag` tells the parameters of charts apart that stand in one image.
    """
    panel, style = coordinate.estimate, coordinate.style
    edge = alt.param(name=f"edge{tag}", value=float(panel.value_at_risk[START_LEVEL]))
    tail_mean = alt.param(name=f"tailMean{tag}", value=float(panel.cvar[START_LEVEL]))
    x = alt.X("z:Q", **_return_axis(alt, coordinate, coordinate.axis.edges))
    y = _density_axis(alt, coordinate)
    body = alt.Chart(alt.Data(values=_histogram_steps(panel, style)))
    others = [
        alt.Chart(alt.Data(values=_histogram_steps(other, style)))
        .mark_line(
            color=colour, strokeDash=dash, strokeWidth=1.5, interpolate="step-after", clip=True
        )
        .encode(x, y)
        for other, colour, dash in _other_panels(coordinate, palette)
    ]
    layers = [
        body.mark_area(color=palette.estimate, opacity=0.35, interpolate="step-after").encode(x, y),
        # Points beyond the edge fall on it, where they have no width.
        body.transform_calculate(tail=f"min(datum.z, edge{tag})")
        .mark_area(color=palette.tail, opacity=0.75, interpolate="step-after")
        .encode(alt.X("tail:Q"), y),
        *others,
        rule(alt, palette.tail, [4, 3]).encode(x=at(alt, f"tailMean{tag}")),
    ]
    return alt.layer(*layers).add_params(edge, tail_mean).properties(height=HEIGHT)


def cdf_chart(alt: Any, coordinate: Coordinate, palette: Palette) -> Chart:
    """Distribution functions, with the risk level and the threshold marked."""
    panel, style = coordinate.estimate, coordinate.style
    edge = alt.param(name="edge", value=float(panel.value_at_risk[START_LEVEL]))
    level = alt.param(name="level", value=float(LEVELS[START_LEVEL]))
    threshold = alt.param(name="threshold", value=0.0)
    share = alt.param(name="share", value=float(panel.returns.measure("loss")))
    x = alt.X("z:Q", **_return_axis(alt, coordinate, coordinate.axis.edges))
    y = probability_axis(alt)
    own = (panel, palette.estimate, SOLID)
    thresholds = style.rounded(coordinate.axis.thresholds)
    lines = [
        cdf_line(alt, thresholds, which.below, colour, dash).encode(x, y)
        for which, colour, dash in (own, *_other_panels(coordinate, palette))
    ]
    at_edge = {"x": at(alt, "edge"), "y": at(alt, "level")}
    at_threshold = {"x": at(alt, "threshold"), "y": at(alt, "share")}
    point = alt.Chart(alt.Data(values=[{}]))
    layers = [
        *lines,
        rule(alt, palette.tail, [4, 3]).encode(y=at(alt, "level")),
        rule(alt, palette.muted, [1, 3]).encode(x=at(alt, "threshold")),
        point.mark_point(color=palette.tail, filled=True, size=70, opacity=1).encode(**at_edge),
        point.mark_point(color=palette.ink, filled=True, size=55, opacity=1).encode(**at_threshold),
    ]
    chart = alt.layer(*layers).add_params(edge, level, threshold, share)
    return chart.properties(height=HEIGHT)


def cdf_line(
    alt: Any, thresholds: FloatArray, below: FloatArray, colour: str, dash: list[int]
) -> Chart:
    """One distribution function, to be placed by the caller."""
    rows = [
        {"z": float(z), "p": round(float(p), 4)} for z, p in zip(thresholds, below, strict=True)
    ]
    data = alt.Data(values=rows)
    return alt.Chart(data).mark_line(color=colour, strokeWidth=2, strokeDash=dash)


def probability_axis(alt: Any) -> Any:
    """The axis of a distribution function."""
    return alt.Y(
        "p:Q",
        title="probability below",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", tickCount=5),
    )


def joint_chart(
    alt: Any, joint: Joint, coordinates: tuple[Coordinate, ...], palette: Palette
) -> Chart:
    """A heat map of two returns: deeper where more draws fall; circles are logged episodes."""
    first, second = coordinates[joint.x], coordinates[joint.y]
    rows_of_cells, columns_of_cells = np.nonzero(joint.shares)
    x_edges, y_edges = first.style.rounded(joint.x_edges), second.style.rounded(joint.y_edges)
    top = joint.shares.max()
    cells = [
        {
            "x": x_edges[j],
            "x2": x_edges[j + 1],
            "y": y_edges[i],
            "y2": y_edges[i + 1],
            "s": round(float(joint.shares[i, j] / top), 3),
        }
        for i, j in zip(rows_of_cells, columns_of_cells, strict=True)
    ]
    x = alt.X("x:Q", **_return_axis(alt, first, joint.x_edges))
    y = alt.Y("y:Q", **_return_axis(alt, second, joint.y_edges))
    heat = (
        alt.Chart(alt.Data(values=cells))
        .mark_rect(color=palette.estimate, clip=True)
        .encode(
            x,
            y,
            x2="x2:Q",
            y2="y2:Q",
            opacity=alt.Opacity(
                "s:Q", legend=None, scale=alt.Scale(type="sqrt", domain=[0, 1], range=[0.04, 1])
            ),
        )
    )
    episodes = [
        {"x": a, "y": b}
        for a, b in zip(
            first.style.rounded(joint.episodes[:, 0]),
            second.style.rounded(joint.episodes[:, 1]),
            strict=True,
        )
    ]
    dots = (
        alt.Chart(alt.Data(values=episodes))
        .mark_point(color=palette.behaviour, size=12, strokeWidth=1, opacity=0.8, clip=True)
        .encode(x, y)
    )
    chart = alt.layer(heat, dots) if episodes else alt.layer(heat)
    return chart.properties(height=300)


def weighted_chart(alt: Any, palette: Palette) -> Chart:
    """The density of a weighted sum; the page's script fills it in."""
    edge = alt.param(name="edge", value=0.0)
    tail_mean = alt.param(name="tailMean", value=0.0)
    ends = [alt.param(name="low", value=0.0), alt.param(name="high", value=1.0)]
    domain = [alt.expr("low"), alt.expr("high")]
    x = alt.X(
        "z:Q",
        title="weighted sum",
        scale=alt.Scale(domain=domain, nice=False),
        axis=alt.Axis(tickCount=6),
    )
    y = alt.Y("p:Q", title="density", stack=None, axis=alt.Axis(tickCount=4))
    body = alt.Chart(alt.InlineData(values=[{"z": 0, "p": 0}], name="steps"))
    return (
        alt.layer(
            body.mark_area(color=palette.estimate, opacity=0.35, interpolate="step-after").encode(
                x, y
            ),
            body.transform_calculate(tail="min(datum.z, edge)")
            .mark_area(color=palette.tail, opacity=0.75, interpolate="step-after")
            .encode(alt.X("tail:Q"), y),
            alt.Chart(alt.InlineData(values=[{"z": 0, "p": 0}], name="logged"))
            .mark_line(color=palette.behaviour, strokeWidth=1.5, interpolate="step-after")
            .encode(x, y),
            rule(alt, palette.tail, [4, 3]).encode(x=at(alt, "tailMean")),
        )
        .add_params(edge, tail_mean, *ends)
        .properties(height=HEIGHT)
    )


def likelihood_chart(alt: Any, contents: Contents, palette: Palette) -> Chart:
    """Loss on rows that were not trained on, stage by stage."""
    rows = [
        {"stage": r.stage, "p": float(f"{r.held_out_loss:.6g}")} for r in _chosen_stages(contents)
    ]
    title = "negative log likelihood" if contents.has_density else "loss"
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(color=palette.estimate, strokeWidth=2, point=_points(rows, palette.estimate))
        .encode(
            _stage_axis(alt, contents),
            alt.Y("p:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)),
        )
        .properties(height=HEIGHT)
    )


def stage_returns_chart(alt: Any, contents: Contents, index: int, palette: Palette) -> Chart:
    """Mean with one standard deviation to each side, and CVaR, stage by stage."""
    coordinate = contents.coordinates[index]
    style = coordinate.style
    chosen = _chosen_stages(contents)
    mean = np.array([r.mean[index] for r in chosen])
    std = np.array([r.std[index] for r in chosen])
    columns = {
        "low": style.rounded(mean - std),
        "high": style.rounded(mean + std),
        "mean": style.rounded(mean),
        "cvar": style.rounded([r.cvar[index] for r in chosen]),
    }
    rows = [
        {"stage": r.stage} | {name: float(values[k]) for name, values in columns.items()}
        for k, r in enumerate(chosen)
    ]
    base = alt.Chart(alt.Data(values=rows))
    x = _stage_axis(alt, contents)
    title = {
        "title": one_line(coordinate.name),
        "scale": alt.Scale(zero=False),
        "axis": value_axis(alt, style),
    }
    return alt.layer(
        base.mark_area(color=palette.estimate, opacity=0.2).encode(
            x, alt.Y("low:Q", **title), alt.Y2("high:Q")
        ),
        base.mark_line(
            color=palette.estimate, strokeWidth=2, point=_points(rows, palette.estimate)
        ).encode(x, alt.Y("mean:Q", **title)),
        base.mark_line(
            color=palette.tail,
            strokeWidth=1.5,
            strokeDash=[4, 3],
            point=_points(rows, palette.tail),
        ).encode(x, alt.Y("cvar:Q", **title)),
    ).properties(height=HEIGHT)


def _histogram_steps(panel: Panel, style: NumberStyle) -> Rows:
    """The corners of a histogram, for a line or an area that steps after each."""
    heights = [*panel.heights, 0.0]
    return [
        {"z": float(z), "p": float(f"{p:.4g}")}
        for z, p in zip(style.rounded(panel.edges), heights, strict=True)
    ]


def _return_axis(alt: Any, coordinate: Coordinate, edges: FloatArray) -> dict[str, Any]:
    """Title, scale and numbers of an axis that shows a return."""
    return {
        "title": one_line(coordinate.name),
        "scale": between(alt, edges),
        "axis": value_axis(alt, coordinate.style),
    }


def _density_axis(alt: Any, coordinate: Coordinate) -> Any:
    """Room for the estimate, and for sharper ones beside it as far as it stays readable."""
    heights = [panel.heights.max() for panel, _, _ in _other_panels(coordinate, PAGE)]
    own = coordinate.estimate.heights.max()
    top = 1.05 * min(max([own, *heights]), TALLEST * own)
    plain = coordinate.style.exponent_figures is None
    return alt.Y(
        "p:Q",
        title="density",
        stack=None,
        scale=alt.Scale(domain=[0, float(f"{top:.4g}")], nice=False),
        axis=alt.Axis(tickCount=4) if plain else alt.Axis(tickCount=4, format=".2~e"),
    )


def _other_panels(
    coordinate: Coordinate, palette: Palette
) -> Iterator[tuple[Panel, str, list[int]]]:
    """The distributions beside the estimate, each with a colour and a dash."""
    if coordinate.behaviour is not None:
        yield coordinate.behaviour, palette.behaviour, SOLID
    if coordinate.truth is not None:
        yield coordinate.truth, palette.truth, DASHED


def _stage_axis(alt: Any, contents: Contents) -> Any:
    title = "stage" if contents.discounted else "stage, from the last step to the first"
    scale = alt.Scale(domain=[1, max(2, len(contents.stages))], nice=False)
    return alt.X("stage:Q", title=title, scale=scale, axis=alt.Axis(tickMinStep=1, format="d"))


def _chosen_stages(contents: Contents) -> list[StageRecord]:
    """All stages, or evenly spaced ones of very many."""
    number = len(contents.stages)
    picks = np.unique(np.linspace(0, number - 1, min(number, MOST_STAGES)).round().astype(int))
    return [contents.stages[i] for i in picks]


def _points(rows: Rows, colour: str) -> dict[str, Any] | bool:
    """A mark at each stage where they are few, so that a single one is seen."""
    return {"color": colour, "filled": True, "size": 22} if len(rows) <= 12 else False
