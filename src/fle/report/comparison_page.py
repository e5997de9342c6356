"""The page of a comparison: ranking, distributions, pairs and dominance in one HTML file."""

import os
from pathlib import Path
from typing import Any

from fle.files import write_atomically
from fle.fitting import Comparison
from fle.report.charts import DASHED, SOLID, cdf_line, probability_axis
from fle.report.contents import LEVELS, START_LEVEL, Axis, Panel
from fle.report.page import Frame, framed
from fle.report.style import (
    MOST_CURVES,
    PAGE,
    Chart,
    NumberStyle,
    altair_or_error,
    between,
    percent,
    specification,
    value_axis,
)
from fle.report.wording import capital, written, written_ends
from fle.returns import Measure, measure
from fle.returns.intervals import MEANING
from fle.returns.measures import usual_measures
from fle.returns.risk import percentage

HEIGHT = 320
# How lines of one colour are told apart, in the chart and in its key.
DASHES = ((SOLID, "solid"), (DASHED, "dashed"), ([1, 3], "dotted"))
# Share of a sample beyond the chart that is worth saying.
WORTH_SAYING = 0.01


def write_comparison(
    comparison: Comparison,
    path: str | os.PathLike[str],
    *,
    by: str | Measure = "mean",
    title: str = "Comparison of policies",
) -> None:
    """Write a comparison as one HTML file that needs no network.

    Args:
        comparison: what `fle.compare` gave.
        path: the file; it is replaced whole or not at all.
        by: the risk measure that orders the policies.
        title: of the page.

    Example: `write_comparison(fle.compare(data, policies, gamma=0.9), "page.html", by="cvar:0.1")`.
    """
    altair_or_error()
    page = render_comparison(comparison, measure(by), title)
    write_atomically(Path(path), page.encode("utf-8"))


def render_comparison(comparison: Comparison, by: Measure, title: str) -> str:
    """The whole page as text."""
    names = [name for name, _ in comparison.ranking(by)]
    panels = _panels(comparison, names[:MOST_CURVES])
    view: dict[str, Any] = {
        "warnings": _warnings(comparison),
        "names": names,
        "refused": [(name, plan.withheld) for name, plan in comparison.refused.items()],
        "verdicts": {name: comparison.evaluations[name].verdict.level for name in names},
        "wrong": _wrong(comparison, names),
        "pairs": _pairs(comparison, names),
        "pairing": capital(comparison.pairing()),
        "dominance": comparison.dominance_in_words(names),
        "dominance_meaning": capital(MEANING),
        "caution": comparison.caution(),
        "interval": None
        if comparison.level is None
        else f"{percentage(comparison.level)} interval",
        "remarks": [
            f"{percent(panel.outside)} of the sample of {name} lies beyond the chart."
            for name, panel in panels.items()
            if panel.outside >= WORTH_SAYING
        ],
        "curves": _curves(names),
        "unfitted": _unfitted(comparison, names, by),
        "looks": [f"{capital(text)}." for text in _looks(comparison)],
        "look_heading": f"{_judged_by(comparison, by).heading} by the look",
        "estimated": _estimated(comparison, names),
        "settings": _settings(comparison),
        **_ranking(comparison, names, by),
    }
    charts = {}
    if names:
        view["key"] = [(name, *_stroke(i)[::2]) for i, name in enumerate(panels)]
        chart = _cdf_chart(comparison, panels)
        charts["cdf"] = specification(chart.properties(width="container"), PAGE)
    # What the script of every page expects; there are no sliders here.
    script_data: dict[str, Any] = {
        "levels": LEVELS.tolist(),
        "startLevel": START_LEVEL,
        "coordinates": [],
        "weighted": None,
        "charts": charts,
    }
    return framed("comparison.html", Frame(title, _subtitle(comparison), script_data), view)


def _ranking(comparison: Comparison, names: list[str], by: Measure) -> dict[str, Any]:
    """The order in words, and the table in it."""
    shown = list(dict.fromkeys([*usual_measures(), by]))
    sorting = "descending" if by.direction > 0 else "ascending"
    rows = []
    for name in names:
        style, returns = _style(comparison, names), comparison.returns[name]
        cells = []
        for one in shown:
            ends = None
            if returns.replicates is not None:
                ends = written_ends(one, returns.interval(one).ends, style)
            cells.append((written(one, returns.measure_if_supported(one), style), ends))
        rows.append((name, cells))
    return {
        "order": (
            f"Ranked by {by.label}, {'highest' if by.direction > 0 else 'lowest'} first"
            f"{comparison.summed()}."
        ),
        "headings": [(one.heading, sorting if one == by else None) for one in shown],
        "ranking": rows,
    }


def _curves(names: list[str]) -> str:
    """Which policies the chart shows, where it does not show all."""
    if len(names) <= MOST_CURVES:
        return ""
    return f"The first {MOST_CURVES} of {len(names):,}; the table above has all."


def _looks(comparison: Comparison) -> list[str]:
    """What the looks decided, in sentences."""
    return [] if comparison.contest is None else comparison.contest.in_words()


