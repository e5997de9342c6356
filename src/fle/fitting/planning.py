"""`fle.plan` and `fle.evaluate`: everything resolved before training, and the plan carried out."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fle.data import Dataset
from fle.data.passes import require_memory
from fle.errors import CoverageError, FLEError, FLEWarning, SettingsError
from fle.executors import Executor
from fle.fitting.behaviour import LoggingPolicy, logging_policy
from fle.fitting.bellman import bellman_errors
from fle.fitting.checkpoints import Resume
from fle.fitting.compiled import keep_compiled
from fle.fitting.encoding import Encoder, Fitted
from fle.fitting.evaluation import Evaluation, LoggedData, Provenance, current_versions
from fle.fitting.following import (
    Coupling,
    Trail,
    discrete_coupling,
    linked_rows,
    normal_coupling,
)
from fle.fitting.growth import (
    Earlier,
    Growth,
    continued_encoder,
    going_on_from,
    inherited,
)
from fle.fitting.large_logs import Feeding, LargeLog
from fle.fitting.loop import Finished, Keeper, Loop, NothingKept
from fle.fitting.occupancy import Occupancy, occupancy
from fle.fitting.problem import (
    Problem,
    RowUse,
    Stage,
    checked_gamma,
    chosen_stages,
    require_dataset,
    stages_of,
)
from fle.fitting.progress import (
    Cost,
    Progress,
    Silent,
    default_progress,
    expected_cost,
    planned_memory,
)
from fle.fitting.remarks import data_remarks, ends_at, unsettled
from fle.fitting.replicates import NoRefitKept, RefitKeeper, Resampling, replicates
from fle.fitting.runs import begin_run
from fle.fitting.sampling import SAMPLE_BLOCK, Purpose, Randomness
from fle.fitting.structure import explained_by_polynomial
from fle.fitting.supports import return_limits
from fle.fitting.visits import Visits
from fle.models.objectives import GradientObjective
from fle.models.specs import ModelSpec, as_plain, family
from fle.models.support import lattice_of
from fle.notebook import Tabular, html_lines
from fle.policies import ActionTable, Policy, TabulatedPolicy, settle, tabulated
from fle.policies.answers import by_action
from fle.policies.kept_answers import Answers
from fle.recipe import (
    FIRST_LOOK,
    NEGLIGIBLE,
    ONE_FIT,
    QUICK_LEFT,
    Recipe,
    Resolved,
    first_look,
    resolve,
    usual,
)
from fle.returns.intervals import Interval
from fle.screen import doing

# Below this many rows the networks of an autoregressive model have too little to learn from.
ROWS_FOR_AUTOREGRESSION = 5_000
# Up to as many possible returns, each gets a probability of its own [0030].
MOST_POINTS = 151
ROW_USES = ("all", "step", "split")
# Fewer rows tell too little of what was logged with which probability; more actions take too much
# memory.
ROWS_FOR_COUPLING, MOST_COUPLED = 10_000, 32
# Standard deviations of rewards from which on their mean is taken out: float32 has seven digits.
LARGE_OFFSET = 100.0


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
    def cost(self) -> Cost:
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
    ) -> Evaluation:
        """Train all stages; see `evaluate` for the arguments.

        known: an evaluation of another policy whose fit is this one's too (see `is_one_fit`).
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
            return self._fitted(keeper, NoRefitKept(), progress, known, anyway)
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
            evaluation = planned._fitted(keeper, run.checkpoints, progress, known, anyway)
            run.finish(evaluation)
        return evaluation

    def _fitted(
        self,
        keeper: Keeper,
        refit_keeper: RefitKeeper,
        progress: Progress | None,
        known: Evaluation | None,
        anyway: bool,
    ) -> Evaluation:
        loop = self.loop()
        progress = progress or default_progress()
        state = loop.run(keeper, progress)
        refits = None
        if self.interval is not None:
            resampling = Resampling.of(self.data)
            shared = None if known is None else known.refits
            fits = replicates(
                loop, state, resampling, self.interval, refit_keeper, progress, shared
            )
            refits = fits.starting_from(resampling, self.initial_starts)
        reservations = state.warnings
        if self.problem.horizon is None:
            reservations += unsettled(state.records)
        for remark in reservations:
            warnings.warn(remark, FLEWarning, stacklevel=2)
        evaluation = Evaluation(
            problem=self.problem,
            model=self.model,
            recipe=self.recipe,
            records=state.records,
            notes=(*self.notes, *state.notes),
            warnings=(*self.warnings, *reservations),
            return_names=self.data.reward_names,
            encoder=self.encoder,
            fits=state.fits,
            initial_inputs=self.initial_inputs,
            initial_weights=self.initial_weights,
            logged=self.logged,
            coverage=self.target.coverage,
            provenance=self.provenance,
            refits=refits,
            visits=None if self.occupancy is None else Visits.of(self.data, self.occupancy),
            bellman=bellman_errors(self, state.fits, self.is_trained),
            released=True,
        )
        if self.second_opinions:
            evaluation = with_second_opinions(self, evaluation)
        if self.calibration:
            evaluation = with_calibration(self, evaluation)
        evaluation = replace(evaluation, released=anyway)
        if self.growth is None:
            return evaluation
        return replace(evaluation, notes=(*evaluation.notes, *self.growth.moved(evaluation)))

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


