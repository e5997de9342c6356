"""The sentences and tables of the page, from its contents."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fle.report.contents import HEADLINE, START_LEVEL, Contents, Coordinate, Panel
from fle.report.style import NumberStyle, percent
from fle.returns import Measure, measure
from fle.returns.measures import RISK_LEVEL, further_measures, usual_measures
from fle.returns.risk import percentage

START = percentage(RISK_LEVEL)
MOST_TABLE_STAGES = 20


@dataclass(frozen=True)
class Figure:
    """A headline number, with its interval where one is known, and the logged one beside it."""

    label: str
    value: str
    interval: str | None
    logged: str | None


@dataclass(frozen=True)
class HeadlineGroup:
    """The figures of one return; without a name if there is only one."""

    name: str | None
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns."""

    summary: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def headline(contents: Contents) -> tuple[HeadlineGroup, ...]:
    """Mean, mean of the worst tenth and chance of a loss, of every return.

    None where the verdict is that they should not be used.
    """
    if not contents.usable:
        return ()
    alone = len(contents.coordinates) == 1
    return tuple(
        HeadlineGroup(
            None if alone else c.name, tuple(_figure(c, measure(text)) for text in HEADLINE)
        )
        for c in contents.coordinates
    )


def _figure(c: Coordinate, shown: Measure) -> Figure:
    value = c.estimate.measure(shown)
    ends = c.intervals.get(shown.text)
    logged = None if c.behaviour is None else c.behaviour.measure(shown)
    return Figure(
        capital(shown.label),
        written(shown, value, c.style),
        None
        if ends is None
        else f"{interval_label(c) or 'interval'} {written_ends(shown, ends, c.style)}",
        None if logged is None else written(shown, logged, c.style),
    )


def written(shown: Measure, value: float | None, style: NumberStyle) -> str:
    """The value of a measure, or a dash where there is none."""
    if value is not None and shown.probability:
        return percent(value)
    return text_or_dash(style, value)


def capital(label: str) -> str:
    """As at the beginning of a sentence."""
    return label[:1].upper() + label[1:]


def sentences(contents: Contents) -> list[str]:
    """The headline in words, one sentence or two a return."""
    if not contents.usable:
        return [
            "There is no headline number, for the reasons above. What follows was asked for all "
            "the same."
        ]
    alone = len(contents.coordinates) == 1
    lines = []
    for c in contents.coordinates:
        panel, text = c.estimate, c.style.text
        line = (
            f"Under the target policy, {'the return' if alone else c.name} is {text(panel.mean)} "
            f"on average. In the worst {START} of cases it averages "
            f"{text(float(panel.cvar[START_LEVEL]))}. {_loss_words(panel)}"
        )
        if c.behaviour is not None:
            line += (
                f" The {c.behaviour.size:,} logged episodes earned {text(c.behaviour.mean)} on "
                "average."
            )
        lines.append(line)
    return lines


def _loss_words(panel: Panel) -> str:
    share = panel.returns.measure("loss")
    if share == 0:
        return f"None of {panel.size:,} simulated returns is a loss."
    if share == 1:
        return f"All of {panel.size:,} simulated returns are below 0."
    return f"It ends below 0 with a chance of {percent(share)}."


def subtitle(contents: Contents) -> str:
    """What was evaluated, in one line."""
    names = [c.name for c in contents.coordinates]
    what = "" if len(names) == 1 else f" of {', '.join(names[:-1])} and {names[-1]}"
    look = "A first look, estimated" if contents.quick else "Estimated"
    return f"{look} from logged data alone: {contents.problem}{what}"


def panels_of(c: Coordinate) -> list[tuple[str, str, Panel]]:
    """Id, label and panel of what the tables compare."""
    panels = [
        ("estimate", "Target policy", c.estimate),
        ("behaviour", "Logged behaviour", c.behaviour),
        ("truth", "Truth", c.truth),
    ]
    return [(key, label, panel) for key, label, panel in panels if panel is not None]


def usual_rows(c: Coordinate) -> list[tuple[str, list[str]]]:
    """The rows of the table of numbers that no slider moves."""
    return _rows(c, usual_measures())


def further_rows(c: Coordinate) -> list[tuple[str, list[str]]]:
    """The rows of the folded table, for those who ask for more."""
    return _rows(c, further_measures())


def _rows(c: Coordinate, shown: Sequence[Measure]) -> list[tuple[str, list[str]]]:
    panels = [panel for _, _, panel in panels_of(c)]
    rows = []
    for one in shown:
        first, *others = (written(one, panel.measure(one), c.style) for panel in panels)
        between = []
        if interval_label(c) is not None:
            between = [written_ends(one, c.estimate.returns.interval(one).ends, c.style)]
        checked = c.checks.get(one.text)
        if c.checks and checked is None:
            between += ["–", "–"]
        elif checked is not None:
            ends = written_ends(one, (checked.low, checked.high), c.style)
            away = f"{round(checked.errors, 1) + 0.0:+.1f}".replace("-", "\N{MINUS SIGN}")
            between += [ends, away]
        rows.append((capital(one.label), [first, *between, *others]))
    return rows


