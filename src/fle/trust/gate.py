"""`fle.gate`: whether a policy keeps what is required of it, decided by confidence bounds."""

import math
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy.typing as npt

from fle.data import Dataset
from fle.errors import SettingsError, nearest
from fle.fitting import Evaluation, Plan
from fle.fitting.contest import warnings_named
from fle.fitting.planning import Asked, Planner
from fle.fitting.problem import RowUse
from fle.models.specs import ModelSpec
from fle.policies import Policy, load_policy
from fle.recipe import Recipe
from fle.returns import ReturnDistribution
from fle.returns.intervals import Estimate, Interval, checked_level, difference_of
from fle.returns.measures import BEHAVIOUR, Requirement

LEVEL, REPLICATES = 0.95, 10
Answer = Literal["met", "not met", "undecided"]
T = TypeVar("T")


@dataclass(frozen=True)
class Decision:
    """What the data say of one requirement.

    estimate: of the measure, or of its difference to the behaviour policy's, with an interval whose
        each end is a confidence bound at the level of the gate; None where there is no estimate.
    answer: "met" and "not met" where the bound decides; else "undecided".
    why: what was held against what, in words.
    """

    requirement: Requirement
    estimate: Estimate | None
    answer: Answer
    why: str

    @classmethod
    def between(cls, requirement: Requirement, estimate: Estimate, units: int) -> "Decision":
        """From an estimate with bounds, and how many episodes were resampled for them."""
        bound = requirement.bound or 0.0
        sign = 1 if requirement.at_least else -1
        low, high = sorted((sign * estimate.low, sign * estimate.high))
        limit = sign * bound
        answer: Answer = "undecided"
        if low >= limit:
            answer = "met"
        elif high < limit:
            answer = "not met"
        what = "" if requirement.bound is not None else f"that of {BEHAVIOUR} subtracted, "
        side = "at least" if (answer == "met") == requirement.at_least else "at most"
        shown = estimate.low if side == "at least" else estimate.high
        why = f"{what}{estimate.value:.4g}, {side} {shown:.4g}"
        if answer == "undecided":
            why = what + str(estimate) + _episodes_wanted(estimate, bound, units)
        return cls(requirement, estimate, answer, why)


def _episodes_wanted(estimate: Estimate, bound: float, units: int) -> str:
    """How many episodes would decide, were the estimate to stay: intervals shrink by their root."""
    gap, half = abs(estimate.value - bound), (estimate.high - estimate.low) / 2
    if gap == 0:
        return ""
    wanted = math.ceil(units * (half / gap) ** 2)
    return f"; about {wanted:,} episodes would decide, were the estimate to stay (now {units:,})"


@dataclass(frozen=True, eq=False)
class Gate:
    """Requirements, and what the data say of each.

    Each bound holds with probability `level`. All must be met to pass, so a policy that should not
    pass does so with probability 1 − level at most, however many requirements there are.

    evaluation: of the policy; None where the data hardly covers it. Where its verdict is "do not
        use", all is undecided.

    Example: `print(fle.gate(data, policy, require="cvar:0.1 >= 12", gamma=0.99))`.
    """

    decisions: tuple[Decision, ...]
    level: float
    evaluation: Evaluation | None

    @property
    def answer(self) -> Answer:
        """Of all requirements together: "met" if each is, "not met" if any is not."""
        answers = {decision.answer for decision in self.decisions}
        if "not met" in answers:
            return "not met"
        return "undecided" if "undecided" in answers else "met"

    @property
    def passed(self) -> bool:
        """Whether every requirement is met; what is undecided does not pass."""
        return self.answer == "met"

    def as_plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "answer": self.answer,
            "level": self.level,
            "verdict": None if self.evaluation is None else self.evaluation.verdict.as_plain(),
            "requirements": [
                {
                    "require": str(one.requirement),
                    "answer": one.answer,
                    "estimate": None if one.estimate is None else one.estimate.value,
                    "low": None if one.estimate is None else one.estimate.low,
                    "high": None if one.estimate is None else one.estimate.high,
                    "why": one.why,
                }
                for one in self.decisions
            ],
        }

    def as_junit(self) -> bytes:
        """A JUnit file: a requirement is a test, and what is not met or undecided is a failure."""
        failed = [one for one in self.decisions if one.answer != "met"]
        counts = {"tests": str(len(self.decisions)), "failures": str(len(failed))}
        suites = Xml.Element("testsuites", counts)
        suite = Xml.SubElement(suites, "testsuite", {"name": "fle gate", **counts})
        for one in self.decisions:
            named = {"classname": "fle.gate", "name": str(one.requirement)}
            case = Xml.SubElement(suite, "testcase", named)
            if one in failed:
                said = {"type": one.answer, "message": f"{one.answer}: {one.why}"}
                Xml.SubElement(case, "failure", said)
            else:
                Xml.SubElement(case, "system-out").text = one.why
        Xml.indent(suites)
        return Xml.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"

    def __repr__(self) -> str:
        lines = [f"  {one.answer}: {one.requirement} ({one.why})" for one in self.decisions]
        if self.evaluation is not None:
            lines.append(f"  verdict on the estimate: {self.evaluation.verdict.in_words()}")
        return "\n".join([f"Gate: {self.answer}, at level {self.level:g}", *lines])

    @classmethod
    def of(
        cls,
        plan_of: Callable[[T], Plan],
        policy: T,
        behaviour: T,
        requirements: Sequence[Requirement],
        level: float,
        weights: npt.ArrayLike | None = None,
    ) -> "Gate":
        """Carry out the plan of a policy, and where it is wanted that of the behaviour policy.

        plan_of: the plan of a policy, in whatever form they are given, with intervals of `bounds`.
        """
        planned = plan_of(policy)
        for requirement in requirements:
            _check_reward(requirement, planned.data.reward_names, weights)
        reason = planned.withheld
        if reason is None and planned.interval is None:
            reason = "the log is one episode, so that no bound can be given"
        if reason is not None:
            why = f"no estimate: {reason}"
            undecided = [Decision(one, None, "undecided", why) for one in requirements]
            return cls(tuple(undecided), level, None)
        evaluation, logged = planned.carry_out(), None
        if evaluation.withheld is not None:
            why = f"no estimate: {evaluation.withheld}"
            undecided = [Decision(one, None, "undecided", why) for one in requirements]
            return cls(tuple(undecided), level, evaluation)
        if any(one.bound is None for one in requirements):
            with warnings_named(BEHAVIOUR):
                logged = plan_of(behaviour).carry_out(anyway=True).returns
        units = 0 if evaluation.refits is None else evaluation.refits.counts.shape[1]
        decisions = []
        for one in requirements:
            law = _scalar(evaluation.returns, one.reward, weights)
            if one.bound is None and logged is not None:
                other = _scalar(logged, one.reward, weights)
                estimate = difference_of(law, other, one.measure, 2 * level - 1)
            else:
                estimate = law.interval(one.measure, 2 * level - 1)
            decisions.append(Decision.between(one, estimate, units))
        return cls(tuple(decisions), level, evaluation)


