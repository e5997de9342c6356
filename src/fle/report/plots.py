"""Single charts for notebooks, from the parts that the pages are made of."""

import math
from collections.abc import Mapping
from typing import Any

from fle.errors import SettingsError, nearest
from fle.fitting import Comparison, Evaluation
from fle.report.charts import (
    DASHED,
    SOLID,
    cdf_line,
    density_chart,
    joint_chart,
    likelihood_chart,
    probability_axis,
    stage_returns_chart,
)
from fle.report.contents import LEVELS, Axis, Coordinate, Panel, coordinates_of, gather, joints_of
from fle.report.style import (
    HEIGHT,
    IMAGE,
    MOST_CURVES,
    Chart,
    NumberStyle,
    altair_or_error,
    between,
    configured,
    one_line,
    value_axis,
)
from fle.returns import ReturnDistribution
from fle.returns.distances import Calibration

WIDTH = 420
OF_RETURNS = ("density", "cdf", "quantile", "joint")
OF_EVALUATIONS = (*OF_RETURNS, "stages", "calibration")
COLOURS = (IMAGE.estimate, IMAGE.tail, IMAGE.truth, IMAGE.behaviour)
DASHES = (SOLID, DASHED, [1, 3])


def plot_returns(returns: ReturnDistribution, kind: str = "density") -> Chart:
    """One of "density", "cdf", "quantile", and "joint" for two returns or more."""
    _require(kind, OF_RETURNS)
    return _drawn(returns, None, kind)


def plot_evaluation(evaluation: Evaluation, kind: str = "density") -> Chart:
    """The same beside what was logged, in grey; "stages" shows how the fit went, and "calibration"
    where held-out episodes fell in their predictions.
    """
    _require(kind, OF_EVALUATIONS)
    if kind == "calibration":
        return _calibration(evaluation.calibration)
    logged = evaluation.logged.comparable
    earned = None
    if logged is not None:
        earned = ReturnDistribution.from_samples(logged, evaluation.return_names)
    if kind != "stages":
        return _drawn(evaluation.returns, earned, kind)
    alt = altair_or_error()
    contents = gather(evaluation)
    charts = [
        stage_returns_chart(alt, contents, i, IMAGE) for i in range(len(contents.coordinates))
    ]
    charts.append(likelihood_chart(alt, contents, IMAGE))
    return _beside(alt, charts)


def _calibration(found: Calibration | None) -> Chart:
    """The transform of every return in equal bins, and what chance does to even ones."""
    if found is None:
        raise SettingsError("plot: calibration was not asked for; give calibration=True")
    alt = altair_or_error()
    charts = []
    for one in found.coordinates:
        width, expected = 1 / len(one.counts), found.episodes / len(one.counts)
        rows = [
            {"low": i * width, "high": (i + 1) * width, "count": count}
            for i, count in enumerate(one.counts)
        ]
        x = alt.X("low:Q", title=f"place of {one_line(one.name)} in its predicted distribution")
        y = alt.Y("count:Q", title="held-out episodes")
        bars = alt.Chart(alt.Data(values=rows)).mark_bar(color=IMAGE.estimate)
        # Two standard deviations of a binomial: 19 of 20 bins lie between.
        away = 2 * math.sqrt(expected * (1 - width))
        ends = [{"y": expected + away}, {"y": max(expected - away, 0)}]
        band = alt.Chart(alt.Data(values=ends)).mark_rule(color=IMAGE.truth, strokeDash=DASHED)
        layers = (bars.encode(x, y, x2="high:Q"), band.encode(alt.Y("y:Q")))
        charts.append(alt.layer(*layers).properties(height=HEIGHT))
    return _beside(alt, charts)


