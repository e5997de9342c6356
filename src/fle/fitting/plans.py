"""A plan: an evaluation before it is trained, what it will take, and how it is carried out."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fle.data import Dataset
from fle.data.passes import require_memory
from fle.errors import CoverageError, FLEError, FLEWarning
from fle.fitting.behaviour import LoggingPolicy
from fle.fitting.checkpoints import Resume
from fle.fitting.encoding import Encoder, Fitted
from fle.fitting.evaluation import Evaluation, LoggedData, Provenance
from fle.fitting.following import Trail
from fle.fitting.large_logs import Feeding, LargeLog
from fle.fitting.loop import Finished, Keeper, Loop, NothingKept
from fle.fitting.measurement import Visits, bellman_errors
from fle.fitting.occupancy import Occupancy
from fle.fitting.problem import Problem, Stage
from fle.fitting.remarks import unsettled
from fle.fitting.replicates import NoRefitKept, RefitKeeper, Resampling, replicates
from fle.fitting.runs import Growth, begin_run
from fle.fitting.targets import LINE_BLOCK, MOST_CANDIDATES, TABLE_NUMBERS
from fle.models.law import Sizes
from fle.models.objectives import POOL, GradientObjective
from fle.models.specs import ModelSpec, as_plain
from fle.policies import ActionTable, TabulatedPolicy
from fle.policies.answers import Answers
from fle.recipe import Resolved
from fle.returns.intervals import Interval
from fle.screen import Progress, Silent, Tabular, default_progress, doing, html_lines

First = Callable[[Evaluation], None]
# A training step takes about this many times its bare matrix products (`benchmarks/step_time.py`),
# and a fit this many seconds to compile.
STEP_OVER_PRODUCTS, COMPILATION = 3.0, 6.0
SIDE, REPETITIONS = 64, 200
# Products that take as long as what the optimiser does with one parameter.
PASSES = 30
# Bytes that JAX and what it compiles take.
RUNTIME = 300 * 2**20
# How often parameters lie in memory: while a stage is trained (the law, its gradient, average and
# moments, and what is worked out between them), and of every fit that is kept.
WHILE_TRAINED, WHILE_KEPT = 20, 3
# What the networks have at hand of a line, as a multiple of their layers.
AT_HAND = 2
# Numbers of a row that tell how far the log is followed.
LINES = 6
# Bytes of a row, and of each of its candidates, while a plan is made (`benchmarks/many_rows.py`).
PLANNED, PLANNED_A_CANDIDATE = 120, 32


@dataclass(frozen=True, eq=False)
class Plan(Tabular):
    """An evaluation before it is trained: all that is decided, and why.

    problem: which return. target: the policy, asked once, and how well the data covers it.
    model, recipe: what is fitted, and how, with every setting chosen.
    stages: the rows and discount of each fit. data: the rows that are used.
    logging: the policy that logged the data, where the plan had a use for it.
    occupancy: where the policy goes, as the log tells it; None where it is the log's own.
    interval: which intervals the evaluation gets; None where none were asked for, or can be.
    second_opinions: whether other estimators are asked too.
    calibration: whether held-out episodes of the logging policy are predicted.
    warm: fits of an earlier run that training begins with. growth: what changed since then.
    notes, warnings: what was decided for the user, and what they should know.
    withheld: why no headline number can be given; None where it can.
    large: the log of which `data` are some rows, where it is too large to be held at once.

    Example: `planned = fle.plan(data, policy, gamma=0.99)`, `result = planned.carry_out()`.
    """

    problem: Problem
    data: Dataset
    target: TabulatedPolicy
    model: ModelSpec
    recipe: Resolved
    encoder: Encoder
    following: ActionTable
    trail: Trail
    weights: np.ndarray | None
    stages: tuple[Stage, ...]
    initial_inputs: np.ndarray
    initial_weights: np.ndarray
    initial_starts: np.ndarray
    probe: np.ndarray
    logged: LoggedData
    provenance: Provenance
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    logging: LoggingPolicy | None = None
    occupancy: Occupancy | None = None
    interval: Interval | None = None
    second_opinions: bool = True
    calibration: bool = False
    warm: tuple[Fitted, ...] = ()
    growth: Growth | None = None
    large: LargeLog | None = None

    @property
    def withheld(self) -> str | None:
        """Why no headline number can be given: the data hardly shows what the policy does."""
        return None if self.target.enough else self.target.in_words()

    @property
    def is_trained(self) -> bool:
        """Whether stages are trained, on some of their rows, and not solved at once on all."""
        return isinstance(self.model.fitted_by(self.recipe), GradientObjective)

    @property
    def is_one_fit(self) -> bool:
        """Whether the fit is the same for every policy: of what one step earns."""
        return self.problem.horizon == 1

    @cached_property
    def cost(self) -> "Cost":
        """What training will take, roughly, on this machine."""
        return expected_cost(
            self.model,
            self.recipe,
            self.encoder.sizes,
            stages=len(self.stages),
            kept=self.problem.kept,
            rows=len(self.data),
            candidates=self.following.candidates,
        )

    def carry_out(
        self,
        *,
        anyway: bool = False,
        progress: Progress | None = None,
        out: str | os.PathLike[str] | None = None,
        resume: Resume = "latest",
        known: Evaluation | None = None,
        first: First | None = None,
    ) -> Evaluation:
        """Train all stages; see `evaluate` for the arguments.

        known: an evaluation of another policy whose fit is this one's too (see `is_one_fit`).
        first: told of the evaluation as soon as it is fitted, where its intervals take longer.
        """
        if self.withheld is not None and not anyway:
            raise CoverageError(
                f"No estimate: {self.withheld}. What the policy would earn could only be "
                "extrapolated. Log data closer to the policy, or see the extrapolation with "
                "anyway=True."
            )
        self.cost.require_memory()
        if out is None:
            keeper: Keeper = Finished(known) if known else NothingKept()
            return fitted(self, keeper, NoRefitKept(), progress, known, anyway, first)
        with begin_run(out, self.provenance, self.model, resume) as run:
            if run.finished:
                found = run.result(self.model)
                # What was said of the fit is said again; of the plan it was said already.
                for remark in found.warnings:
                    if remark not in self.warnings:
                        warnings.warn(remark, FLEWarning, stacklevel=2)
                return found.anyway() if anyway else found
            for remark in run.remarks:
                warnings.warn(remark, FLEWarning, stacklevel=2)
            planned = replace(self, warnings=(*self.warnings, *run.remarks))
            keeper = Finished(known) if known else run.checkpoints
            evaluation = fitted(planned, keeper, run.checkpoints, progress, known, anyway, first)
            run.finish(evaluation)
        return evaluation

    def without_interval(self) -> "Plan":
        """The same with the same fits, and no intervals: what its replicates go on from."""
        settings = {n: v for n, v in self.provenance.settings.items() if n != "interval"}
        return replace(self, interval=None, provenance=replace(self.provenance, settings=settings))

    def train(self, out: str | os.PathLike[str]) -> None:
        """Train all stages, and nothing else: the run directory goes on from there."""
        self.cost.require_memory()
        with begin_run(out, self.provenance, self.model, "latest") as run:
            self.loop().run(run.checkpoints, Silent())

    def loop(self) -> Loop:
        """The loop that carries it out."""
        room = None if self.large is None else self.large.size
        return Loop(
            spec=self.model,
            recipe=self.recipe,
            encoder=self.encoder,
            rows=self.encoder.rows(self.data, self.following, self.trail, room=room),
            feeding=self._feeding(),
            trail=self.trail,
            weights=self.weights,
            stages=self.stages,
            probe=self.probe,
            kept=self.problem.kept,
            finite=self.problem.horizon is not None,
            seed=self.provenance.seed,
            warm=self.warm,
        )

    def _feeding(self) -> Feeding | None:
        """What stages are trained on, of a log that is too large to be held at once."""
        if self.large is None or not self.is_trained:
            return None
        draws, seed = self.provenance.settings["action_draws"], self.provenance.seed
        used = self.occupancy is not None and self.weights is self.occupancy.weights
        return Feeding(
            log=self.large,
            window=self.data,
            policy=self.target.asked,
            trail=self.trail,
            trace=self.recipe.trace,
            logging=self.logging if self.logging is not None and self.logging.reliable else None,
            occupancy=self.occupancy if used else None,
            encoder=self.encoder,
            answers=Answers.of(self.large.data, self.target.fingerprint, draws, seed),
            uses=self.recipe.steps * self.recipe.batch_size,
            most_rows=max(stage.rows.size for stage in self.stages),
        )

    def as_plain(self) -> dict[str, Any]:
        """The plan for machines: all that is decided, without the arrays."""
        return {
            "problem": asdict(self.problem),
            "coverage": self.target.as_plain(),
            "model": self.model.as_plain(),
            "recipe": {name: as_plain(value) for name, value in asdict(self.recipe).items()},
            "stages": len(self.stages),
            "cost": self.cost._asdict(),
            "interval": None if self.interval is None else asdict(self.interval),
            "second_opinions": self.second_opinions,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "withheld": self.withheld,
        }

    def rows(self) -> list[tuple[str, str]]:
        """The plan as names and texts, for a terminal and a page."""
        chosen = asdict(self.recipe).items()
        training = ", ".join(f"{name} {_short(value)}" for name, value in chosen)
        lines = [
            ("problem", self.problem.in_words()),
            ("data", repr(self.data)),
            ("policy", self.target.in_words()),
            ("model", repr(self.model)),
            ("stages", _stage_words(self.stages)),
            ("recipe", training),
            ("cost", self.cost.in_words()),
        ]
        if self.interval is not None:
            lines.append(("interval", self.interval.in_words()))
        lines += [("note", note) for note in self.notes]
        lines += [("warning", warning) for warning in self.warnings]
        if self.withheld is not None:
            lines.append(("withheld", f"no headline number: {self.withheld}"))
        return lines

    def __repr__(self) -> str:
        return "\n".join(["Plan", *(f"  {name:<8}  {text}" for name, text in self.rows())])

    def columns(self) -> dict[str, list[str]]:
        """The same as a table."""
        names, texts = zip(*self.rows(), strict=True)
        return {"name": list(names), "text": list(texts)}

    def _repr_html_(self) -> str:
        return html_lines("Plan of an evaluation", self.rows())


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _stage_words(stages: tuple[Stage, ...]) -> str:
    sizes = [stage.rows.size for stage in stages]
    rows = f"{sizes[0]:,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return (
        f"{len(stages):,}, each fitted to {rows} rows and measured on {stages[0].held_out.size:,} "
        "held-out ones"
    )


def fitted(
    planned: Plan,
    keeper: Keeper,
    refit_keeper: RefitKeeper,
    progress: Progress | None,
    known: Evaluation | None,
    anyway: bool,
    first: First | None,
) -> Evaluation:
    """The evaluation of a plan, with all that was asked beside its fits."""
    loop = planned.loop()
    progress = progress or default_progress()
    state = loop.run(keeper, progress)
    reservations = state.warnings
    if planned.problem.horizon is None:
        reservations += unsettled(state.records)
    for remark in reservations:
        warnings.warn(remark, FLEWarning, stacklevel=2)
    evaluation = Evaluation(
        problem=planned.problem,
        model=planned.model,
        recipe=planned.recipe,
        records=state.records,
        notes=(*planned.notes, *state.notes),
        warnings=(*planned.warnings, *reservations),
        return_names=planned.data.reward_names,
        encoder=planned.encoder,
        fits=state.fits,
        initial_inputs=planned.initial_inputs,
        initial_weights=planned.initial_weights,
        logged=planned.logged,
        coverage=planned.target.coverage,
        provenance=planned.provenance,
        visits=None if planned.occupancy is None else Visits.of(planned.data, planned.occupancy),
        bellman=bellman_errors(planned, state.fits, planned.is_trained),
        released=True,
    )

    if planned.calibration:
        evaluation = with_calibration(planned, evaluation)
    evaluation = with_opinions(planned, evaluation)
    if planned.interval is not None:
        if first is not None:
            first(replace(evaluation, released=anyway))
        resampling = Resampling.of(planned.data)
        shared = None if known is None else known.refits
        fits = replicates(loop, state, resampling, planned.interval, refit_keeper, progress, shared)
        refits = fits.starting_from(resampling, planned.initial_starts)
        evaluation = with_opinions(planned, replace(evaluation, refits=refits))
    said = len(planned.warnings) + len(reservations)
    for remark in evaluation.warnings[said:]:
        warnings.warn(remark, FLEWarning, stacklevel=2)
    evaluation = replace(evaluation, released=anyway)
    if planned.growth is None:
        return evaluation
    return replace(evaluation, notes=(*evaluation.notes, *planned.growth.moved(evaluation)))


def with_opinions(planned: Plan, evaluation: Evaluation) -> Evaluation:
    """The same beside second opinions, if they are wanted."""
    return with_second_opinions(planned, evaluation) if planned.second_opinions else evaluation


def with_second_opinions(planned: Plan, evaluation: Evaluation) -> Evaluation:
    """An evaluation beside what other estimators say, and what to say where they disagree.

    One that has opinions already gets those again that its refits change.
    """
    from fle.baselines.second_opinions import memory_of_opinions, second_opinions_of

    before, notes = evaluation.second_opinions, evaluation.notes
    try:
        require_memory(memory_of_opinions(planned), "Second opinions", len(planned.data))
    except FLEError as refusal:
        told = f"no second opinions: {refusal}"
        return evaluation if told in notes else replace(evaluation, notes=(*notes, told))
    with doing("asking for second opinions"):
        opinions = second_opinions_of(planned, evaluation)
    gone = () if before is None else before.warnings
    kept = [remark for remark in evaluation.warnings if remark not in gone]
    return replace(evaluation, second_opinions=opinions, warnings=(*kept, *opinions.warnings))


def with_calibration(planned: Plan, evaluation: Evaluation) -> Evaluation:
    """An evaluation beside predictions of held-out episodes, or why there can be none."""
    from fle.baselines.critics import calibration_of

    try:
        found = calibration_of(planned)
    except FLEError as refusal:
        return replace(evaluation, notes=(*evaluation.notes, f"no calibration: {refusal}"))
    return replace(evaluation, calibration=found)


class Cost(NamedTuple):
    """What training takes: optimiser steps, times that a row is used, and guesses of the rest.

    seconds: on this machine, with a core to itself. memory: bytes beside the data itself. rows: of
    the data.
    """

    steps: int
    row_uses: int
    seconds: float
    memory: int
    rows: int

    def in_words(self) -> str:
        """In one line."""
        return (
            f"{self.steps:,} optimiser steps, {self.row_uses:,} uses of a row, about "
            f"{self.seconds:,.0f} s on this machine with a core to itself, and "
            f"{self.memory / 2**30:.2g} GiB of memory"
        )

    def require_memory(self) -> None:
        """Refuse a fit that does not fit in memory, before anything of it is allocated."""
        require_memory(self.memory, "The fit", self.rows)


def expected_cost(
    spec: ModelSpec,
    recipe: Resolved,
    sizes: Sizes,
    *,
    stages: int,
    kept: int,
    rows: int,
    candidates: int,
) -> Cost:
    """From the widths of the networks and the speed of a matrix product here.

    A step has two products backward for one forward, and one at the next inputs; what is looked up
    costs the optimiser alone, which goes over all parameters.

    kept: fits that the result needs. candidates: actions of a row that the policy may take.
    """
    steps = recipe.steps * stages
    uses = steps * recipe.batch_size
    widths = _widths(spec, sizes)
    # A table is made where its lines are used often enough, and where they ask several fits.
    worth = rows * candidates <= recipe.steps * recipe.batch_size * min(candidates, recipe.draws)
    tabulated = worth or kept > 1
    memory = _memory(sizes, widths, kept, rows, candidates, tabulated=tabulated)
    if not widths:
        return Cost(0, stages * rows, COMPILATION, memory, rows)
    looked_up = sum(number - 1 for _, number in sizes.codes) * widths[1]
    products = 2.0 * 4 * (_entries(widths) - looked_up) * uses
    passes = 2.0 * PASSES * looked_up * steps
    seconds = COMPILATION + STEP_OVER_PRODUCTS * (products + passes) / _speed()
    return Cost(steps, uses, seconds, memory, rows)


def planned_memory(rows: int, candidates: int) -> int:
    """Bytes that making a plan takes beside the data and the table of what the policy does.

    With candidates: what the logging policy does, and the coupling of both. Without: the chance to
    follow the log, rewards, weights, and orders of rows.
    """
    return rows * (PLANNED + PLANNED_A_CANDIDATE * candidates)


def _memory(
    sizes: Sizes, widths: list[int], kept: int, rows: int, candidates: int, *, tabulated: bool
) -> int:
    """Rows with their candidates, the tables that are prepared from them, and the parameters."""
    observation = 1 if sizes.discrete_observations else sizes.observation
    action = 1 if sizes.discrete_actions else sizes.action
    stored = 2 * observation + action + sizes.returns + candidates * (action + 1)
    # How far the log is followed, and what it earned there, in float64.
    stored += 2 * (LINES + sizes.returns)
    if not widths:
        # A fit that is computed at once has all rows before it.
        return RUNTIME + 4 * rows * (2 * stored + (1 + candidates) * sizes.inputs)
    # What every network sees: numbers that have products in the trend, and codes.
    numbers = sizes.inputs - len(sizes.codes)
    parameters = _entries(widths) + numbers**2 * sizes.returns
    line = sizes.inputs + min(candidates, MOST_CANDIDATES) * widths[-1]
    table = min(rows * line, max(TABLE_NUMBERS, rows * (sizes.inputs + POOL)))
    layers = AT_HAND * min(LINE_BLOCK, rows) * candidates * (sizes.inputs + sum(widths[1:]))
    copies = WHILE_TRAINED + WHILE_KEPT * kept
    tables = 2 * table if tabulated else 0
    return RUNTIME + 4 * (rows * stored + tables + layers + copies * parameters)


def _entries(widths: list[int]) -> int:
    return sum(a * b for a, b in pairwise(widths))


def _widths(spec: ModelSpec, sizes: Sizes) -> list[int]:
    """Of the layers of a network, where the model says them; else none."""
    values = spec.values()
    # No hidden layers at all are a network too.
    hidden = values.get("hidden", values.get("context"))
    if hidden is None:
        return []
    layers = (hidden, hidden) if isinstance(hidden, int) else tuple(hidden)
    outputs = 1
    for name, factor in (("components", 3), ("bins", 1), ("atoms", 1), ("quantiles", 1)):
        outputs = max(outputs, factor * (values.get(name) or 1) * sizes.returns)
    return [sizes.features, *layers, outputs]


@cache
def _speed() -> float:
    """Operations a second of matrix products of a step's size, which one core does alone."""
    left = np.ones((SIDE, SIDE), np.float32)
    best = np.inf
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        left @ left
        best = min(best, time.perf_counter() - began)
    return 2 * SIDE**3 / max(best, 1e-9)