def gate(
    data: Dataset,
    policy: Policy,
    *,
    require: str | Sequence[str | Requirement],
    gamma: float | None = None,
    horizon: int | None = None,
    level: float = LEVEL,
    replicates: int = REPLICATES,
    weights: npt.ArrayLike | None = None,
    model: str | ModelSpec = "auto",
    rows: RowUse | None = None,
    stages: int | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    action_draws: int = 16,
    seed: int = 0,
) -> Gate:
    """Decide whether a policy keeps what is required of it, before it is let loose.

    A requirement is met if its one-sided confidence bound keeps it, not met if the bound on the
    other side breaks it, and undecided else. Bounds come from fits to resampled episodes (the cheap
    bootstrap, Lam 2022); they see what chance did to the estimate, not a wrong model.

    Args:
        data, policy, gamma, horizon, model, ..., seed: as of `fle.plan`.
        require: such as "cvar:0.1 >= 12", "loss <= 0.05", "mean of revenue >= 3", or "mean >=
            behaviour", which holds the policy against the one that logged the data, both fitted to
            the same resampled episodes.
        level: of each bound; a policy that should not pass does so with 1 − level at most.
        replicates: fits to resampled episodes.
        weights: of several rewards, in the sum that requirements without "of" speak of.

    Example: `fle.gate(data, policy, require="mean >= behaviour", gamma=0.99).passed`.
    """
    asked = [Requirement.of(one) for one in ([require] if isinstance(require, str) else require)]
    if not asked:
        raise SettingsError("require: expected at least one requirement, got none.")

    planner = Planner.of(data, Asked.among({**locals(), "interval": bounds(level, replicates)}))
    return Gate.of(planner.plan, policy, load_policy(BEHAVIOUR), asked, level, weights)


def bounds(level: float, replicates: int) -> Interval:
    """The interval each of whose ends is a confidence bound at the level."""
    if not checked_level(level) > 0.5:
        raise SettingsError(f"level: expected above 0.5 and below 1, such as 0.95, got {level!r}.")
    return Interval(2 * level - 1, replicates)


def _check_reward(
    requirement: Requirement, rewards: Sequence[str], weights: npt.ArrayLike | None
) -> None:
    if requirement.reward is not None and requirement.reward not in rewards:
        hint = nearest(requirement.reward, rewards)
        raise SettingsError(
            f"require: expected a reward among {', '.join(rewards)}, got {requirement.reward!r} in "
            f"'{requirement}'{hint}"
        )
    if requirement.reward is None and weights is None and len(rewards) > 1:
        raise SettingsError(
            f"require: the data has {len(rewards)} rewards, {', '.join(rewards)}; say which, as "
            f"'{requirement.measure} of {rewards[0]} >= ...', or give `weights` of their sum."
        )


def _scalar(
    law: ReturnDistribution, reward: str | None, weights: npt.ArrayLike | None
) -> ReturnDistribution:
    if reward is not None:
        return law.marginal(reward)
    return law if weights is None else law.scalarize(weights)
