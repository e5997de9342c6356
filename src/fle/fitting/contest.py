"""Many policies on one log: cheap looks at all, full fits of those that may be the best."""

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fle.errors import FLEError, FLEWarning, SettingsError
from fle.fitting.planning import Planner
from fle.fitting.plans import Plan
from fle.fitting.problem import Problem
from fle.policies import Policy, TabulatedPolicy
from fle.policies.answers import Coverage
from fle.returns.intervals import ERROR, Looks, Outcome
from fle.returns.measures import Measure
from fle.screen import Progress, Silent, Titled

if TYPE_CHECKING:
    from fle.baselines.fitted_q import MeanLook

# Answers of policies that are kept between the look and the fit; others are asked again.
KEPT_BYTES = 2**29
LEAST_SQUARES, FIRST_FIT = "least squares", "a first look"
# How far the measures of a short fit are off, beside what chance does, in standard deviations of
# what a single return weighs in them [0037].
ROUGH = 0.1
# Resamples of a first look's law, for the standard error of a measure.
RESAMPLES = 40


@dataclass(frozen=True)
class Refusal:
    """A policy that the data hardly covers: why it gets no number."""

    problem: Problem
    coverage: Coverage | None
    withheld: str


@dataclass(frozen=True)
class Unfitted:
    """A policy that got no full fit: what its last look said of it.

    look: which look. value: its estimate of the measure. worse: whether a rival is better beyond
    chance, so that the policy was dropped; else the budget was spent on others. lead, margin: how
    much better the rival is, and how far off that may be.
    """

    look: str
    value: float
    worse: bool
    rival: str
    lead: float
    margin: float

    @property
    def outcome(self) -> str:
        """In a word or two, for a table."""
        return "dropped" if self.worse else "undecided"

    def in_words(self) -> str:
        """Why it was not fitted, and by which figures."""
        figures = f"{self.rival} is better by {self.lead:.4g}, give or take {self.margin:.4g}"
        if self.worse:
            return f"dropped after {self.look}: {figures}"
        return f"undecided: not fitted, as the budget was spent ({self.look}: {figures})"


@dataclass(frozen=True, eq=False)
class Contest:
    """Which of many policies get a full fit, and what became of the others.

    planner: of the full fits, which share one shape and are compiled once.
    contenders: names, in the order given. unfitted: by name, from best to worst by the last look.
    by: what the looks judged. budget: the most full fits; None fits all.
    """

    planner: Planner
    policies: Mapping[str, Policy]
    contenders: tuple[str, ...]
    refused: Mapping[str, Refusal]
    unfitted: Mapping[str, Unfitted]
    by: Measure
    budget: int | None
    answers: Mapping[str, TabulatedPolicy]

    @classmethod
    def of(
        cls,
        planner: Planner,
        policies: Mapping[str, Policy],
        *,
        by: Measure,
        weights: tuple[float, ...] | None = None,
        budget: int | None = None,
        anyway: bool = False,
        progress: Progress,
    ) -> "Contest":
        """Ask all policies, look at them if there are more than the budget, and choose."""
        if not policies:
            raise SettingsError("policies: expected at least one, got none.")
        judged = checked_budget(budget) is not None and len(policies) > (budget or 0)
        survey = _Survey(planner, policies, weights, judged=judged)
        survey.ask(anyway=anyway, progress=progress)
        names, unfitted = list(survey.stages), {}
        shared = planner.sharing(max(survey.stages.values(), default=1))
        if judged and budget is not None and len(names) > budget:
            look, looks = survey.looks(by, progress)
            unfitted = _left_out(look, looks, budget, by.direction)
        chosen = tuple(name for name in names if name not in unfitted)
        refused = survey.refused
        return cls(shared, policies, chosen, refused, unfitted, by, budget, survey.answers)

    def plan(self, name: str) -> Plan:
        """The plan of a contender, made anew each time: tables of all would take much memory."""
        with warnings_named(name):
            kept = self.answers.get(name)
            target = self.planner.ask(self.policies[name]) if kept is None else kept
            return self.planner.planned(target)

    def in_words(self) -> list[str]:
        """What the looks decided, a sentence each."""
        if not self.unfitted:
            return []
        gone = [found for found in self.unfitted.values() if found.worse]
        left = len(self.unfitted) - len(gone)
        look = next(iter(self.unfitted.values())).look
        number = len(self.unfitted) + len(self.contenders)
        said = [
            f"{number:,} policies were looked at by {look}, which says {self.by.label}; "
            f"{len(gone):,} were dropped, as a rival is better beyond chance; the chance that the "
            f"best of all is among them is at most {ERROR:.0%}"
        ]
        if left:
            said.append(
                f"{left:,} more may be the best as far as the look can tell, and were not fitted: "
                f"the budget is {self.budget} fits; give more, or take the ranking as one of what "
                "was fitted"
            )
        return said


