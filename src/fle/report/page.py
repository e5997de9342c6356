"""The page itself: one HTML file that carries its charts, its script and its numbers."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fle.data import Dataset
from fle.errors import FLEError, install
from fle.files import write_atomically
from fle.fitting import Evaluation
from fle.report import wording
from fle.report.charts import page_charts
from fle.report.contents import (
    INTERVAL_DRAWS,
    LEVELS,
    START_LEVEL,
    Contents,
    Coordinate,
    Extras,
    FloatArray,
    Panel,
    gather,
)
from fle.report.style import NumberStyle, altair_or_error, percent
from fle.returns import ReturnDistribution, measure
from fle.returns.intervals import half_width
from fle.returns.measures import RISK_LEVEL

# Nothing may be fetched or sent. Vega builds functions from its expressions, hence unsafe-eval.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data:"
)
# What the page's script computes of a weighted sum: its name there, ours, and the label.
WEIGHTED_MEASURES = (
    ("mean", "mean", "Mean"),
    ("std", "std", "Standard deviation"),
    ("edge", f"value_at_risk:{RISK_LEVEL:g}", "VaR at"),
    ("tailMean", f"cvar:{RISK_LEVEL:g}", "CVaR at"),
    ("below", "loss", "Chance below 0"),
)


def write_report(
    evaluation: Evaluation,
    path: str | os.PathLike[str],
    *,
    data: Dataset | None = None,
    truth: ArrayLike | ReturnDistribution | None = None,
    title: str | None = None,
    command: str | None = None,
    extras: Extras | None = None,
) -> None:
    """Write an evaluation as one HTML file that needs no network.

    Args:
        evaluation: what `fle.evaluate` or `fle.load` gave.
        path: the file; it is replaced whole or not at all.
        data: the logged data, for its summary and the returns that were observed.
        truth: draws of the true return, (n,) or (n, d), to judge the estimate by.
        title: of the page.
        command: how to get the same again; Python lines if left out.
        extras: what the evaluation does not know itself, such as intervals.
    """
    altair_or_error()
    contents = gather(
        evaluation, data=data, truth=truth, title=title, command=command, extras=extras
    )
    write_atomically(Path(path), render(contents).encode("utf-8"))


def render(contents: Contents) -> str:
    """The whole page as text."""
    view = {
        "contents": contents,
        "sentences": wording.sentences(contents),
        "headline": wording.headline(contents),
        "start_level": wording.START,
        "start_index": START_LEVEL,
        "levels": len(LEVELS),
        "coordinates": [_coordinate_view(c) for c in contents.coordinates],
        "weighted": _weighted_view(contents),
        "pairs_left": _pairs_left(len(contents.coordinates), len(contents.joints)),
        "truth_sentence": wording.truth_sentence(contents) if contents.comparisons else "",
        "opinions_sentence": wording.opinions_sentence(contents),
        "health": wording.health(contents),
        "loss_caption": wording.loss_caption(contents),
        "returns_caption": wording.returns_caption(contents),
        "stage_table": wording.stage_table(contents),
        "data_rows": wording.data_rows(contents.data_lines),
    }
    frame = Frame(contents.title, wording.subtitle(contents), _script_data(contents))
    return framed("page.html", frame, view)


@dataclass(frozen=True)
class Frame:
    """What every page has: title, a line below it, and the numbers for its script."""

    title: str
    subtitle: str
    script_data: dict[str, Any]


def framed(name: str, frame: Frame, view: dict[str, Any]) -> str:
    """A page in our look, which carries all it needs."""
    around = {
        "title": frame.title,
        "subtitle": frame.subtitle,
        "policy": CONTENT_POLICY,
        "style": verbatim(_resource("page.css")),
        "script": verbatim(_resource("page.js")),
        "bundle": verbatim(_bundle()),
        "script_data": verbatim(script_json(frame.script_data)),
    }
    text: str = template(_resource(name)).render(view | around)
    return text


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, nor a line of it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def template(source: str) -> Any:
    """A page's template, which escapes all that is not `verbatim` and refuses unknown names."""
    try:
        import jinja2
    except ImportError as error:
        raise FLEError(f"Pages need Jinja2: {install('charts')}") from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(source)


