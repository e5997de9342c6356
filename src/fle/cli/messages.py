"""What a command says: tables and documents, its outcome, and warnings on stderr."""

import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from fle.data import Dataset
from fle.errors import FLEWarning
from fle.files import without_secrets
from fle.returns import Measure, ReturnDistribution
from fle.returns.intervals import Replicates
from fle.returns.measures import usual_measures
from fle.returns.opinions import LEVEL, ROBUST, Check
from fle.returns.risk import percentage
from fle.screen import aligned, one_line, show

if TYPE_CHECKING:
    from fle.fitting import Evaluation
    from fle.report.style import NumberStyle

DONE, NO_ESTIMATE, WRONG_INPUT, FAULT, STOPPED = 0, 1, 2, 3, 130
# Of a gate.
NOT_MET, UNDECIDED = 4, 5
# Of jobs that others are to run first.
WAITING = 6
# Of interest to programmers of the packages below, not to the user of a command.
UNSHOWN = (
    DeprecationWarning,
    PendingDeprecationWarning,
    FutureWarning,
    ImportWarning,
    ResourceWarning,
)
# Arguments of the Python functions that are options here.
ARGUMENTS = (
    "observation",
    "next_observation",
    "action",
    "reward",
    "episode",
    "step",
    "terminated",
    "truncated",
    "weight",
    "propensity",
    "probability",
    "number_of_actions",
    "action_labels",
    "category",
    "missing",
    "elapsed",
    "input",
    "output",
    "timeout",
    "memory",
    "memory_ceiling",
    "allow_code",
    "action_draws",
    "draws",
    "gamma",
    "horizon",
    "model",
    "recipe",
    "stages",
    "rows",
    "seed",
    "weights",
    "quick",
    "interval",
    "anyway",
    "out",
    "resume",
    "sign_key",
)
# Options whose name is not the argument's.
OTHER_NAMES = {
    "timeout": "policy_timeout",
    "memory": "policy_memory",
    "memory_ceiling": "memory",
    "input": "policy_input",
    "output": "policy_output",
    "draws": "action_draws",
}
MINUS = "\N{MINUS SIGN}"


class Messages:
    """Every warning of a command, shown once when it comes and kept for the report."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.answers: TextIO | None = None

    def answer(self, lines: Iterable[str]) -> None:
        """Print what is known already; nothing where one document is the answer."""
        if self.answers is None:
            return
        try:
            print(*lines, sep="\n", file=self.answers, flush=True)
        except BrokenPipeError:
            # Whoever read has seen enough; what is to be written to files still is.
            self.answers = None

    def warn(self, text: str) -> None:
        """Show a warning, unless it was shown before."""
        line = one_line(text)
        # A comparison says first whose it is.
        if not any(shown == line or shown.endswith(f": {line}") for shown in self.warnings):
            self.warnings.append(line)
            say(f"warning: {in_options(line)}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over Python's warnings, whose format shows source lines."""

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            own = issubclass(category, FLEWarning)
            self.warn(str(message) if own else f"{category.__name__}: {message}")

        with warnings.catch_warnings():
            warnings.resetwarnings()
            for category in UNSHOWN:
                warnings.simplefilter("ignore", category)
            warnings.simplefilter("always", FLEWarning)
            warnings.showwarning = show
            yield


def say(line: str) -> None:
    """One line to stderr."""
    show("")
    print(line, file=sys.stderr, flush=True)


def in_options(text: str) -> str:
    """What the Python functions call `reward=...` is the option --reward here."""
    names = "|".join(ARGUMENTS)
    # A list is an option that is repeated.
    text = text.replace("=[...]", "=...")
    # `anyway=True` is a switch, which has no value.
    text = re.sub(rf"(?<![\w.-])({names})=True\b", lambda found: _option(found[1]), text)
    text = re.sub(
        rf"(?<![\w.-])({names})=(?=[\w'\".{{\[])", lambda found: _option(found[1]) + " ", text
    )
    return re.sub(rf"`({names})`|^({names})(?=: )", lambda m: _option(m[1] or m[2]), text)


def _option(argument: str) -> str:
    return "--" + OTHER_NAMES.get(argument, argument).replace("_", "-")


@dataclass(frozen=True)
class Outcome:
    """The lines to print, or the document to print instead of them, and the exit code.

    one_line: whether the document is one line, as logs of pipelines want it.
    """

    lines: tuple[str, ...]
    document: dict[str, Any] = field(default_factory=dict)
    code: int = DONE
    one_line: bool = False