def _judged_by(comparison: Comparison, by: Measure) -> Measure:
    """What the looks judged, which need not be what the page is ranked by."""
    return by if comparison.contest is None else comparison.contest.by


def _unfitted(
    comparison: Comparison, names: list[str], by: Measure
) -> list[tuple[int, str, str, list[str]]]:
    """Place, name, outcome and figures of those without a full fit, by their last look."""
    style, judged = _style(comparison, names) if names else None, _judged_by(comparison, by)
    rows = []
    for place, (name, found) in enumerate(comparison.unfitted.items(), len(names) + 1):
        numbers = (found.value, found.lead, found.margin)
        plain = style is None or judged.probability
        value, lead, margin = (f"{v:.4g}" if plain or not style else style.text(v) for v in numbers)
        rows.append((place, name, found.outcome, [value, found.rival, lead, margin]))
    return rows


def _pairs(comparison: Comparison, names: list[str]) -> list[tuple[str, str, list[str]]]:
    rows = []
    for pair in comparison.differences(names):
        mean, low, high = (
            _style(comparison, names).text(value) for value in (pair.mean, pair.low, pair.high)
        )
        shares = [percent(pair.beats), percent(pair.ties)]
        ends: list[str] = []
        if comparison.level is not None:
            found = comparison.interval(pair.first, pair.second).ends
            ends = [" to ".join(_style(comparison, names).text(end) for end in found)]
        rows.append((pair.first, pair.second, [mean, *ends, f"{low} to {high}", *shares]))
    return rows


def _panels(comparison: Comparison, names: list[str]) -> dict[str, Panel]:
    """On one axis, which follows the first as far as the others are near."""
    if not names:
        return {}
    axis = _axis(comparison, names)
    return {name: Panel.of(comparison.returns[name], axis) for name in names}


def _axis(comparison: Comparison, names: list[str]) -> Axis:
    first, *others = (comparison.returns[name] for name in names)
    return Axis.around(first, others)


def _cdf_chart(comparison: Comparison, panels: dict[str, Panel]) -> Chart:
    """The distribution functions of all policies."""
    alt = altair_or_error()
    names = list(panels)
    axis, style = _axis(comparison, names), _style(comparison, names)
    x = alt.X("z:Q", title="return", scale=between(alt, axis.edges), axis=value_axis(alt, style))
    y = probability_axis(alt)
    thresholds = style.rounded(axis.thresholds)
    lines = []
    for place, panel in enumerate(panels.values()):
        colour, dash, _ = _stroke(place)
        lines.append(cdf_line(alt, thresholds, panel.below, colour, dash).encode(x, y))
    return alt.layer(*lines).properties(height=HEIGHT)


def _stroke(place: int) -> tuple[str, list[int], str]:
    """Colour, dash and CSS line of the policy at a place; all colours before the next dash."""
    turn, colour = divmod(place, len(PAGE.series))
    return PAGE.series[colour], *DASHES[turn % len(DASHES)]


def _style(comparison: Comparison, names: list[str]) -> NumberStyle:
    """Decimals that suit the first of the ranking."""
    first = comparison.returns[names[0]]
    return NumberStyle.of(float(first.mean()), float(first.std()))


def _warnings(comparison: Comparison) -> list[str]:
    """Every reservation once, with the policy it belongs to unless it belongs to all."""
    by_name = {name: found.warnings for name, found in comparison.evaluations.items()}
    texts = dict.fromkeys(text for found in by_name.values() for text in found)
    lines = []
    for text in texts:
        whose = [name for name, found in by_name.items() if text in found]
        alone = len(whose) == len(by_name)
        lines += [text] if alone else [f"{name}: {text}" for name in whose]
    return lines


def _wrong(comparison: Comparison, names: list[str]) -> list[tuple[str, list[str]]]:
    """By policy, what speaks against its estimate."""
    nothing = ["Nothing that was measured speaks against it."]
    return [
        (name, [one.words for one in comparison.evaluations[name].verdict.reasons] or nothing)
        for name in names
    ]


def _subtitle(comparison: Comparison) -> str:
    number = len(comparison.evaluations) + len(comparison.unfitted) + len(comparison.refused)
    count = f"{number:,} policies" if number > 1 else "One policy"
    look = "A first look at " if comparison.quick else ""
    return f"{look}{count} on the same logged data: {comparison.problem.in_words()}"


def _estimated(comparison: Comparison, names: list[str]) -> list[tuple[str, str]]:
    """By policy, how well the data covers it."""
    found = [(name, comparison.evaluations[name].coverage) for name in names]
    return [
        (name, "it logged the data" if covered is None else covered.in_words())
        for name, covered in found
    ]


def _settings(comparison: Comparison) -> str:
    """What all fits have in common."""
    if not comparison.evaluations:
        return ""
    first = next(iter(comparison.evaluations.values()))
    plural = "s" if len(first.records) > 1 else ""
    return (
        f"All with {first.model!r}, {len(first.records):,} stage{plural} and seed "
        f"{first.provenance.seed}, and how well the data covers each"
    )