def plan(
    data: Dataset,
    policy: Policy,
    *,
    gamma: float | None = None,
    horizon: int | None = None,
    model: str | ModelSpec = "auto",
    rows: RowUse | None = None,
    stages: int | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    action_draws: int = 16,
    seed: int = 0,
    interval: Interval | Mapping[str, Any] | float | None = None,
    second_opinions: bool = True,
    calibration: bool = False,
    quick: bool = False,
    earlier: Earlier = None,
) -> Plan:
    """Resolve everything about an evaluation without training: what would be done, and why.

    Args:
        data: the logged transitions.
        policy: any function from observations to probabilities or actions; asked here alone.
        gamma: discount factor. Without a horizon it must be below 1.
        horizon: number of steps; the return is then undiscounted unless gamma is given too.
        model: "auto", which chooses by the data; a name of `fle.models.names()`; or
            hyperparameters such as `GMM(components=20)`.
        rows: "all" lets every row serve every stage, "step" uses a row at its own step only, and
            "split" gives each stage rows of its own, as the theory does. Default: "step" if the
            data has step indices and a horizon is given, else "all".
        stages: number of stages of a discounted problem; chosen from gamma and the data if None.
        recipe: settings that differ from the usual, as `Recipe(steps=500)` or `{"steps": 500}`.
        action_draws: actions drawn at every next observation from a policy given as a sampler.
        seed: everything random follows from it; the same seed gives identical results.
        interval: the level of intervals, such as 0.9, or `Interval(0.9, replicates=10)`; None gives
            none. They come from fits to resampled episodes: ten take up to four evaluations.
        second_opinions: whether other estimators are asked too; see `docs/baselines.md`.
        calibration: whether held-out episodes of the logging policy are predicted, by another fit.
        quick: a first look, marked as such: fewer stages and steps, no intervals, no opinions.
        earlier: a run of a shorter log, or its directory, to go on from: its settings and fits.

    Example: `print(fle.plan(data, policy, gamma=0.99))`, then `.carry_out()`.
    """
    planner = Planner.of(
        data,
        gamma=gamma,
        horizon=horizon,
        model=model,
        rows=rows,
        stages=stages,
        recipe=recipe,
        action_draws=action_draws,
        seed=seed,
        interval=interval,
        second_opinions=second_opinions,
        calibration=calibration,
        quick=quick,
        earlier=earlier,
    )
    return planner.plan(policy)


class Shape(NamedTuple):
    """What the programs of several policies have in common, so that they are compiled once.

    stages: of every fit. actions: listed for every row; None leaves them as a policy gives them.
    """

    stages: int
    actions: int | None


