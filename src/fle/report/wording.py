"""The sentences and tables of the page, from its contents."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fle.report.contents import Contents, Coordinate
from fle.report.laws import LEVELS, QUANTILES, START_LEVEL, Law
from fle.report.numbers import NumberStyle, level_words, percent

START = level_words(float(LEVELS[START_LEVEL]))
MOST_TABLE_STAGES = 20
# Fewer logged episodes than this in a tail, and its mean says nothing.
LEAST_TAIL = 5


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

    None where the data shows too little of what the policy does.
    """
    if not contents.enough_coverage:
        return ()
    alone = len(contents.coordinates) == 1
    return tuple(
        HeadlineGroup(None if alone else c.name, tuple(_figures(c))) for c in contents.coordinates
    )


def _figures(c: Coordinate) -> Iterator[Figure]:
    text = c.style.text
    yield _figure(c, "mean", "Mean", lambda law: law.mean, text)
    worst = f"Mean of the worst {START}"
    yield _figure(c, "cvar", worst, lambda law: tail_mean(law, START_LEVEL), text)
    yield _figure(c, "loss", "Chance of a loss (below 0)", lambda law: law.loss, percent)


def _figure(
    c: Coordinate,
    measure: str,
    label: str,
    of: Callable[[Law], float | None],
    write: Callable[[float], str],
) -> Figure:
    value = of(c.estimate)
    ends = c.intervals.get(measure)
    logged = None if c.behaviour is None else of(c.behaviour)
    return Figure(
        label,
        "–" if value is None else write(value),
        None if ends is None else f"{write(ends[0])} to {write(ends[1])}",
        None if logged is None else write(logged),
    )


def sentences(contents: Contents) -> list[str]:
    """The headline in words, one sentence or two a return."""
    if not contents.enough_coverage:
        return [
            "The data shows too little of what the target policy does for a headline number. What "
            "follows is extrapolated."
        ]
    alone = len(contents.coordinates) == 1
    lines = []
    for c in contents.coordinates:
        law, text = c.estimate, c.style.text
        line = (
            f"Under the target policy, {'the return' if alone else c.name} is {text(law.mean)} on "
            f"average. In the worst {START} of cases it averages "
            f"{text(float(law.cvar[START_LEVEL]))}. {_loss_words(law)}"
        )
        if c.behaviour is not None:
            line += (
                f" The {c.behaviour.size:,} logged episodes earned {text(c.behaviour.mean)} on "
                "average."
            )
        lines.append(line)
    return lines


def _loss_words(law: Law) -> str:
    if law.loss == 0:
        return f"None of {law.size:,} simulated returns is a loss."
    if law.loss == 1:
        return f"All of {law.size:,} simulated returns are below 0."
    return f"It ends below 0 with a chance of {percent(law.loss)}."


def subtitle(contents: Contents) -> str:
    """What was evaluated, in one line."""
    names = [c.name for c in contents.coordinates]
    what = "" if len(names) == 1 else f" of {', '.join(names[:-1])} and {names[-1]}"
    return f"Estimated from logged data alone: {contents.problem}{what}"


def laws_of(c: Coordinate) -> list[tuple[str, str, Law]]:
    """Id, label and law of what the tables compare."""
    laws = [
        ("estimate", "Target policy", c.estimate),
        ("behaviour", "Logged behaviour", c.behaviour),
        ("truth", "Truth", c.truth),
    ]
    return [(key, label, law) for key, label, law in laws if law is not None]


def fixed_rows(c: Coordinate) -> list[tuple[str, list[str]]]:
    """The rows of the table of numbers that no slider moves."""
    text = c.style.text
    laws = [law for _, _, law in laws_of(c)]
    low, middle, high = QUANTILES.index(0.05), QUANTILES.index(0.5), QUANTILES.index(0.95)
    return [
        ("Mean", [text(law.mean) for law in laws]),
        ("Standard deviation", [text(law.std) for law in laws]),
        ("5% quantile", [text(float(law.quantiles[low])) for law in laws]),
        ("Median", [text(float(law.quantiles[middle])) for law in laws]),
        ("95% quantile", [text(float(law.quantiles[high])) for law in laws]),
    ]


def tail_mean(law: Law, level: int) -> float | None:
    """CVaR at a level, None where too few values lie in the tail."""
    return float(law.cvar[level]) if LEVELS[level] * law.size >= LEAST_TAIL else None


def value_at_risk(law: Law, level: int) -> float | None:
    """VaR at a level, None where too few values lie in the tail."""
    return float(law.value_at_risk[level]) if LEVELS[level] * law.size >= LEAST_TAIL else None


def text_or_dash(style: NumberStyle, value: float | None) -> str:
    """The number, or a dash where there is none."""
    return "–" if value is None else style.text(value)


def outside_remarks(c: Coordinate) -> list[str]:
    """What lies beyond the ends of the charts, where it is worth saying."""
    return [
        f"{percent(law.outside)} of the sample of the {label.lower()} lies beyond the charts."
        for _, label, law in laws_of(c)
        if law.outside >= 0.01
    ]


def truth_sentence(contents: Contents) -> str:
    """The first comparison, in words."""
    first = contents.comparisons[0]
    return (
        f"The estimate is {first.distance:.3f} standard deviations away from the truth (W1); two "
        f"samples of the truth are {first.floor.mean:.3f} apart."
    )


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
