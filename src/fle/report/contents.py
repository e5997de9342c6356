"""What a report says, as plain data gathered from an evaluation; no HTML and no charts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.data import Dataset
from fle.fitting import Evaluation, LoggedData, StageRecord, Training
from fle.report.laws import Axis, Law
from fle.report.numbers import NumberStyle
from fle.report.truth import Comparison, checked_truth, comparisons
from fle.returns import ReturnDistribution

FloatArray = NDArray[np.float64]
Interval = tuple[float, float]

# Draws that the page carries for weighted sums of vector returns.
PAGE_DRAWS = 4_000
PAGE_EPISODES = 2_000
MOST_PAIRS = 6
JOINT_BINS = 40


@dataclass(frozen=True)
class Extras:
    """What an evaluation does not know itself, each part optional.

    warnings: further reservations.
    intervals: of a headline figure, by return name and "mean", "cvar" or "loss".
    """

    warnings: tuple[str, ...] = ()
    intervals: Mapping[tuple[str, str], Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class Coordinate:
    """One return: its law under the target policy, beside the logged one and the true one."""

    name: str
    style: NumberStyle
    axis: Axis
    estimate: Law
    behaviour: Law | None
    truth: Law | None
    intervals: Mapping[str, Interval]


@dataclass(frozen=True)
class Joint:
    """A histogram of two coordinates: shares (y, x) over the cells, and some logged episodes."""

    x: int
    y: int
    x_edges: FloatArray
    y_edges: FloatArray
    shares: FloatArray
    episodes: FloatArray


@dataclass(frozen=True)
class Contents:
    """Everything on the page.

    draws, episodes: rows of the estimate and of the logged returns, for vector returns only.
    comparisons: empty without truth. command: a shell command or Python lines.
    """

    title: str
    problem: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    enough_coverage: bool
    coordinates: tuple[Coordinate, ...]
    behaviour_remark: str | None
    comparisons: tuple[Comparison, ...]
    truth_size: int
    joints: tuple[Joint, ...]
    draws: FloatArray | None
    episodes: FloatArray | None
    has_density: bool
    discounted: bool
    stages: tuple[StageRecord, ...]
    data_lines: tuple[str, ...]
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    command: str


def gather(
    evaluation: Evaluation,
    *,
    data: Dataset | None = None,
    truth: ArrayLike | ReturnDistribution | None = None,
    title: str | None = None,
    command: str | None = None,
    extras: Extras | None = None,
) -> Contents:
    """All that the report will show; see `write_report` for the arguments."""
    extras = extras or Extras()
    returns = evaluation.returns
    estimate = returns.samples
    true_draws = checked_truth(truth, returns.names)
    logged = evaluation.logged
    if data is not None:
        logged = LoggedData.of(data, evaluation.gamma, evaluation.horizon)
    earned = logged.returns
    coordinates = coordinates_of(returns.names, estimate, earned, true_draws, extras.intervals)
    covered = evaluation.coverage
    warnings = [
        *(() if covered is None else covered.warnings),
        *evaluation.warnings,
        *(() if data is None else data.warnings),
        *extras.warnings,
    ]
    several = returns.dim > 1
    return Contents(
        title=title or "Return of the target policy",
        problem=_problem(evaluation),
        warnings=tuple(dict.fromkeys(warnings)),
        notes=tuple(dict.fromkeys(evaluation.notes)),
        enough_coverage=covered is None or covered.enough,
        coordinates=coordinates,
        behaviour_remark=_remark(logged),
        comparisons=() if true_draws is None else comparisons(estimate, true_draws, returns.names),
        truth_size=0 if true_draws is None else len(true_draws),
        joints=_joints(coordinates, estimate, earned) if several else (),
        draws=_page_rows(coordinates, estimate, PAGE_DRAWS) if several else None,
        episodes=_page_rows(coordinates, earned, PAGE_EPISODES)
        if several and earned is not None
        else None,
        has_density=returns.log_density is not None,
        discounted=evaluation.horizon is None,
        stages=evaluation.records,
        data_lines=_data_lines(logged, warnings, evaluation.notes),
        settings=_settings(evaluation),
        versions=dict(sorted(evaluation.provenance.versions.items())),
        command=command or _python_lines(evaluation),
    )


def _remark(logged: LoggedData) -> str | None:
    """What should be said about the logged returns, if anything."""
    if logged.returns is None or logged.complete is None:
        return "Whole logged episodes are not known, so there are no observed returns to show."
    cut = int(np.sum(~logged.complete))
    if cut == 0:
        return None
    return (
        f"{cut:,} of {len(logged.returns):,} logged episodes were cut off before they ended: their "
        "observed returns lack what would have come after the cut."
    )


def coordinates_of(
    names: tuple[str, ...],
    estimate: FloatArray,
    earned: FloatArray | None,
    truth: FloatArray | None,
    intervals: Mapping[tuple[str, str], Interval] | None = None,
) -> tuple[Coordinate, ...]:
    """One a column of the draws (n, d)."""
    coordinates = []
    for i, name in enumerate(names):
        others = [None if rows is None else rows[:, i] for rows in (earned, truth)]
        axis = Axis.around(estimate[:, i], [rows for rows in others if rows is not None])
        behaviour, true_law = (None if rows is None else Law.of(rows, axis) for rows in others)
        law = Law.of(estimate[:, i], axis)
        ends = {measure: pair for (of, measure), pair in (intervals or {}).items() if of == name}
        style = NumberStyle.of(law.mean, law.std)
        # "reward" is what a reward without a name is called; what is shown is its return.
        shown = "return" if names == ("reward",) else name
        coordinates.append(Coordinate(shown, style, axis, law, behaviour, true_law, ends))
    return tuple(coordinates)


def _joints(
    coordinates: tuple[Coordinate, ...], estimate: FloatArray, earned: FloatArray | None
) -> tuple[Joint, ...]:
    joints = []
    for x, y in list(combinations(range(len(coordinates)), 2))[:MOST_PAIRS]:
        x_edges, y_edges = (
            np.linspace(edges[0], edges[-1], JOINT_BINS + 1)
            for edges in (coordinates[i].axis.edges for i in (x, y))
        )
        counts = np.histogram2d(estimate[:, y], estimate[:, x], (y_edges, x_edges))[0]
        episodes = np.empty((0, 2)) if earned is None else _some_rows(earned, 200)[:, [x, y]]
        joints.append(Joint(x, y, x_edges, y_edges, counts / len(estimate), episodes))
    return tuple(joints)


def _some_rows(rows: FloatArray, most: int) -> FloatArray:
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(0).choice(len(rows), most, replace=False)]


def _page_rows(coordinates: tuple[Coordinate, ...], rows: FloatArray, most: int) -> FloatArray:
    chosen = _some_rows(rows, most)
    columns = [c.style.rounded(chosen[:, i]) for i, c in enumerate(coordinates)]
    return np.stack(columns, axis=1)


def _problem(evaluation: Evaluation) -> str:
    if evaluation.horizon is None:
        return f"discounted return, gamma = {evaluation.gamma:g}"
    steps = f"{evaluation.horizon} step" + ("s" if evaluation.horizon > 1 else "")
    if evaluation.gamma == 1:
        return f"return over {steps}"
    return f"return over {steps}, discounted by gamma = {evaluation.gamma:g}"


def _data_lines(logged: LoggedData, warnings: list[str], notes: tuple[str, ...]) -> tuple[str, ...]:
    """Lines of the summary that the page does not show elsewhere."""
    shown = {f"warning: {text}" for text in warnings} | {f"note: {text}" for text in notes}
    return tuple(line for line in logged.summary.splitlines() if line not in shown)


def _settings(evaluation: Evaluation) -> dict[str, str]:
    """All settings of the run, then what it took and what it was made from."""
    provenance = evaluation.provenance
    seconds = sum(record.seconds for record in evaluation.records)
    return {
        **{name.replace("_", " "): text for name, text in _arguments(evaluation).items()},
        "training time": f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s",
        "data (sha256)": provenance.data[:16],
        "policy (sha256)": provenance.policy[:16],
    }


def _arguments(evaluation: Evaluation) -> dict[str, str]:
    """What `fle.evaluate` was called with, defaults filled in, each as Python."""
    settings = evaluation.provenance.settings
    given = {name: repr(settings[name]) for name in sorted(settings) if settings[name] is not None}
    if evaluation.horizon is not None:
        # A horizon says how many stages there are.
        given.pop("stages", None)
    ours = type(evaluation.model).__module__.startswith("fle.")
    return given | {
        "model": ("fle." if ours else "") + repr(evaluation.model),
        "training": f"fle.{Training(**settings['training'])!r}",
        "seed": repr(evaluation.provenance.seed),
    }


def _python_lines(evaluation: Evaluation) -> str:
    """The call that gives the same result from the same data and policy."""
    arguments = "".join(f"    {name}={text},\n" for name, text in _arguments(evaluation).items())
    return (
        "import fle\n\n"
        "# data: the logged transitions; policy: the target policy\n"
        f"result = fle.evaluate(\n    data,\n    policy,\n{arguments})\n"
        'result.report("report.html")'
    )