@dataclass(frozen=True, eq=False)
class LogFacts:
    """What is worked out once for all policies on one log: as it was given, and the rows used."""

    log: Dataset
    data: Dataset
    gamma: float
    horizon: int | None
    whole: Dataset

    @cached_property
    def logging(self) -> LoggingPolicy:
        """The policy that logged the data."""
        return logging_policy(self.data)

    @cached_property
    def fingerprint(self) -> str:
        """Of the data."""
        return self.whole.fingerprint

    @cached_property
    def logged(self) -> LoggedData:
        """What an evaluation keeps of the log."""
        return LoggedData.of(self.log, self.gamma, self.horizon)


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans for any number of policies on one log; what no policy changes is worked out once.

    log: as it was given, or what stands for a large one. data: the rows that are used. earlier:
    what is gone on from. shape: shared with other policies.

    Example: `planner = Planner.of(data, gamma=0.99); plans = [planner.plan(p) for p in policies]`.
    """

    log: Dataset
    data: Dataset
    question: "Question"
    model: str | ModelSpec
    asked: Recipe
    action_draws: int
    seed: int
    interval: Interval | None
    second_opinions: bool
    unusual: Mapping[str, bool]
    notes: tuple[str, ...]
    facts: LogFacts
    earlier: Evaluation | None = None
    shape: Shape | None = None
    large: LargeLog | None = None

    @classmethod
    def of(
        cls,
        data: Dataset,
        *,
        gamma: float | None = None,
        horizon: int | None = None,
        model: str | ModelSpec = "auto",
        rows: RowUse | None = None,
        stages: int | None = None,
        recipe: Recipe | Mapping[str, Any] | None = None,
        action_draws: int = 16,
        seed: int = 0,
        interval: Interval | Mapping[str, Any] | float | None = None,
        second_opinions: bool = True,
        calibration: bool = False,
        quick: bool = False,
        earlier: Earlier = None,
    ) -> "Planner":
        """With the arguments of `plan`, all but the policy."""
        run, gamma, horizon, model, asked = inherited(
            earlier, gamma, horizon, model, Recipe.of(recipe)
        )
        gamma = checked_gamma(gamma, horizon, stages)
        wanted, opinions = _wanted(interval, second_opinions, quick)
        require_dataset(data)
        large = LargeLog.of(data, data.number_of_actions or action_draws, 0)
        if large is not None and run is not None:
            raise SettingsError(
                f"A log of {len(data):,} rows is too large to be held at once, and is not gone on "
                "with from an earlier run. Leave out `earlier`."
            )
        whole, data = data, data if large is None else large.window
        used, use, notes = _used_rows(data, rows, horizon)
        return cls(
            log=data,
            large=large,
            data=used,
            question=Question(gamma, horizon, use, stages, bool(quick)),
            model=model,
            asked=asked,
            action_draws=action_draws,
            seed=seed,
            interval=wanted,
            second_opinions=opinions,
            unusual=_unusual(second_opinions, calibration, quick),
            notes=tuple(notes),
            facts=LogFacts(data, used, gamma, horizon, whole),
            earlier=run,
        )

    def plan(self, policy: Policy) -> Plan:
        """The plan of one policy, which is asked here."""
        return self.planned(self.ask(policy))

    def ask(self, policy: Policy) -> TabulatedPolicy:
        """What a policy does at the rows that are used."""
        if self.large is None:
            return _asked(policy, self.log, self.data, self.action_draws, self.seed)
        self.large.require_askable(policy)
        target = _asked(policy, self.log, self.data, self.action_draws, self.seed)
        return replace(target, asked=policy)

    def planned(self, target: TabulatedPolicy) -> Plan:
        """The plan of a policy that was asked."""
        with doing("planning"):
            decisions = _decisions(self, target)
            settings = decisions.as_plain() | {"action_draws": as_plain(self.action_draws)}
            settings |= self.unusual
            prints = self.facts.fingerprint, target.fingerprint
            provenance = Provenance(*prints, int(self.seed), settings, current_versions())
            wanted = self.interval, self.second_opinions
            planned = _plan_of(decisions, target, self.facts.logged, provenance, *wanted)
            if self.large is not None:
                notes = (*planned.notes, self.large.in_words(planned.is_trained))
                planned = replace(planned, large=self.large, notes=notes)
            planned = going_on_from(self.earlier, planned) if self.earlier else planned
        for remark in planned.warnings[len(self.log.warnings) :]:
            warnings.warn(remark, FLEWarning, stacklevel=3)
        return planned

    def survey(self) -> "Planner":
        """Of plans that are looked at and not carried out: without what training alone needs."""
        return replace(self, asked=replace(self.asked, occupancy=False))

    def sharing(self, stages: int) -> "Planner":
        """Of plans with as many stages, and as many actions a row where they are few."""
        actions = self.data.number_of_actions
        listed = actions if actions is not None and actions <= MOST_COUPLED else None
        return replace(self, shape=Shape(stages, listed))


def _decisions(planner: Planner, target: TabulatedPolicy) -> "Decisions":
    """What is decided, if there is memory for it."""
    used, notes = planner.data, list(planner.notes)
    needed = planned_memory(len(used), target.following.candidates)
    require_memory(needed, "The plan", len(used))
    spec, why = _chosen_model(planner.model, used, planner.question)
    if planner.model == "auto":
        why += _suggested(used, planner.question, target)
    return _decide(planner, target, spec, notes + why)


def _suggested(data: Dataset, question: "Question", target: TabulatedPolicy) -> list[str]:
    """A class that is fitted exactly, where the log has nothing against it [0040]."""
    if question.horizon is not None or question.rows != "all":
        return []
    found = explained_by_polynomial(data, target, question.gamma)
    return [] if found is None else [found]


def _unusual(second_opinions: bool, calibration: bool, quick: bool) -> dict[str, bool]:
    """Settings that runs remember only where they are not the usual ones."""
    asked = {"quick": bool(quick), "calibration": bool(calibration)}
    found = {name: True for name, value in asked.items() if value}
    return found if second_opinions or quick else {**found, "second_opinions": False}


def evaluate(
    data: Dataset,
    policy: Policy,
    *,
    gamma: float | None = None,
    horizon: int | None = None,
    model: str | ModelSpec = "auto",
    rows: RowUse | None = None,
    stages: int | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    action_draws: int = 16,
    seed: int = 0,
    interval: Interval | Mapping[str, Any] | float | None = None,
    second_opinions: bool = True,
    calibration: bool = False,
    quick: bool = False,
    anyway: bool = False,
    progress: Progress | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: Resume = "latest",
    executor: Executor | None = None,
    earlier: Earlier = None,
) -> Evaluation:
    """Estimate the distribution of the target policy's return from logged data.

    The return is Z = sum_t gamma^t r_t, over `horizon` steps or until the episode terminates, and
    the estimate a sequence of maximum-likelihood fits of z = r + gamma y, y drawn from the previous
    fit at (x', a' ~ policy): Fitted Likelihood Estimation (Wu, Uehara, Sun, ICML 2023).

    Args:
        data, policy, ..., quick, earlier: as of `fle.plan`, which this carries out.
        anyway: give numbers although the data hardly covers the policy; else `CoverageError`.
        progress: told of every stage; by default a bar on a terminal, nothing in a pipe.
        out: a run directory, for `fle.load`. A run that was stopped in any way goes on there when
            the call is repeated, with the same result to the last bit; a finished one is loaded.
        resume: "latest" goes on from the last checkpoint; "previous" from the one before, should
            the last one, or the result, be damaged. executor: as of `fle.carry_out`.

    Example: `fle.evaluate(data, policy, gamma=0.99).returns.cvar(0.1)`.
    """
    planned = plan(
        data,
        policy,
        gamma=gamma,
        horizon=horizon,
        model=model,
        rows=rows,
        stages=stages,
        recipe=recipe,
        action_draws=action_draws,
        seed=seed,
        interval=interval,
        second_opinions=second_opinions,
        calibration=calibration,
        quick=quick,
        earlier=earlier,
    )
    from fle.fitting.jobs import carried_out

    return carried_out(planned, executor, anyway, progress, out, resume)


def with_second_opinions(planned: Plan, evaluation: Evaluation) -> Evaluation:
    """An evaluation beside what other estimators say, with a warning where they disagree."""
    from fle.baselines.second_opinions import memory_of_opinions, second_opinions_of

    try:
        require_memory(memory_of_opinions(planned), "Second opinions", len(planned.data))
    except FLEError as refusal:
        return replace(evaluation, notes=(*evaluation.notes, f"no second opinions: {refusal}"))
    with doing("asking for second opinions"):
        opinions = second_opinions_of(planned, evaluation)
    for remark in opinions.warnings:
        warnings.warn(remark, FLEWarning, stacklevel=3)
    return replace(
        evaluation,
        second_opinions=opinions,
        warnings=(*evaluation.warnings, *opinions.warnings),
    )


def with_calibration(planned: Plan, evaluation: Evaluation) -> Evaluation:
    """An evaluation beside predictions of held-out episodes, or why there can be none."""
    from fle.trust.held_out import calibration_of

    try:
        found = calibration_of(planned)
    except FLEError as refusal:
        return replace(evaluation, notes=(*evaluation.notes, f"no calibration: {refusal}"))
    return replace(evaluation, calibration=found)


class Question(NamedTuple):
    """Which return is asked for, how the rows are used, and whether a first look is enough."""

    gamma: float
    horizon: int | None
    rows: RowUse
    stages: int | None
    quick: bool = False


class Decisions(NamedTuple):
    """What is decided, and why."""

    problem: Problem
    data: Dataset
    model: ModelSpec
    recipe: Resolved
    encoder: Encoder
    table: ActionTable
    trail: Trail
    notes: tuple[str, ...]
    logging: LoggingPolicy | None

    def as_plain(self) -> dict[str, Any]:
        """All settings, as files hold them."""
        problem = {name: as_plain(value) for name, value in asdict(self.problem).items()}
        recipe = {name: as_plain(value) for name, value in asdict(self.recipe).items()}
        return {**problem, "model": self.model.as_plain(), "recipe": recipe}


def _asked(policy: Policy, data: Dataset, used: Dataset, draws: int, seed: int) -> TabulatedPolicy:
    """What the policy does at the rows that are used."""
    keep_compiled()
    with doing("asking the policy"):
        # Of all rows, since the log's own policy is read off the following ones.
        settled = settle(policy, data, seed=seed)
        return tabulated(settled, used, draws=draws, seed=seed)


def _wanted(interval: Any, second_opinions: bool, quick: bool) -> tuple[Interval | None, bool]:
    """The intervals and second opinions that there are to be; a first look has neither."""
    if quick and interval is not None:
        raise SettingsError("quick=True gives no intervals; leave out `interval` or quick=True.")
    return Interval.of(interval), bool(second_opinions) and not quick


def _decide(
    planner: Planner, target: TabulatedPolicy, spec: ModelSpec, notes: list[str]
) -> Decisions:
    data, question, asked, shape = planner.data, planner.question, planner.asked, planner.shape
    gamma, horizon, use, stages, quick = question
    encoder = Encoder.raw(data)
    if spec.standardised:
        encoder = Encoder.standardising(
            data, _reward_offset(data, question), codes=spec.reads_codes
        )
    if planner.earlier is not None:
        encoder = continued_encoder(planner.earlier, data, encoder)
    trace = _possible_trace(spec, asked, question, notes)
    table, coupling, logging = _coupled(planner, target, trace, notes)
    trail = Trail.of(data, table, encoder.rewards(data), gamma, trace, coupling)
    left = QUICK_LEFT if quick else NEGLIGIBLE
    number, why = chosen_stages(stages, horizon, data, gamma, trail, left)
    if shape is not None and shape.stages != number:
        why = (f"{shape.stages} stages, as the policy of the comparison that needs most",)
        number = shape.stages
    problem = Problem(gamma, horizon, use, number)
    chosen = _usual_recipe(problem, data, spec)
    if quick:
        chosen = first_look(chosen, stages=number, tuning=spec.usual_tuning)
    recipe = replace(resolve(asked, chosen), trace=trace)
    notes = [*notes, *why]
    if recipe.batch_size > len(data):
        recipe = replace(recipe, batch_size=len(data))
        notes.append(f"batch size {len(data)}: all rows there are")
    if horizon is not None and gamma < 1:
        notes.append(f"returns are discounted by {gamma:g} and end after {horizon} steps")
    return Decisions(problem, data, spec, recipe, encoder, table, trail, tuple(notes), logging)


def _reward_offset(data: Dataset, question: Question) -> np.ndarray:
    """(d,) A large constant in rewards, where its part in the return is known: none ends early."""
    mean, spread = data.rewards.mean(axis=0), data.rewards.std(axis=0)
    ends = data.terminations
    if question.rows == "step" and data.steps is not None and question.horizon is not None:
        ends = ends & (data.steps < question.horizon - 1)
    known = question.horizon == 1 or not ends.any()
    return np.where(known & (np.abs(mean) > LARGE_OFFSET * spread), mean, 0.0)


def _possible_trace(spec: ModelSpec, asked: Recipe, question: Question, notes: list[str]) -> float:
    """How readily targets follow the log, which not every model and use of rows can do."""
    trace = ONE_FIT.trace if asked.trace is None else asked.trace
    objective = spec.fitted_by(resolve(asked, ONE_FIT))
    several = question.horizon is not None and question.horizon > 1
    if question.rows == "split":
        reason = "rows of one stage would be seen by another"
    elif objective.measured_by is not objective:
        reason = f"{type(spec).__name__} is fitted at once to exact targets"
    elif several and objective.measured_by.across_fits() is None:
        reason = f"{type(spec).__name__} asks one fit at a time"
    else:
        return trace
    if trace > 0 and question.horizon != 1:
        notes.append(f"targets look one step ahead: {reason}")
    return 0.0


def _coupled(
    planner: Planner, target: TabulatedPolicy, trace: float, notes: list[str]
) -> tuple[ActionTable, Coupling | None, LoggingPolicy | None]:
    """The policy's next actions, and their coupling with what was logged, if that can be told."""
    data, shape = planner.data, planner.shape
    table, actions = target.following, data.number_of_actions
    if shape is not None and shape.actions is not None and not table.lists_all(shape.actions):
        shares = by_action(table.actions, table.probabilities, shape.actions)
        table = ActionTable.of_probabilities(shares)
    told = data.propensities is not None or data.number_of_observations is not None
    possible = table.normal is not None if actions is None else actions <= MOST_COUPLED
    enough = (told and actions is not None) or len(data) >= ROWS_FOR_COUPLING
    if trace == 0 or target.coverage is None or not possible or not enough:
        return table, None, None
    if not linked_rows(data).any():
        return table, None, None
    logging = planner.facts.logging
    notes.append(logging.in_words())
    if not logging.reliable:
        notes.append(
            "not good enough to couple it with the policy: actions must agree by themselves"
        )
        return table, None, logging
    if actions is None:
        return table, normal_coupling(data, table, logging.next_densities), logging
    if not table.lists_all(actions):
        shares = by_action(table.actions, table.probabilities, actions)
        table = ActionTable.of_probabilities(shares)
    after = np.asarray(logging.next_probabilities)
    return table, discrete_coupling(data, table.probabilities, after), logging


