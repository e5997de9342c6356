"""`fle.plan` and `fle.evaluate`: plans of any number of policies on one log."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from fle.data import Dataset
from fle.errors import FLEWarning, SettingsError
from fle.executors import Executor
from fle.fitting.behaviour import LoggingPolicy, logging_policy
from fle.fitting.checkpoints import Resume
from fle.fitting.decisions import MOST_COUPLED, Shape, decided, plan_of
from fle.fitting.evaluation import Evaluation, LoggedData, Provenance, current_versions
from fle.fitting.large_logs import LargeLog
from fle.fitting.optimiser import keep_compiled
from fle.fitting.plans import Plan
from fle.fitting.problem import Question, RowUse, checked_gamma, require_dataset
from fle.fitting.remarks import ends_at
from fle.fitting.runs import Earlier, going_on_from, inherited
from fle.models.specs import ModelSpec, as_plain
from fle.policies import Policy, TabulatedPolicy, settle, tabulated
from fle.recipe import Recipe
from fle.returns.intervals import Interval
from fle.screen import Progress, doing

ROW_USES = ("all", "step", "split")


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

    Example: `planned = fle.plan(data, policy, gamma=0.99)`, `print(planned)`.
    """
    return Planner.of(data, Asked.among(locals())).plan(policy)


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
    planned = Planner.of(data, Asked.among(locals())).plan(policy)
    from fle.fitting.jobs import Handling, carried_out

    return carried_out(planned, Handling(executor, anyway, progress, out, resume))


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """What `plan` is asked beside the data and the policy; its arguments, by the same names.

    Example: `Planner.of(data, Asked(gamma=0.99))`.
    """

    gamma: float | None = None
    horizon: int | None = None
    model: str | ModelSpec = "auto"
    rows: RowUse | None = None
    stages: int | None = None
    recipe: Recipe | Mapping[str, Any] | None = None
    action_draws: int = 16
    seed: int = 0
    interval: Interval | Mapping[str, Any] | float | None = None
    second_opinions: bool = True
    calibration: bool = False
    quick: bool = False
    earlier: Earlier = None

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> "Asked":
        """Those of the arguments of a function that decide its plans."""
        return cls(
            **{one.name: arguments[one.name] for one in fields(cls) if one.name in arguments}
        )


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

    Example: `plan_of = Planner.of(data, Asked(gamma=0.99)).plan; plans = map(plan_of, policies)`.
    """

    log: Dataset
    data: Dataset
    question: Question
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
    @doing("planning")
    def of(cls, data: Dataset, asked: Asked) -> "Planner":
        """Of what `plan` is asked, for any policy."""
        run, gamma, horizon, model, recipe = inherited(
            asked.earlier, asked.gamma, asked.horizon, asked.model, Recipe.of(asked.recipe)
        )
        gamma = checked_gamma(gamma, horizon, asked.stages)
        wanted, opinions = _wanted(asked.interval, asked.second_opinions, asked.quick)
        require_dataset(data)
        large = LargeLog.of(data, data.number_of_actions or asked.action_draws, 0)
        if large is not None and run is not None:
            raise SettingsError(
                f"A log of {len(data):,} rows is too large to be held at once, and is not gone on "
                "with from an earlier run. Leave out `earlier`."
            )
        whole, data = data, data if large is None else large.window
        used, use, notes = _used_rows(data, asked.rows, horizon)
        return cls(
            log=data,
            large=large,
            data=used,
            question=Question(gamma, horizon, use, asked.stages, bool(asked.quick)),
            model=model,
            asked=recipe,
            action_draws=asked.action_draws,
            seed=asked.seed,
            interval=wanted,
            second_opinions=opinions,
            unusual=_unusual(asked),
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
            decisions = decided(self, target)
            settings = decisions.as_plain() | {"action_draws": as_plain(self.action_draws)}
            settings |= self.unusual
            prints = self.facts.fingerprint, target.fingerprint
            provenance = Provenance(*prints, int(self.seed), settings, current_versions())
            wanted = self.interval, self.second_opinions
            planned = plan_of(decisions, target, self.facts.logged, provenance, *wanted)
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


def _asked(policy: Policy, data: Dataset, used: Dataset, draws: int, seed: int) -> TabulatedPolicy:
    """What the policy does at the rows that are used."""
    keep_compiled()
    with doing("asking the policy"):
        # Of all rows, since the log's own policy is read off the following ones.
        settled = settle(policy, data, seed=seed)
        return tabulated(settled, used, draws=draws, seed=seed)


def _wanted(interval: Any, second_opinions: bool, quick: bool) -> tuple[Interval | None, bool]:
    """The intervals and second opinions that there are to be; a first look has neither."""
    opinions = bool(second_opinions) and not quick
    if interval is None:
        return None, opinions
    if quick:
        raise SettingsError("quick=True gives no intervals; leave out `interval` or quick=True.")
    return Interval.of(interval), opinions


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
        raise SettingsError(f'rows: expected "all", "step" or "split", got {rows!r}.')
    if rows is None and horizon is not None and data.steps is None and ends_at(data, horizon):
        data = data.with_steps()
        notes.append(
            f"every logged episode terminates after {horizon} steps, which is the horizon: what an "
            'observation is worth depends on the step, and rows are used at their own (rows="step")'
        )
    use: RowUse = "step" if data.steps is not None and horizon is not None else "all"
    return data, rows or use, notes


def _unusual(asked: Asked) -> dict[str, bool]:
    """Settings that runs remember only where they are not the usual ones."""
    flags = {"quick": bool(asked.quick), "calibration": bool(asked.calibration)}
    found = {name: True for name, value in flags.items() if value}
    usual = asked.second_opinions or asked.quick
    return found if usual else {**found, "second_opinions": False}