def verbatim(text: str) -> Any:
    """Our own text, which the template must not escape."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704


def _resource(name: str) -> str:
    return resources.files("fle.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, its names kept to itself."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return "(() => {" + script.replace("</script", "<\\/script") + "})();"


def _coordinate_view(c: Coordinate) -> dict[str, Any]:
    position = start_position(c)
    panels = [
        {
            "id": key,
            "label": label,
            "size": f"{panel.size:,}",
            "edge": wording.text_or_dash(c.style, panel.edge(START_LEVEL)),
            "tail_mean": wording.text_or_dash(c.style, panel.tail_mean(START_LEVEL)),
            "below": percent(float(panel.below[position])),
        }
        for key, label, panel in wording.panels_of(c)
    ]
    threshold = threshold_style(c).text(float(c.axis.thresholds[position]))
    return {
        "name": c.name,
        "behaviour": c.behaviour is not None,
        "truth": c.truth is not None,
        "panels": panels,
        "interval": wording.interval_label(c),
        "between": wording.between_labels(c),
        "rows": wording.usual_rows(c),
        "further": wording.further_rows(c),
        "start": panels[0] | {"threshold": threshold, "position": position},
        "thresholds": len(c.axis.thresholds),
        "remarks": wording.outside_remarks(c),
    }


def start_position(c: Coordinate) -> int:
    """Where the threshold begins: at 0 if that is on the chart, else at the logged mean."""
    if c.axis.first <= 0 <= c.axis.last:
        return c.axis.position(0.0)
    return c.axis.position(c.estimate.mean if c.behaviour is None else c.behaviour.mean)


def threshold_style(c: Coordinate) -> NumberStyle:
    """Decimals that show the step between thresholds, and no more."""
    if c.style.exponent_figures is not None:
        return c.style
    return NumberStyle(max(0, -int(np.floor(np.log10(c.axis.step)))), None)


def _script_data(contents: Contents) -> dict[str, Any]:
    weighted = None
    if contents.draws is not None:
        episodes = None if contents.episodes is None else contents.episodes.tolist()
        weighted = {"draws": contents.draws.tolist(), "episodes": episodes}
        if contents.replicates:
            weighted["replicates"] = [rows.tolist() for rows in contents.replicates]
            # Half of an interval, in root mean squares of what replicates are away.
            weighted["student"] = _student(contents)
    return {
        "levels": LEVELS.tolist(),
        "startLevel": START_LEVEL,
        "coordinates": [
            {
                "style": _script_style(c.style),
                "thresholdStyle": _script_style(threshold_style(c)),
                "first": c.axis.first,
                "step": c.axis.step,
                "panels": {
                    key: _script_panel(panel, c.style) for key, _, panel in wording.panels_of(c)
                },
            }
            for c in contents.coordinates
        ],
        "weighted": weighted,
        "charts": page_charts(contents),
    }


def _student(contents: Contents) -> float:
    replicates = contents.coordinates[0].estimate.returns.replicates
    level = 0.9 if replicates is None else replicates.level
    return float(half_width(0.0, np.ones(len(contents.replicates) - 1), level))


def _script_style(style: NumberStyle) -> dict[str, int | None]:
    return {"places": style.places, "exponentFigures": style.exponent_figures}


def _script_panel(panel: Panel, style: NumberStyle) -> dict[str, Any]:
    levels, ends = range(len(LEVELS)), panel.ends
    numbers: dict[str, Any] = {
        "edge": _rounded([panel.edge(k) for k in levels], style),
        "tailMean": _rounded([panel.tail_mean(k) for k in levels], style),
        "below": [round(float(share), 5) for share in panel.below],
    }
    if ends is not None:
        numbers["ends"] = {
            "edge": [_rounded(end.tolist(), style) for end in ends.value_at_risk],
            "tailMean": [_rounded(end.tolist(), style) for end in ends.cvar],
            "below": ends.below.round(5).tolist(),
        }
    return numbers


def _rounded(values: Sequence[float | None], style: NumberStyle) -> list[float | None]:
    return [None if value is None else float(style.rounded(value)) for value in values]


def _weighted_view(contents: Contents) -> dict[str, Any] | None:
    if contents.draws is None:
        return None
    estimate = contents.draws.sum(axis=1)
    style = NumberStyle.of(float(estimate.mean()), float(estimate.std()))
    fewer = f", intervals from {INTERVAL_DRAWS:,} a fit" if contents.replicates else ""
    behaviour = None
    if contents.episodes is not None:
        behaviour = _sum_cells(contents.episodes.sum(axis=1), style)
    return {
        "names": [c.name for c in contents.coordinates],
        "start": "1.00",
        "measures": [(key, label) for key, _, label in WEIGHTED_MEASURES],
        "estimate": _sum_cells(estimate, style),
        "behaviour": behaviour,
        "interval": wording.interval_label(contents.coordinates[0]),
        "remark": (
            f"Computed in this page from {len(estimate):,} of "
            f"{contents.coordinates[0].estimate.size:,} draws{fewer}."
        ),
    }


def _sum_cells(sums: FloatArray, style: NumberStyle) -> dict[str, str]:
    return {
        key: wording.written(asked, asked.of(sums), style)
        for key, asked in ((key, measure(text)) for key, text, _ in WEIGHTED_MEASURES)
    }


def _pairs_left(number: int, shown: int) -> str:
    left = comb(number, 2) - shown
    return f"{left} more pairs are not drawn." if left > 0 else ""