def _occupancy(
    data: Dataset, target: TabulatedPolicy, problem: Problem, recipe: Resolved
) -> Occupancy | None:
    """Where the policy goes, if that can be told and is of use."""
    one_step = problem.horizon == 1
    if not recipe.occupancy or one_step or target.coverage is None or problem.rows == "split":
        return None
    return occupancy(data, target, gamma=problem.gamma, horizon=problem.horizon)


def _plan_of(
    decisions: Decisions,
    target: TabulatedPolicy,
    logged: LoggedData,
    provenance: Provenance,
    interval: Interval | None,
    second_opinions: bool,
) -> Plan:
    problem, data, spec, recipe, encoder, table, trail, notes, logging = decisions
    remarks = data_remarks(data, encoder, problem.horizon, problem.rows)
    generator = Randomness(provenance.seed, Purpose.PLAN).generator
    stages = stages_of(problem, data, recipe, generator)
    if not isinstance(spec.fitted_by(recipe), GradientObjective):
        # What is solved at once has nothing to choose by rows that it does not see.
        stages = tuple(stage.with_all_rows() for stage in stages)
    inputs, shares, starts = _initial_inputs(data, target, encoder)
    visited = _occupancy(data, target, problem, recipe)
    used = visited is not None and visited.worthwhile
    weights = visited.weights if visited is not None and used else data.weights
    why = (visited.in_words(),) if visited is not None and used else ()
    interval, provenance, remark = _possible_interval(interval, data, provenance)
    notes = (*notes, *why, *remark)
    looked = (FIRST_LOOK,) if provenance.settings.get("quick") else ()
    return Plan(
        problem=problem,
        data=data,
        target=target,
        model=spec,
        recipe=recipe,
        encoder=encoder,
        following=table,
        trail=trail,
        weights=weights,
        stages=stages,
        initial_inputs=inputs,
        initial_weights=shares,
        initial_starts=starts,
        probe=inputs[generator.choice(len(shares), SAMPLE_BLOCK, p=shares)],
        logged=logged,
        provenance=provenance,
        notes=notes,
        warnings=(*data.warnings, *looked, *target.remarks, *remarks),
        logging=logging,
        occupancy=visited,
        interval=interval,
        second_opinions=second_opinions,
        calibration="calibration" in provenance.settings,
    )