def json_text(document: dict[str, Any], *, indent: int | None = 2) -> str:
    """Strict JSON: what is no number is null."""
    return json.dumps(_plain(document), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


@dataclass(frozen=True, eq=False)
class Column:
    """A distribution in a table, and how a measure is read off it."""

    label: str
    law: ReturnDistribution
    read: Callable[[ReturnDistribution, Measure], float | None]

    def value(self, measure: Measure) -> float | None:
        """The measure of this distribution, where it has one."""
        return self.read(self.law, measure)


def short(value: float) -> str:
    """A number in few figures."""
    return f"{value:.4g}"


def risk_table(
    evaluation: "Evaluation",
    measures: Sequence[Measure],
    weights: Sequence[float] | None,
    truth: ReturnDistribution | None = None,
) -> list[str]:
    """For each return, and their weighted sum, the target policy beside what was logged."""
    lines: list[str] = []
    checks = bias_checks(evaluation)
    for place, (name, laws) in enumerate(_laws(evaluation, weights, truth)):
        if lines:
            lines.append("")
        first, *others = laws
        style = style_of(first.law)
        level = [] if first.law.replicates is None else [interval_heading(first.law.replicates)]
        # Of a weighted sum there is no doubly robust estimate.
        checked = checks[place] if place < len(checks) else {}
        beside = [f"{ROBUST}, {percentage(_level(evaluation))}", "errors apart"]
        beside = beside if checked else []
        rows = [[name, first.label, *level, *beside, *(column.label for column in others)]]
        for measure in [*usual_measures(), *measures]:
            values = [cell(measure, column.value(measure), style) for column in laws]
            ends = [interval_cell(measure, first.law, style)] if level else []
            ends += _check_cells(measure, checked, style) if checked else []
            rows.append([measure.label, values[0], *ends, *values[1:]])
        lines += aligned(rows)
    return lines


def bias_checks(evaluation: "Evaluation") -> list[dict[str, Check]]:
    """By return, what doubly robust estimation says of every measure that it has."""
    opinions, level = evaluation.second_opinions, _level(evaluation)
    if opinions is None:
        return []
    return [opinions.checks(name, level) for name in evaluation.return_names]


def _level(evaluation: "Evaluation") -> float:
    return LEVEL if evaluation.refits is None else evaluation.refits.level


def _check_cells(measure: Measure, checked: dict[str, Check], style: "NumberStyle") -> list[str]:
    found = checked.get(measure.text)
    if found is None:
        return ["-", "-"]
    low, high = (cell(measure, end, style) for end in (found.low, found.high))
    return [f"{low} to {high}", f"{round(found.errors, 1) + 0.0:+.1f}"]


def interval_heading(replicates: Replicates) -> str:
    """Of a column of intervals."""
    return f"{percentage(replicates.level)} interval"


def interval_cell(measure: Measure, law: ReturnDistribution, style: "NumberStyle") -> str:
    """The interval of a measure as people read it."""
    return " to ".join(cell(measure, end, style) for end in law.interval(measure).ends)


def cell(measure: Measure, value: float | None, style: "NumberStyle") -> str:
    """The value of a measure as people read it; a hyphen where there is none."""
    if value is None:
        return "-"
    return f"{value:.1%}" if measure.probability else number_text(value, style)


def number_text(value: float, style: "NumberStyle") -> str:
    """A return in this style; hyphens for minus signs, which any terminal can show."""
    return style.text(value).replace(MINUS, "-")


def data_words(sources: Sequence[str], data: Dataset) -> str:
    """Where the data is from, and how much of it is used."""
    episodes = "" if data.episodes is None else f", {data.number_of_episodes:,} episodes"
    return f"{' '.join(map(without_secrets, sources))}: {len(data):,} rows{episodes}"


def style_of(law: ReturnDistribution) -> "NumberStyle":
    """Decimals that suit a distribution."""
    from fle.report.style import NumberStyle

    return NumberStyle.of(float(law.mean()), float(law.std()))


def returns_document(
    evaluation: "Evaluation", measures: Sequence[Measure], weights: Sequence[float] | None
) -> dict[str, Any]:
    """By column and return, all measures, and those of the weighted sum."""
    document: dict[str, Any] = {"target policy": {}, "logged": None}
    names = _document_names(evaluation)
    # Without weights there is no sum.
    for name, (_, laws) in zip(names, _laws(evaluation, weights, None), strict=False):
        for column in laws:
            values = {m.text: column.value(m) for m in [*usual_measures(), *measures]}
            document[column.label] = {**(document[column.label] or {}), name: values}
    return {
        "returns": document["target policy"],
        "intervals": intervals_document(evaluation, measures, weights),
        "logged_returns": document["logged"],
        "second_opinions": opinions_document(evaluation),
        "bias_alarm": alarm_document(evaluation),
        **evidence_document(evaluation),
    }


def evidence_document(evaluation: "Evaluation") -> dict[str, Any]:
    """What the verdict rests on beside coverage and second opinions; None for what was not asked.

    error_estimate: in the form of the paper's theorems, in standard deviations of the return.
    """
    from fle.trust.verdict import error_estimate

    parts = {name: getattr(evaluation, name) for name in ("visits", "bellman", "calibration")}
    plain = {name: None if part is None else part.as_plain() for name, part in parts.items()}
    return {"verdict": evaluation.verdict.as_plain(), **plain} | {
        "error_estimate": error_estimate(evaluation)
    }


def opinions_table(evaluation: "Evaluation") -> list[str]:
    """What other estimators say, a line each; nothing where they were left out."""
    opinions = evaluation.second_opinions
    if opinions is None:
        return []
    first, *others = opinions.rows()
    rows = [("second opinions", *first[1:]), *others]
    table = aligned([row[:-1] for row in rows])
    return [f"{line}  {row[-1]}".rstrip() for line, row in zip(table, rows, strict=True)]


def opinions_document(evaluation: "Evaluation") -> dict[str, Any] | None:
    """What other estimators say, and where they disagree beyond chance; None without any."""
    opinions = evaluation.second_opinions
    if opinions is None:
        return None
    return {
        **opinions.as_plain(),
        "disagreements": [
            {
                "estimator": found.opinion.estimator,
                "coordinate": found.opinion.coordinate,
                "measure": found.asked,
                "standard_deviations": found.apart,
                "standard_errors": found.errors,
            }
            for found in opinions.disagreements
        ],
    }


def alarm_document(evaluation: "Evaluation") -> dict[str, Any] | None:
    """By return, the doubly robust figures beside those of the estimate, and what they miss."""
    opinions = evaluation.second_opinions
    if opinions is None:
        return None
    names = evaluation.return_names
    return {
        shown: {
            "words": opinions.alarm_in_words(name),
            "measures": {asked: one.as_plain() for asked, one in checked.items()},
        }
        for shown, name, checked in zip(
            _document_names(evaluation), names, bias_checks(evaluation), strict=False
        )
    }


def intervals_document(
    evaluation: "Evaluation", measures: Sequence[Measure], weights: Sequence[float] | None
) -> dict[str, Any] | None:
    """By return and measure, both ends of the interval; None where there are none."""
    found = evaluation.intervals
    if found is None:
        return None
    asked = [*usual_measures(), *measures]
    laws = [columns[0].law for _, columns in _laws(evaluation, weights, None)]
    return {
        "level": found.level,
        "replicates": found.replicates,
        "resampled": found.resampled,
        "returns": {
            # Without weights there is no sum.
            name: {one.text: list(law.interval(one).ends) for one in asked}
            for name, law in zip(_document_names(evaluation), laws, strict=False)
        },
    }


def _document_names(evaluation: "Evaluation") -> list[str]:
    known = evaluation.return_names
    return [*(known if len(known) > 1 else ["return"]), "weighted sum"]


def logged_law(evaluation: "Evaluation") -> ReturnDistribution | None:
    """What the logged episodes earned, where it is the same kind of return."""
    earned = evaluation.logged.comparable
    if earned is None:
        return None
    return ReturnDistribution.from_samples(earned, evaluation.return_names)


def _laws(
    evaluation: "Evaluation", weights: Sequence[float] | None, truth: ReturnDistribution | None
) -> list[tuple[str, list[Column]]]:
    """By return, what its columns show."""
    columns = [Column("target policy", evaluation.returns, ReturnDistribution.measure)]
    for label, law in (("truth", truth), ("logged", logged_law(evaluation))):
        if law is not None:
            columns.append(Column(label, law, ReturnDistribution.measure_if_supported))
    names = evaluation.return_names
    alone = len(names) == 1
    laws = [
        ("" if alone else name, [replace(c, law=c.law.marginal(i)) for c in columns])
        for i, name in enumerate(names)
    ]
    if weights is not None:
        terms = " + ".join(f"{w:g} {name}" for w, name in zip(weights, names, strict=True))
        laws.append((terms, [replace(c, law=c.law.scalarize(weights)) for c in columns]))
    return laws