def plot_comparison(comparison: Comparison) -> Chart:
    """The distribution functions of the policies that were evaluated: of many, the best by mean."""
    alt = altair_or_error()
    best = [name for name, _ in comparison.ranking()][:MOST_CURVES]
    laws = {name: law for name, law in comparison.returns.items() if name in best}
    if not laws:
        raise SettingsError("plot: expected at least one evaluated policy, got none")
    first, *others = laws.values()
    axis = Axis.around(first, others)
    style = NumberStyle.of(float(first.mean()), float(first.std()))
    x = alt.X("z:Q", title="return", scale=between(alt, axis.edges), axis=value_axis(alt, style))
    names = [one_line(name) for name in laws]
    thresholds = style.rounded(axis.thresholds)
    rows = [
        {"policy": name, "z": float(z), "p": round(float(p), 4)}
        for name, law in zip(names, laws.values(), strict=True)
        for z, p in zip(thresholds, Panel.of(law, axis).below, strict=True)
    ]
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    dashes = [DASHES[i // len(COLOURS) % len(DASHES)] for i in range(len(names))]
    keys = (
        alt.Color(
            "policy:N",
            sort=names,
            scale=alt.Scale(domain=names, range=colours),
            legend=alt.Legend(title=None, orient="top"),
        ),
        alt.StrokeDash("policy:N", scale=alt.Scale(domain=names, range=dashes), legend=None),
    )
    line = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=2)
    chart = line.encode(x, probability_axis(alt), *keys).properties(height=HEIGHT)
    return _beside(alt, [chart])


def _drawn(returns: ReturnDistribution, earned: ReturnDistribution | None, kind: str) -> Chart:
    alt = altair_or_error()
    coordinates = coordinates_of(returns, earned, None)
    if kind == "joint":
        if len(coordinates) == 1:
            raise SettingsError("plot: a joint chart needs two returns or more, got one")
        return _beside(
            alt,
            [
                joint_chart(alt, joint, coordinates, IMAGE)
                for joint in joints_of(coordinates, returns, earned)
            ],
        )
    if kind == "density":
        return _beside(
            alt,
            [density_chart(alt, c, IMAGE, tag=str(i)) for i, c in enumerate(coordinates)],
        )
    draw = {"cdf": _cdf, "quantile": _quantiles}[kind]
    return _beside(alt, [draw(alt, coordinate) for coordinate in coordinates])


def _cdf(alt: Any, coordinate: Coordinate) -> Chart:
    """P(Z < z), of the estimate and of the logged episodes."""
    style = coordinate.style
    x = alt.X(
        "z:Q",
        title=one_line(coordinate.name),
        scale=between(alt, coordinate.axis.edges),
        axis=value_axis(alt, style),
    )
    thresholds = style.rounded(coordinate.axis.thresholds)
    lines = [
        cdf_line(alt, thresholds, panel.below, colour, SOLID).encode(x, probability_axis(alt))
        for colour, panel in _panels(coordinate).items()
    ]
    return alt.layer(*lines).properties(height=HEIGHT)


def _quantiles(alt: Any, coordinate: Coordinate) -> Chart:
    """The return that is exceeded with probability 1 - p, for p from 1% to 99%."""
    style = coordinate.style
    y = alt.Y(
        "z:Q",
        title=one_line(coordinate.name),
        scale=alt.Scale(zero=False),
        axis=value_axis(alt, style),
    )
    x = alt.X("p:Q", title="probability", axis=alt.Axis(format="%"))
    layers = []
    for colour, panel in _panels(coordinate).items():
        values = style.rounded(panel.value_at_risk)
        rows = [{"p": float(p), "z": float(z)} for p, z in zip(LEVELS, values, strict=True)]
        line = alt.Chart(alt.Data(values=rows)).mark_line(color=colour, strokeWidth=2)
        layers.append(line.encode(x, y))
    return alt.layer(*layers).properties(height=HEIGHT)


def _panels(coordinate: Coordinate) -> Mapping[str, Panel]:
    """By colour, the estimate and what was logged."""
    panels = {IMAGE.estimate: coordinate.estimate}
    if coordinate.behaviour is not None:
        panels[IMAGE.behaviour] = coordinate.behaviour
    return panels


def _beside(alt: Any, charts: list[Chart]) -> Chart:
    sized = [chart.properties(width=WIDTH) for chart in charts]
    return configured(sized[0] if len(sized) == 1 else alt.hconcat(*sized), IMAGE)


def _require(kind: str, known: tuple[str, ...]) -> None:
    if kind not in known:
        raise SettingsError(
            f"plot: expected one of {', '.join(known)}, got {kind!r}{nearest(str(kind), known)}"
        )