def _possible_interval(
    asked: Interval | None, data: Dataset, provenance: Provenance
) -> tuple[Interval | None, Provenance, tuple[str, ...]]:
    """The intervals that the data can have, what a run remembers of them, and what to know."""
    if asked is None:
        return None, provenance, ()
    resampling = Resampling.of(data)
    if resampling.impossible is not None:
        return None, provenance, (resampling.impossible,)
    settings = provenance.settings | {"interval": asdict(asked)}
    return asked, replace(provenance, settings=settings), resampling.notes()


def _used_rows(
    data: Dataset, rows: RowUse | None, horizon: int | None
) -> tuple[Dataset, RowUse, list[str]]:
    """The rows that are used, and which stages a row serves.

    The data gets steps where every episode ends at the horizon.
    """
    notes = list(data.notes)
    if data.weights is not None and np.any(data.weights == 0):
        data = data.subset(data.weights > 0)
    if rows is not None and rows not in ROW_USES:
        raise SettingsError(f'rows must be "all", "step" or "split", got {rows!r}.')
    if rows is None and horizon is not None and data.steps is None and ends_at(data, horizon):
        data = data.with_steps()
        notes.append(
            f"every logged episode terminates after {horizon} steps, which is the horizon: what an "
            'observation is worth depends on the step, and rows are used at their own (rows="step")'
        )
    use: RowUse = "step" if data.steps is not None and horizon is not None else "all"
    return data, rows or use, notes