def between_labels(c: Coordinate) -> list[str]:
    """Headings of what stands between the estimate and the others."""
    label = interval_label(c)
    checked = ["Doubly robust", "Standard errors apart"] if c.checks else []
    return [*([] if label is None else [label]), *checked]


def interval_label(c: Coordinate) -> str | None:
    """What the column of intervals is called; None where there is none."""
    replicates = c.estimate.returns.replicates
    return None if replicates is None else f"{percentage(replicates.level)} interval"


def written_ends(shown: Measure, ends: tuple[float, float], style: NumberStyle) -> str:
    """Both ends of the interval of a measure."""
    return " to ".join(written(shown, end, style) for end in ends)


def text_or_dash(style: NumberStyle, value: float | None) -> str:
    """The number, or a dash where there is none."""
    return "–" if value is None else style.text(value)


def opinions_sentence(contents: Contents) -> str:
    """How many other estimators could judge, and whether they agree."""
    opinions = contents.second_opinions
    if opinions is None:
        return ""
    seeing = sum(one.sees for one in opinions.opinions)
    found = len(opinions.disagreements)
    verdict = (
        "None disagrees with the estimate beyond chance."
        if found == 0
        else f"{found} figures disagree with the estimate beyond chance; the warnings name them."
    )
    return f"{seeing} of {len(opinions.opinions)} opinions could judge the estimate. {verdict}"


def outside_remarks(c: Coordinate) -> list[str]:
    """What lies beyond the ends of the charts, where it is worth saying."""
    return [
        f"{percent(panel.outside)} of the sample of the {label.lower()} lies beyond the charts."
        for _, label, panel in panels_of(c)
        if panel.outside >= 0.01
    ]


def truth_sentence(contents: Contents) -> str:
    """The first comparison, in words."""
    return f"The estimate is {contents.comparisons[0].in_words()}."


def health(contents: Contents) -> list[str]:
    """How the stages went, in words."""
    stages = contents.stages
    if not stages:
        return ["No record of the stages was kept."]
    last = stages[-1]
    lines = [
        f"{len(stages):,} stage{'s' if len(stages) > 1 else ''} in "
        f"{sum(record.seconds for record in stages):,.0f} s. At the last, the "
        f"{'negative log likelihood' if contents.has_density else 'loss'} on rows held out is "
        f"{last.held_out_loss:.4g}.".replace("-", "\N{MINUS SIGN}")
    ]
    if contents.discounted and len(stages) >= 10:
        tail = stages[-max(2, len(stages) // 10) :]
        means = np.array([record.mean for record in tail])
        spread = np.maximum(np.asarray(last.std, dtype=float), 1e-30)
        drift = float(np.max(np.ptp(means, axis=0) / spread))
        lines.append(
            f"Over the last {len(tail)} stages the mean stayed within {drift:.2g} standard "
            "deviations of the return."
        )
    return lines


def loss_caption(contents: Contents) -> str:
    """What the chart of the held-out loss shows, and what it does not."""
    shown = "Fit to rows held out of training."
    if contents.discounted:
        return f"{shown} It rises while returns gather spread, and levels off once they settle."
    return f"{shown} Its height follows the spread of the returns still to come."


def returns_caption(contents: Contents) -> str:
    """Of which returns the chart of a stage speaks."""
    by_step = any(record.step is not None for record in contents.stages)
    whose = "from the logged rows of the stage's step" if by_step else "from the initial states"
    return (
        f"Returns {whose}: mean with one standard deviation to each side, and mean of the worst "
        f"{START} (dashes)."
    )


def stage_table(contents: Contents) -> Table | None:
    """Every stage, or evenly spaced ones of many."""
    number = len(contents.stages)
    if number == 0:
        return None
    picks = np.unique(np.linspace(0, number - 1, min(number, MOST_TABLE_STAGES)).round())
    chosen = [contents.stages[int(i)] for i in picks]
    columns = ["stage", "held-out loss"]
    for c in contents.coordinates:
        prefix = "" if len(contents.coordinates) == 1 else f"{c.name}: "
        columns += [f"{prefix}mean", "std", f"CVaR {START}"]
    rows = []
    for record in chosen:
        cells = [str(record.stage), f"{record.held_out_loss:.4g}"]
        for i, c in enumerate(contents.coordinates):
            cells += [c.style.text(float(v[i])) for v in (record.mean, record.std, record.cvar)]
        rows.append(tuple(cells))
    which = "All" if len(chosen) == number else f"{len(chosen)} of the {number}"
    return Table(f"{which} stages as a table", tuple(columns), tuple(rows))


def data_rows(lines: Sequence[str]) -> list[tuple[str, str]]:
    """The lines of a data summary as names and values."""
    parts = [line.partition(": ") for line in lines]
    return [(name, value) if value else ("", name) for name, _, value in parts]
