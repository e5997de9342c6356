"""Charts of the laws: density, distribution function, joint density, weighted sum."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fle.report.chart_parts import (
    HEIGHT,
    PAGE,
    Chart,
    Palette,
    at,
    between,
    histogram_steps,
    one_line,
    rule,
    value_axis,
)
from fle.report.contents import Coordinate, Joint
from fle.report.laws import LEVELS, START_LEVEL, Law

SOLID, DASHED = [1, 0], [5, 3]
# A law beside the estimate may be drawn this many times as high.
TALLEST = 3.0


def density_chart(alt: Any, coordinate: Coordinate, palette: Palette, *, tag: str = "") -> Chart:
    """Histograms of the three laws, with the tail shaded up to the value at risk.

    `tag` tells the parameters of charts apart that stand in one image.
    """
    law, style = coordinate.estimate, coordinate.style
    edge = alt.param(name=f"edge{tag}", value=float(law.value_at_risk[START_LEVEL]))
    tail_mean = alt.param(name=f"tailMean{tag}", value=float(law.cvar[START_LEVEL]))
    x = alt.X(
        "z:Q",
        title=one_line(coordinate.name),
        scale=between(alt, coordinate.axis.edges),
        axis=value_axis(alt, style),
    )
    y = _density_axis(alt, coordinate)
    body = alt.Chart(alt.Data(values=histogram_steps(law, style)))
    others = [
        alt.Chart(alt.Data(values=histogram_steps(other, style)))
        .mark_line(
            color=colour, strokeDash=dash, strokeWidth=1.5, interpolate="step-after", clip=True
        )
        .encode(x, y)
        for other, colour, dash in _other_laws(coordinate, palette)
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
    chart = alt.layer(*layers).add_params(edge, tail_mean)
    return chart.properties(height=HEIGHT)


def cdf_chart(alt: Any, coordinate: Coordinate, palette: Palette) -> Chart:
    """Distribution functions of the three laws, with the risk level and the threshold marked."""
    law, style = coordinate.estimate, coordinate.style
    edge = alt.param(name="edge", value=float(law.value_at_risk[START_LEVEL]))
    level = alt.param(name="level", value=float(LEVELS[START_LEVEL]))
    threshold = alt.param(name="threshold", value=0.0)
    share = alt.param(name="share", value=law.loss)
    x = alt.X(
        "z:Q",
        title=one_line(coordinate.name),
        scale=between(alt, coordinate.axis.edges),
        axis=value_axis(alt, style),
    )
    y = alt.Y(
        "p:Q",
        title="probability below",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", tickCount=5),
    )
    lines = []
    thresholds = style.rounded(coordinate.axis.thresholds)
    own = (law, palette.estimate, SOLID)
    for which, colour, dash in (own, *_other_laws(coordinate, palette)):
        rows = [
            {"z": float(z), "p": round(float(p), 4)}
            for z, p in zip(thresholds, which.below, strict=True)
        ]
        lines.append(
            alt.Chart(alt.Data(values=rows))
            .mark_line(color=colour, strokeWidth=2, strokeDash=dash)
            .encode(x, y)
        )
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
    x = alt.X(
        "x:Q",
        title=one_line(first.name),
        scale=between(alt, joint.x_edges),
        axis=value_axis(alt, first.style),
    )
    y = alt.Y(
        "y:Q",
        title=one_line(second.name),
        scale=between(alt, joint.y_edges),
        axis=value_axis(alt, second.style),
    )
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


def _density_axis(alt: Any, coordinate: Coordinate) -> Any:
    """Room for the estimate, and for sharper laws beside it as far as it stays readable."""
    heights = [law.heights.max() for law, _, _ in _other_laws(coordinate, PAGE)]
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


def _other_laws(coordinate: Coordinate, palette: Palette) -> Iterator[tuple[Law, str, list[int]]]:
    """The laws beside the estimate, each with a colour and a dash."""
    if coordinate.behaviour is not None:
        yield coordinate.behaviour, palette.behaviour, SOLID
    if coordinate.truth is not None:
        yield coordinate.truth, palette.truth, DASHED