def _chosen_model(
    model: str | ModelSpec, data: Dataset, question: Question
) -> tuple[ModelSpec, list[str]]:
    """The model asked for, and what is to be known about the choice."""
    notes = []
    if model == "auto":
        spec, reason = _model_by_data(data, question)
        notes.append(f"model: {type(spec).__name__}, {reason}")
    elif isinstance(model, str):
        spec = _named_model(model)
    else:
        spec = model
    return spec, notes


def _named_model(name: str) -> ModelSpec:
    spec: Any = family(name)
    try:
        return spec()
    except TypeError as error:
        raise SettingsError(
            f"The model {name!r} needs hyperparameters ({error}). Give them, as "
            f"model=fle.{spec.__name__}(...)."
        ) from error


def _model_by_data(data: Dataset, question: Question) -> tuple[ModelSpec, str]:
    d, rows = data.rewards.shape[1], len(data)
    points = _possible_returns(data, question)
    if d == 1 and 1 < points <= MOST_POINTS:
        categorical: Any = family("categorical")
        return categorical(atoms=points), (
            f"whose atoms are the {points} returns that sums of the logged rewards can be"
        )
    if d == 1:
        return family("gmm")(), "the fastest with a density for scalar returns"
    if rows < ROWS_FOR_AUTOREGRESSION:
        return family("gmm")(), (
            f"as {rows:,} rows are few for returns of {d} coordinates "
            f"(Autoregressive from {ROWS_FOR_AUTOREGRESSION:,} rows on)"
        )
    return family("autoregressive")(), (
        f"which follows any shape of the joint distribution of {d} coordinates and is fast to "
        "sample"
    )


