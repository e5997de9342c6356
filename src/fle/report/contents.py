"""What a report says, as plain data gathered from an evaluation; no HTML and no charts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.data import Dataset
from fle.errors import SettingsError
from fle.fitting import Evaluation, LoggedData, Provenance, StageRecord
from fle.recipe import Recipe
from fle.report.style import NumberStyle
from fle.returns import Measure, ReturnDistribution, TruthDistance, distances_to_truth, risk
from fle.returns.intervals import Interval as IntervalSettings
from fle.returns.intervals import half_width
from fle.returns.measures import RISK_LEVEL, enough_in_tail
from fle.returns.opinions import Check, SecondOpinions
from fle.trust.verdict import Verdict, looked_at

FloatArray = NDArray[np.float64]

LEVELS = np.arange(1, 100) / 100
# Where every slider begins.
START_LEVEL = int(np.searchsorted(LEVELS, RISK_LEVEL))
BINS = 120
THRESHOLDS = 200
COARSER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
# A chart follows another distribution than the estimate at most this many of the estimate's widths.
FARTHEST = 4.0
# Share of a distribution beyond each end of the chart.
CUT = 0.001
Interval = tuple[float, float]

# The figures that stand first.
HEADLINE = ("mean", f"cvar:{RISK_LEVEL:g}", "loss")
# Draws that the page carries for weighted sums of vector returns.
PAGE_DRAWS = 4_000
# And of the estimate and each of its replicates, for the intervals of such sums.
INTERVAL_DRAWS = 1_000
PAGE_EPISODES = 2_000
MOST_PAIRS = 6
JOINT_BINS = 40
JOINT_EPISODES = 200


@dataclass(frozen=True)
class Axis:
    """The range of a chart, and the round thresholds on it; `thresholds` holds 0 if it is inside.

    `first` and `last` count steps from 0.
    """

    step: float
    first: int
    last: int

    @classmethod
    def around(cls, estimate: ReturnDistribution, others: Sequence[ReturnDistribution]) -> "Axis":
        """Nearly all of the estimate, and of the others as far as they are near."""
        low, high = _central_range(estimate)
        width = high - low
        for other in others:
            other_low, other_high = _central_range(other)
            low = min(low, max(other_low, low - FARTHEST * width))
            high = max(high, min(other_high, high + FARTHEST * width))
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            half = 0.1 * max(abs(low), abs(high)) or 1.0
            low, high = low - half, high + half
        margin = 0.03 * (high - low)
        step = _round_step((high - low) / THRESHOLDS)
        return cls(step, math.floor((low - margin) / step), math.ceil((high + margin) / step))

    @property
    def thresholds(self) -> FloatArray:
        """Multiples of the step, from end to end."""
        return np.asarray(np.arange(self.first, self.last + 1) * self.step, dtype=float)

    @property
    def edges(self) -> FloatArray:
        """Edges of the finest histogram."""
        return np.linspace(self.first * self.step, self.last * self.step, BINS + 1)

    def position(self, value: float) -> int:
        """Index of the threshold nearest to a value."""
        return int(np.clip(round(value / self.step), self.first, self.last)) - self.first


@dataclass(frozen=True, eq=False)
class Ends:
    """Both ends (2, k) of the intervals of what sliders show; see `Panel`."""

    value_at_risk: FloatArray
    cvar: FloatArray
    below: FloatArray

    @classmethod
    def of(cls, returns: ReturnDistribution, axis: Axis) -> "Ends | None":
        """Where there are replicates."""
        if returns.replicates is None:
            return None
        laws, level = returns.replicates.laws, returns.replicates.level

        def ends(read: Callable[[FloatArray], FloatArray]) -> FloatArray:
            value = read(returns.samples[:, 0])
            half = half_width(value, [read(law.samples[:, 0]) for law in laws], level)
            return np.stack([value - half, value + half])

        return cls(
            value_at_risk=ends(lambda values: risk.quantile(values, LEVELS)),
            cvar=ends(lambda values: risk.cvar(values, LEVELS)),
            below=np.clip(ends(lambda values: risk.below(values, axis.thresholds)), 0.0, 1.0),
        )


@dataclass(frozen=True, eq=False)
class Panel:
    """One distribution of a scalar return, boiled down to what charts and sliders show.

    value_at_risk, cvar: at LEVELS. supported: at which of them enough draws lie in the tail. below:
    P(Z < t) at the thresholds of the axis. edges, heights: a histogram in units of density.
    outside: share beyond the chart. ends: of intervals, where there are any. Every other number is
    asked of `returns`.
    """

    returns: ReturnDistribution
    value_at_risk: FloatArray
    cvar: FloatArray
    supported: NDArray[np.bool_]
    below: FloatArray
    edges: FloatArray
    heights: FloatArray
    outside: float
    ends: Ends | None = None

    @classmethod
    def of(cls, returns: ReturnDistribution, axis: Axis) -> "Panel":
        """What the page needs of a scalar return, by the functions of the register."""
        values, weights = returns.samples[:, 0], returns.weights
        edges, heights = _histogram(returns, axis)
        return cls(
            returns=returns,
            value_at_risk=risk.quantile(values, LEVELS, weights),
            cvar=risk.cvar(values, LEVELS, weights),
            supported=enough_in_tail(LEVELS, returns.effective_size),
            below=risk.below(values, axis.thresholds, weights),
            edges=edges,
            heights=heights,
            outside=1.0 - float(heights @ np.diff(edges)),
            ends=Ends.of(returns, axis),
        )

    @property
    def size(self) -> int:
        """Number of draws or episodes."""
        return len(self.returns.samples)

    @property
    def mean(self) -> float:
        """Mean of the return."""
        return float(self.returns.mean())

    def edge(self, level: int) -> float | None:
        """Where the tail of a level begins, None where too few draws lie in it."""
        return float(self.value_at_risk[level]) if self.supported[level] else None

    def tail_mean(self, level: int) -> float | None:
        """The mean of the tail, None where too few draws lie in it."""
        return float(self.cvar[level]) if self.supported[level] else None

    def measure(self, asked: str | Measure) -> float | None:
        """A measure, None where too few draws decide it."""
        return self.returns.measure_if_supported(asked)


def _central_range(returns: ReturnDistribution) -> tuple[float, float]:
    low, high = risk.quantile(returns.samples[:, 0], [CUT, 1 - CUT], returns.weights)
    return float(low), float(high)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least `least`."""
    power = math.floor(math.log10(least))
    for factor in (1, 2, 5):
        # From text, so that 0.002 is the float nearest to it.
        step = float(f"{factor}e{power}")
        if step >= least:
            return step
    return float(f"1e{power + 1}")