class _Survey:
    """All policies, asked once: what is kept of each is small."""

    def __init__(
        self,
        planner: Planner,
        policies: Mapping[str, Policy],
        weights: tuple[float, ...] | None,
        *,
        judged: bool,
    ) -> None:
        self._planner, self._policies = planner, policies
        self._weights = np.ones(1) if weights is None else np.asarray(weights)
        self._scalar, self._judged = weights, judged
        self._means: dict[str, MeanLook] = {}
        self.stages: dict[str, int] = {}
        self.refused: dict[str, Refusal] = {}
        self.answers: dict[str, TabulatedPolicy] = {}

    def ask(self, *, anyway: bool, progress: Progress) -> None:
        """How many stages each needs, whether it is refused, and its mean if it is to be judged."""
        from fle.baselines.fitted_q import CandidateMeans

        survey, means, room = self._planner.survey(), None, KEPT_BYTES
        progress = progress if self._judged else Silent()
        progress.start(len(self._policies), "looking at all policies")
        try:
            for number, name in enumerate(self._policies, start=1):
                with warnings_named(name, silent=True):
                    target = survey.ask(self._policies[name])
                    plan = survey.planned(target)
                room -= _size(target)
                if room > 0:
                    self.answers[name] = target
                if plan.withheld is not None and not anyway:
                    self.refused[name] = Refusal(plan.problem, target.coverage, plan.withheld)
                    with warnings_named(name):
                        for remark in plan.warnings[len(self._planner.log.warnings) :]:
                            warnings.warn(remark, FLEWarning, stacklevel=2)
                else:
                    self.stages[name] = len(plan.stages)
                    if self._judged:
                        means = means or CandidateMeans.of(plan, self._weights)
                        self._means[name] = means.look(plan)
                progress.advance(number, math.nan)
        finally:
            progress.finish()

    def looks(self, by: Measure, progress: Progress) -> tuple[str, Looks]:
        """Of all that are not refused: the mean by least squares, else by a short fit of each."""
        found = self._means
        if by.family.name == "mean":
            return LEAST_SQUARES, Looks(
                list(found),
                np.array([by.direction * one.value for one in found.values()]),
                np.stack([one.influence for one in found.values()]),
                np.array([one.unseen for one in found.values()]),
                np.array([by.direction * one.moved for one in found.values()]),
            )
        planner = replace(
            self._planner.sharing(max(self.stages.values())),
            interval=None,
            second_opinions=False,
            question=self._planner.question._replace(quick=True),
        )
        values, errors = [], []
        for name, mean in found.items():
            with warnings_named(name, silent=True):
                kept = self.answers.get(name)
                target = planner.ask(self._policies[name]) if kept is None else kept
                plan = planner.planned(target)
                evaluation = plan.carry_out(anyway=True, progress=Titled(name, progress))
            law = evaluation.returns
            law = law if self._scalar is None else law.scalarize(self._scalar)
            values.append(by.direction * law.measure(by))
            errors.append(_spread(by, law.samples[:, 0], mean.standard_error))
        none = np.zeros((len(found), 1))
        return FIRST_FIT, Looks(
            list(found), np.array(values), none, np.array(errors), np.zeros(len(found))
        )


def _spread(by: Measure, samples: np.ndarray, mean_error: float) -> float:
    """Standard error of a measure: that of as many returns as would have the mean's, and ROUGH
    times what a single return weighs in it.
    """
    std = float(samples.std())
    worth = len(samples) if mean_error == 0 else (std / mean_error) ** 2
    generator = np.random.default_rng(0)
    size = int(np.clip(worth, 2, len(samples)))
    drawn = [by.of(generator.choice(samples, size)) for _ in range(RESAMPLES)]
    return float(np.std(drawn)) * math.sqrt(1 + ROUGH**2 * size)


def _left_out(look: str, looks: Looks, budget: int, direction: int) -> dict[str, Unfitted]:
    """Those that are dropped, and those that the budget leaves no room for, from the best on."""
    outcomes: list[Outcome] = looks.outcomes()
    ordered = [outcomes[place] for place in looks.order()]
    staying = [found.name for found in ordered if not found.dropped]
    fitted = set(staying[:budget])
    return {
        found.name: Unfitted(
            look,
            direction * found.value,
            found.dropped,
            found.rival or "",
            found.lead,
            found.margin,
        )
        for found in ordered
        if found.name not in fitted
    }


def checked_budget(budget: Any) -> int | None:
    """A number of full fits, or None for one each."""
    whole = isinstance(budget, int | np.integer) and not isinstance(budget, bool)
    if budget is not None and (not whole or budget < 1):
        raise SettingsError(
            f"budget: expected a whole number of full fits, at least 1, got {budget!r}."
        )
    return budget


def _size(target: TabulatedPolicy) -> int:
    tables = (target.following, target.initial)
    return sum(table.probabilities.nbytes + table.listed.nbytes for table in tables)


@contextmanager
def warnings_named(name: str, *, silent: bool = False) -> Iterator[None]:
    """Our warnings and errors in here say whose they are.

    silent: whether our warnings are for a later time, when the same is done for good.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except FLEError as error:
            if name in str(error):
                raise
            raise type(error)(f"policy {name}: {error}") from error
    for warning in caught:
        own = issubclass(warning.category, FLEWarning)
        if own and silent:
            continue
        text = f"{name}: {warning.message}" if own else str(warning.message)
        warnings.warn(text, warning.category, stacklevel=3)