def _possible_returns(data: Dataset, question: Question) -> int:
    """How many returns there can be, where rewards lie on a lattice and are summed; else 0."""
    spacing = lattice_of(data.rewards, data.terminations).spacing
    if question.horizon is None or (question.gamma != 1 and question.horizon > 1) or not spacing[0]:
        return 0
    limits = return_limits(data.rewards, data.terminations, 1.0, question.horizon)
    low, high = limits[-1]
    return 1 + round(float((high - low)[0] / spacing[0]))


def _usual_recipe(problem: Problem, data: Dataset, spec: ModelSpec) -> Resolved:
    coordinates = sum(
        1 if values.ndim == 1 else values.shape[1] for values in (data.observations, data.actions)
    )
    return usual(
        repeats=problem.repeats,
        rows=len(data),
        coordinates=coordinates,
        tuning=spec.usual_tuning,
    )


def _initial_inputs(
    data: Dataset, target: TabulatedPolicy, encoder: Encoder
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every initial observation with every action the policy may take, their weights, and which
    observation each is.
    """
    table = target.initial
    observations = np.repeat(data.require_initial_observations(), table.candidates, axis=0)
    actions = table.actions.reshape(len(observations), *table.actions.shape[2:])
    weights = table.probabilities.reshape(-1) / len(table)
    likely = weights > 0
    needed = 4.0 * likely.sum() * encoder.sizes.inputs
    require_memory(needed, "The initial observations, as one-hot vectors,", len(table))
    inputs = encoder.inputs(observations[likely], actions[likely])
    return inputs, weights[likely], np.flatnonzero(likely) // table.candidates


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _stage_words(stages: tuple[Stage, ...]) -> str:
    sizes = [stage.rows.size for stage in stages]
    rows = f"{sizes[0]:,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return (
        f"{len(stages):,}, each fitted to {rows} rows and measured on {stages[0].held_out.size:,} "
        "held-out ones"
    )
