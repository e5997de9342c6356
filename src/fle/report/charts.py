"""All charts of a page, and the density as an image file."""

import os
from pathlib import Path
from typing import Any

from fle.errors import SettingsError
from fle.files import write_atomically
from fle.report.chart_parts import IMAGE, PAGE, Chart, altair_or_error, specification
from fle.report.contents import Contents, coordinates_of
from fle.report.law_charts import cdf_chart, density_chart, joint_chart, weighted_chart
from fle.report.stage_charts import likelihood_chart, stage_returns_chart
from fle.returns import ReturnDistribution

IMAGE_WIDTH = 480


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
    coordinates = coordinates_of(
        estimate.names,
        estimate.samples,
        None if behaviour is None else behaviour.samples,
        None if truth is None else truth.samples,
    )
    key = ["filled: estimate", "orange: its worst 10%, and their mean"]
    key += ["grey line: logged behaviour"] if behaviour is not None else []
    key += ["green dashes: truth"] if truth is not None else []
    panels = [
        density_chart(alt, coordinate, IMAGE, tag=str(i)).properties(width=IMAGE_WIDTH)
        for i, coordinate in enumerate(coordinates)
    ]
    chart = alt.hconcat(*panels).properties(title={"text": title, "subtitle": "; ".join(key)})
    write_atomically(path, _rendered(specification(chart, IMAGE), path.suffix))


def _rendered(spec: dict[str, Any], suffix: str) -> bytes:
    import vl_convert

    if suffix == ".png":
        return vl_convert.vegalite_to_png({**spec, "background": "white"}, scale=2)
    if suffix == ".svg":
        return vl_convert.vegalite_to_svg(spec).encode("utf-8")
    raise SettingsError(f"A chart is written as .png or .svg, got {suffix or 'no suffix'!r}.")