def _histogram(returns: ReturnDistribution, axis: Axis) -> tuple[FloatArray, FloatArray]:
    """Heights over bins of the axis, merged until small samples look calm (Rice's rule)."""
    edges = axis.edges
    low, high = _central_range(returns)
    share = min(1.0, (high - low) / (edges[-1] - edges[0]))
    wanted = max(5.0, 2 * returns.effective_size ** (1 / 3))
    merge = next(factor for factor in COARSER if share * BINS / factor <= wanted or factor == 60)
    edges = edges[::merge]
    weights = returns.weights
    masses = np.histogram(returns.samples[:, 0], edges, weights=weights)[0]
    total = len(returns.samples) if weights is None else weights.sum()
    return edges, masses / (total * np.diff(edges))


@dataclass(frozen=True)
class Extras:
    """What an evaluation does not know itself, each part optional.

    warnings: further reservations.
    intervals: of a headline figure, by return name and measure: "mean", "cvar:0.1" or "loss".
    """

    warnings: tuple[str, ...] = ()
    intervals: Mapping[tuple[str, str], Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class Coordinate:
    """One return under the target policy, beside the logged one and the true one.

    checks: by measure, what doubly robust estimation says.
    """

    name: str
    style: NumberStyle
    axis: Axis
    estimate: Panel
    behaviour: Panel | None
    truth: Panel | None
    intervals: Mapping[str, Interval]
    checks: Mapping[str, Check] = field(default_factory=dict)


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
    replicates: rows of the estimate and then of every replicate, where there are any.
    comparisons: empty without truth. command: a shell command or Python lines.
    usable: whether there is a headline. looked_at: what could be wrong, and what was found.
    """

    title: str
    problem: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    usable: bool
    verdict: Verdict
    looked_at: tuple[tuple[str, str], ...]
    coordinates: tuple[Coordinate, ...]
    behaviour_remark: str | None
    comparisons: tuple[TruthDistance, ...]
    truth_size: int
    joints: tuple[Joint, ...]
    draws: FloatArray | None
    episodes: FloatArray | None
    replicates: tuple[FloatArray, ...]
    has_density: bool
    discounted: bool
    stages: tuple[StageRecord, ...]
    data_lines: tuple[str, ...]
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    command: str
    interval_words: str | None = None
    second_opinions: SecondOpinions | None = None
    quick: bool = False


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
    estimate, seen = evaluation.returns, tuple(looked_at(evaluation))
    true_returns = None if truth is None else checked_truth(truth, estimate.names)
    logged = evaluation.logged
    if data is not None:
        logged = LoggedData.of(data, evaluation.gamma, evaluation.horizon)
    earned = None
    if logged.comparable is not None:
        earned = ReturnDistribution.from_samples(logged.comparable, estimate.names)
    intervals = _headline_intervals(estimate) | _checked(extras.intervals, estimate.names)
    coordinates = coordinates_of(estimate, earned, true_returns, intervals, _checks(evaluation))
    covered = evaluation.coverage
    warnings = [
        *(() if covered is None else covered.warnings),
        *evaluation.warnings,
        *(() if data is None else data.warnings),
        *extras.warnings,
    ]
    arguments = _arguments(evaluation.provenance, evaluation.model, evaluation.horizon)
    several = estimate.dim > 1
    episodes = earned if several else None
    return Contents(
        title=title or "Return of the target policy",
        problem=evaluation.problem.in_words(),
        warnings=tuple(dict.fromkeys(warnings)),
        notes=tuple(dict.fromkeys(evaluation.notes)),
        usable=evaluation.verdict.level != "do not use",
        verdict=evaluation.verdict,
        looked_at=seen,
        coordinates=coordinates,
        behaviour_remark=_sentence(logged.remark),
        comparisons=() if true_returns is None else distances_to_truth(estimate, true_returns),
        truth_size=0 if true_returns is None else len(true_returns.samples),
        joints=joints_of(coordinates, estimate, earned) if several else (),
        draws=_page_rows(coordinates, estimate, PAGE_DRAWS) if several else None,
        episodes=None if episodes is None else _page_rows(coordinates, episodes, PAGE_EPISODES),
        replicates=_replicate_rows(coordinates, estimate) if several else (),
        has_density=estimate.log_density is not None,
        discounted=evaluation.horizon is None,
        stages=evaluation.records,
        data_lines=_data_lines(logged, warnings, evaluation.notes),
        settings=_settings(arguments, evaluation.records, evaluation.provenance),
        versions=dict(sorted(evaluation.provenance.versions.items())),
        command=command or _python_lines(arguments),
        interval_words=None
        if evaluation.intervals is None
        else f"{evaluation.intervals.in_words()}.",
        second_opinions=evaluation.second_opinions,
        quick=evaluation.quick,
    )


def _checks(evaluation: Evaluation) -> dict[str, dict[str, Check]]:
    """By return and measure, at the level of the intervals."""
    opinions, refits = evaluation.second_opinions, evaluation.refits
    if opinions is None:
        return {}
    level = () if refits is None else (refits.level,)
    return {name: opinions.checks(name, *level) for name in evaluation.return_names}


def _sentence(words: str | None) -> str | None:
    return None if words is None else f"{words[:1].upper()}{words[1:]}."


def checked_truth(
    truth: ArrayLike | ReturnDistribution, names: tuple[str, ...]
) -> ReturnDistribution:
    """The true return, with as many coordinates as the estimate has."""
    if not isinstance(truth, ReturnDistribution):
        truth = ReturnDistribution.from_samples(truth)
    if truth.dim != len(names):
        raise SettingsError(
            f"truth: expected {len(names)} columns, for {', '.join(names)}, got {truth.dim}"
        )
    return truth


def _checked(
    intervals: Mapping[tuple[str, str], Interval], names: tuple[str, ...]
) -> dict[tuple[str, str], Interval]:
    for name, measure in intervals:
        if name not in names or measure not in HEADLINE:
            raise SettingsError(
                f"intervals: expected a return of {', '.join(names)} and a measure of "
                f"{', '.join(HEADLINE)}, got {(name, measure)}"
            )
    return dict(intervals)


def _headline_intervals(estimate: ReturnDistribution) -> dict[tuple[str, str], Interval]:
    """What the evaluation itself knows of them."""
    if estimate.replicates is None:
        return {}
    return {
        (name, text): estimate.marginal(name).interval(text).ends
        for name in estimate.names
        for text in HEADLINE
    }


def coordinates_of(
    estimate: ReturnDistribution,
    earned: ReturnDistribution | None,
    truth: ReturnDistribution | None,
    intervals: Mapping[tuple[str, str], Interval] | None = None,
    checks: Mapping[str, Mapping[str, Check]] | None = None,
) -> tuple[Coordinate, ...]:
    """One for each coordinate of the return."""
    coordinates = []
    for i, name in enumerate(estimate.names):
        own = estimate.marginal(i)
        others = [None if whole is None else whole.marginal(i) for whole in (earned, truth)]
        axis = Axis.around(own, [one for one in others if one is not None])
        behaviour, true_panel = (None if one is None else Panel.of(one, axis) for one in others)
        ends = {measure: pair for (of, measure), pair in (intervals or {}).items() if of == name}
        style = NumberStyle.of(float(own.mean()), float(own.std()))
        # "reward" is what a reward without a name is called; what is shown is its return.
        shown = "return" if estimate.names == ("reward",) else name
        checked = (checks or {}).get(name, {})
        panel = Panel.of(own, axis)
        coordinates.append(
            Coordinate(shown, style, axis, panel, behaviour, true_panel, ends, checked)
        )
    return tuple(coordinates)


def joints_of(
    coordinates: tuple[Coordinate, ...],
    estimate: ReturnDistribution,
    earned: ReturnDistribution | None,
) -> tuple[Joint, ...]:
    """One for each pair of coordinates, as far as they are few."""
    joints = []
    rows, weights = estimate.samples, estimate.weights
    logged = np.empty((0, estimate.dim)) if earned is None else earned.some_draws(JOINT_EPISODES)
    for x, y in list(combinations(range(len(coordinates)), 2))[:MOST_PAIRS]:
        x_edges, y_edges = (
            np.linspace(edges[0], edges[-1], JOINT_BINS + 1)
            for edges in (coordinates[i].axis.edges for i in (x, y))
        )
        masses = np.histogram2d(rows[:, y], rows[:, x], (y_edges, x_edges), weights=weights)[0]
        total = len(rows) if weights is None else weights.sum()
        joints.append(Joint(x, y, x_edges, y_edges, masses / total, logged[:, [x, y]]))
    return tuple(joints)


def _page_rows(
    coordinates: tuple[Coordinate, ...], returns: ReturnDistribution, most: int
) -> FloatArray:
    chosen = returns.some_draws(most)
    columns = [c.style.rounded(chosen[:, i]) for i, c in enumerate(coordinates)]
    return np.stack(columns, axis=1)


def _replicate_rows(
    coordinates: tuple[Coordinate, ...], estimate: ReturnDistribution
) -> tuple[FloatArray, ...]:
    """Of the estimate and its replicates, by the same random numbers."""
    if estimate.replicates is None:
        return ()
    laws = (estimate, *estimate.replicates.laws)
    return tuple(_page_rows(coordinates, law, INTERVAL_DRAWS) for law in laws)


def _data_lines(logged: LoggedData, warnings: list[str], notes: tuple[str, ...]) -> tuple[str, ...]:
    """Lines of the summary that the page does not show elsewhere."""
    shown = {f"warning: {text}" for text in warnings} | {f"note: {text}" for text in notes}
    return tuple(line for line in logged.summary.splitlines() if line not in shown)


def _settings(
    arguments: Mapping[str, str], records: Sequence[StageRecord], provenance: Provenance
) -> dict[str, str]:
    """All settings of the run, then what it took and what it was made from."""
    seconds = sum(record.seconds for record in records)
    return {
        **{name.replace("_", " "): text for name, text in arguments.items()},
        "training time": f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s",
        "data (sha256)": provenance.data[:16],
        "policy (sha256)": provenance.policy[:16],
    }


def _arguments(provenance: Provenance, model: Any, horizon: int | None) -> dict[str, str]:
    """What `fle.evaluate` was called with, defaults filled in, each as Python."""
    settings = provenance.settings
    given = {name: repr(settings[name]) for name in sorted(settings) if settings[name] is not None}
    if horizon is not None:
        # A horizon says how many stages there are.
        given.pop("stages", None)
    if "interval" in settings:
        given["interval"] = f"fle.{IntervalSettings(**settings['interval'])!r}"
    ours = type(model).__module__.startswith("fle.")
    return given | {
        "model": ("fle." if ours else "") + repr(model),
        "recipe": f"fle.{Recipe(**settings['recipe'])!r}",
        "seed": repr(provenance.seed),
    }


def _python_lines(arguments: Mapping[str, str]) -> str:
    """The call that gives the same result from the same data and policy."""
    written = "".join(f"    {name}={text},\n" for name, text in arguments.items())
    return (
        "import fle\n\n"
        "# data: the logged transitions; policy: the target policy\n"
        f"result = fle.evaluate(\n    data,\n    policy,\n{written})\n"
        'result.report("report.html")'
    )
