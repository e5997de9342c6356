"""Charts of the training: what every stage reached."""

from typing import Any

import numpy as np

from fle.fitting import StageRecord
from fle.report.chart_parts import HEIGHT, Chart, Palette, Rows, one_line, value_axis
from fle.report.contents import Contents

MOST_STAGES = 300


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
