"""Whether an estimate may be used: one verdict from all that was measured, by one rule.

Each measured figure that is beyond its threshold is a `Reason`. The verdict is as grave as the
gravest of them. Nothing here is fitted: thresholds follow from what is called wrong (`WRONG`), or
are those at which the part that measured the figure warns (decision 0032).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fle.fitting.measurement import WORTH, BellmanErrors
from fle.fitting.occupancy import LEAST_EFFECTIVE, MOST_BEYOND
from fle.fitting.remarks import DRIFT, drift, unsettled
from fle.policies.answers import (
    LEAST_EFFECTIVE_ROWS,
    MOST_UNSEEN,
    WARN_EFFECTIVE_SHARE,
    WARN_UNSEEN,
    Coverage,
)
from fle.returns.distances import DENIED, Calibration
from fle.returns.measures import RISK_LEVEL, measure
from fle.returns.opinions import BLIND, FALSE_ALARM, WORTH_A_WORD, SecondOpinions
from fle.screen import one_line
from fle.trust.bounds import total_variation_bound, wasserstein_bound

if TYPE_CHECKING:
    from fle.fitting import Evaluation

Level = Literal["trust", "caution", "do not use"]
LEVELS: tuple[Level, ...] = ("trust", "caution", "do not use")
# Standard deviations of the return by which an estimate is called wrong.
WRONG = 0.25
# A standard error of this many is wrong by chance alone in one case of 80 (2.5 errors); one of
# twice WRONG is wrong more often than not (half an error: 62%).
CHANCE, MOST_CHANCE = WRONG / 2.5, 2 * WRONG
# Standard errors of what residuals add to the mean: one false alarm in 370.
BEYOND = 3.0
# Headline measures, for which chance is judged.
JUDGED = ("mean", f"cvar:{RISK_LEVEL:g}")


@dataclass(frozen=True)
class Reason:
    """What speaks against an estimate.

    level: how grave it is. what: was measured. figure, threshold: None for what has no figure.
    words: all of it for people.
    """

    level: Level
    what: str
    figure: float | None
    threshold: float | None
    words: str

    @property
    def weight(self) -> tuple[int, float]:
        """The graver first, then by how far the figure is beyond its threshold."""
        ratio = 0.0
        if self.figure is not None and self.threshold:
            ratio = abs(math.log(max(abs(self.figure), 1e-9) / abs(self.threshold)))
        return LEVELS.index(self.level), ratio


@dataclass(frozen=True)
class Verdict:
    """Whether an estimate may be used.

    level: "trust" where nothing speaks against it; "caution"; or "do not use", where no headline
        is given unless it is asked for.
    reasons: the gravest first. changes: what would change the verdict.

    Example: `evaluation.verdict.level == "trust"`.
    """

    level: Level
    reasons: tuple[Reason, ...]
    changes: tuple[str, ...]

    def in_words(self) -> str:
        """The level and the gravest reason, in one line."""
        if not self.reasons:
            return f"{self.level}: nothing that was measured speaks against the estimate"
        more = len(self.reasons) - 1
        further = f" (and {more} more reason{'s' if more > 1 else ''})" if more else ""
        return f"{self.level}: {self.reasons[0].words}{further}"

    def lines(self) -> list[str]:
        """All of it: the level, every reason, and what would change it."""
        return [
            self.level,
            *(f"{one.level}: {one.words}" for one in self.reasons),
            *(f"would change it: {change}" for change in self.changes),
        ]

    def for_terminal(self) -> list[str]:
        """The same lines as the command line shows them, the level first."""
        if not self.reasons:
            return [f"verdict: {self.in_words()}"]
        first, *others = self.lines()
        return [f"verdict: {first}", *(f"  {one_line(words)}" for words in others)]

    def as_plain(self) -> dict[str, Any]:
        """For files and machines."""
        reasons = [
            {name: getattr(one, name) for name in ("level", "what", "figure", "threshold", "words")}
            for one in self.reasons
        ]
        return {"level": self.level, "reasons": reasons, "changes": list(self.changes)}

    def __repr__(self) -> str:
        return "\n".join(self.for_terminal())


def verdict_of(evaluation: "Evaluation") -> Verdict:
    """The verdict on an evaluation, from what it holds alone.

    Example: `print(verdict_of(fle.load("run/")))`.
    """
    found = [
        *_of_actions(evaluation.coverage),
        *_of_visits(evaluation),
        # That a first look asks nobody else is in its own warning.
        *(() if evaluation.quick else _of_opinions(evaluation.second_opinions)),
        *_of_chance(evaluation),
        *_of_bellman(evaluation.bellman),
        *_of_calibration(evaluation.calibration),
        *_of_drift(evaluation),
        *_of_warnings(evaluation),
    ]
    reasons = tuple(sorted(found, key=lambda one: one.weight, reverse=True))
    level = max((one.level for one in reasons), key=LEVELS.index, default=LEVELS[0])
    return Verdict(level, reasons, tuple(_changes(evaluation, reasons)))


def looked_at(evaluation: "Evaluation") -> list[tuple[str, str]]:
    """What could be wrong with an estimate, and what was found of it, for a page."""
    covered, visits = evaluation.coverage, evaluation.visits
    opinions, settled = evaluation.second_opinions, not unsettled(evaluation.records)
    own = "it logged the data itself" if covered is None else None
    error, asked = _chance(evaluation)
    lines = [
        ("actions that were not logged", own or ("" if covered is None else covered.in_words())),
        (
            "places that were not logged",
            own or ("not measured" if visits is None else visits.in_words()),
        ),
        (
            "chance",
            "not measured"
            if opinions is None and evaluation.refits is None
            else f"one standard error of {measure(asked).label} is {error:.2f} standard deviations"
            " of the return",
        ),
        ("a wrong model or fit", _opinions_in_words(opinions)),
    ]
    for name in () if opinions is None else evaluation.return_names:
        whose = "a bias" if len(evaluation.return_names) == 1 else f"a bias of {name}"
        lines.append((whose, "" if opinions is None else opinions.alarm_in_words(name)))
    measured, estimate = evaluation.bellman, error_estimate(evaluation)
    if measured is not None and estimate is not None:
        lines.append(
            (
                "fits that are not what they were fitted to",
                f"on {measured.rows:,} {'held-out ' if measured.held_out else ''}rows their"
                f" residuals would move the mean by {measured.bias:+.2f}, with a standard error of"
                f" {measured.bias_error:.2f}; all their errors together, in the form of the paper's"
                f" theorems, come to {estimate:.2g} (an estimate, often far too large; both in"
                " standard deviations of the return)",
            )
        )
    if evaluation.calibration is not None:
        lines.append(("fits of this kind", evaluation.calibration.in_words()))
    if evaluation.horizon is None:
        lines.append(("a fit that has not settled", "settled" if settled else "it has not settled"))
    return [
        *lines,
        (
            "what no figure here can see",
            "causes that the observations hide, and a world that is no longer that of the log",
        ),
    ]


def _opinions_in_words(opinions: SecondOpinions | None) -> str:
    if opinions is None:
        return "no other estimator was asked"
    seeing, found = sum(one.sees for one in opinions.opinions), len(opinions.disagreements)
    blind = "; none knows the mean well enough" if opinions.blind else ""
    return (
        f"{seeing} of {len(opinions.opinions)} second opinions could judge, {found} of their"
        f" figures disagree beyond chance{blind}"
    )


def _graver(figure: float, worse: float) -> Level:
    return "do not use" if figure > worse else "caution"


def _of_actions(covered: Coverage | None) -> Iterator[Reason]:
    """Whether its actions were logged at logged observations."""
    if covered is None:
        return
    unseen, rows = covered.share_unseen, covered.effective_sample_size
    if unseen > WARN_UNSEEN:
        yield Reason(
            _graver(unseen, MOST_UNSEEN),
            "actions never logged",
            unseen,
            WARN_UNSEEN,
            f"{unseen:.0%} of the policy's actions were never logged where it takes them (up to"
            f" {WARN_UNSEEN:.0%} is trusted, above {MOST_UNSEEN:.0%} nothing is)",
        )
    few = rows < LEAST_EFFECTIVE_ROWS
    if few or rows < WARN_EFFECTIVE_SHARE * covered.rows:
        least = max(LEAST_EFFECTIVE_ROWS, WARN_EFFECTIVE_SHARE * covered.rows)
        yield Reason(
            "do not use" if few else "caution",
            "effective rows by action",
            rows,
            least,
            f"for what the policy does, the {covered.rows:,} rows are worth about {rows:,.0f}"
            f" (expected {least:,.0f}; below {LEAST_EFFECTIVE_ROWS} nothing is said)",
        )


def _of_visits(evaluation: "Evaluation") -> Iterator[Reason]:
    """Whether the log goes where the policy goes."""
    visits = evaluation.visits
    if visits is None:
        return
    where = f"; least of {visits.wanted()}" if visits.wanted() else ""
    if visits.beyond > WARN_UNSEEN:
        yield Reason(
            _graver(visits.beyond, MOST_BEYOND),
            "way beyond the log",
            visits.beyond,
            WARN_UNSEEN,
            f"{visits.beyond:.0%} of where the policy goes was hardly logged (up to"
            f" {WARN_UNSEEN:.0%} is trusted, above {MOST_BEYOND:.0%} nothing is){where}",
        )
    rows, least = visits.effective_rows, min(LEAST_EFFECTIVE, visits.rows)
    if rows < least:
        few = rows < min(LEAST_EFFECTIVE_ROWS, visits.rows)
        yield Reason(
            "do not use" if few else "caution",
            "effective rows on its way",
            rows,
            float(least),
            f"where the policy goes, the {visits.rows:,} rows are worth about {rows:,.0f}"
            f" (expected {least}; below {LEAST_EFFECTIVE_ROWS} nothing is said){where}",
        )


def _of_opinions(opinions: SecondOpinions | None) -> Iterator[Reason]:
    """Whether other estimators say the same, or can say anything."""
    if opinions is None:
        yield Reason(
            "caution",
            "second opinions",
            None,
            None,
            "no other estimator was asked, so that nothing stands beside the estimate",
        )
        return
    for found in opinions.disagreements:
        decides = found.asked in JUDGED and found.opinion.estimator != "stitching"
        yield Reason(
            _graver(abs(found.apart), WRONG) if decides else "caution",
            f"disagreement, {found.asked}",
            abs(found.apart),
            WORTH_A_WORD[found.asked],
            f"{found.opinion.estimator} says {measure(found.asked).label} is"
            f" {found.apart:+.2f} standard deviations of the return away,"
            f" {abs(found.errors):.1f} standard errors (beyond chance at"
            f" {FALSE_ALARM:.0%}; from {WORTH_A_WORD[found.asked]:g} on it matters, from"
            f" {WRONG:g} on the estimate counts as wrong)",
        )
    for name in opinions.blind:
        yield Reason(
            "caution",
            "nothing can judge",
            None,
            BLIND,
            f"{name}no second opinion can judge the estimate: none knows the mean to within"
            f" {BLIND:g} standard deviations of the return",
        )


def _of_chance(evaluation: "Evaluation") -> Iterator[Reason]:
    """How far another log of the same kind would have moved the estimate.

    Without replicates the error is that of fitted Q evaluation on the same rows. It may be far
    larger than the estimate's own, so that it cautions and withholds nothing.
    """
    error, asked = _chance(evaluation)
    own = evaluation.refits is not None
    if error > CHANCE:
        whose, above = "one standard error", f", above {MOST_CHANCE:g} nothing is"
        if not own:
            whose, above = "a standard error of fitted Q evaluation, as nothing was resampled", ""
        yield Reason(
            _graver(error, MOST_CHANCE) if own else "caution",
            "chance",
            error,
            CHANCE,
            f"by chance alone {measure(asked).label} may be off by {error:.2f} standard deviations"
            f" of the return ({whose}; up to {CHANCE:g} is trusted{above})",
        )


def _chance(evaluation: "Evaluation") -> tuple[float, str]:
    """The largest standard error of a headline, in standard deviations of the return."""
    opinions, worst, which = evaluation.second_opinions, 0.0, JUDGED[0]
    if opinions is None and evaluation.refits:
        return _chance_by_refits(evaluation)
    for own in () if opinions is None else opinions.own:
        spread = own.figures["std"].value
        for asked in JUDGED:
            error = own.figures[asked].standard_error if asked in own.figures else None
            if error is not None and spread > 0 and error / spread > worst:
                worst, which = error / spread, asked
    return worst, which


def _chance_by_refits(evaluation: "Evaluation") -> tuple[float, str]:
    """The same of replicates alone, where nobody else was asked."""
    returns = replace(evaluation, released=True).returns
    found = []
    for name in returns.names:
        law = returns.marginal(name)
        spread = max(float(law.std()), 1e-300)
        for asked in JUDGED:
            others = [] if law.replicates is None else law.replicates.laws
            away = [measure(asked).of(one.samples[:, 0]) - law.measure(asked) for one in others]
            found.append((float(np.sqrt(np.mean(np.square(away)))) / spread, asked))
    return max(found)


def _of_bellman(measured: BellmanErrors | None) -> Iterator[Reason]:
    """Whether the fits are what they were fitted to, on rows they have not seen."""
    if measured is None:
        return
    size = abs(measured.bias)
    if size > WORTH_A_WORD["mean"] and size > BEYOND * measured.bias_error:
        yield Reason(
            "caution",
            "Bellman residuals",
            size,
            WORTH_A_WORD["mean"],
            f"on {measured.rows:,} rows, what the fits leave over where the policy goes would move"
            f" the mean by {measured.bias:+.2f} standard deviations of the return"
            f" ({size / max(measured.bias_error, 1e-12):.1f} standard errors; from"
            f" {WORTH_A_WORD['mean']:g} on it matters)",
        )
    worst = measured.standing_out
    if worst is not None:
        which = f"stage {worst.stage}" + ("" if worst.step is None else f" (step {worst.step})")
        yield Reason(
            "caution",
            "Bellman error",
            worst.error,
            WORTH,
            f"{which} is {worst.distance:.2f} standard deviations away from its own targets (W1 on"
            f" {measured.rows:,} rows; a right fit would read {worst.floor:.2f}): {worst.error:.2f}"
            f" standard deviations of the return (up to {WORTH:g} is trusted)",
        )


def _of_calibration(found: Calibration | None) -> Iterator[Reason]:
    """Whether fits of this kind predict episodes that they have not seen."""
    if found is not None and found.denied:
        yield Reason("caution", "calibration", found.chance, DENIED, found.in_words())


def error_estimate(evaluation: "Evaluation") -> float | None:
    """How far the return's law may be off in W1, in its standard deviations: an estimate.

    The theorems' form, with the measured excess in place of the error ζ and rows / effective rows
    in place of the coverage C: √C Σ_h γ^h ζ_h with a horizon (as Theorem 4.2), else
    `wasserstein_bound`. It is no bound: pooled rows do not show errors that cancel among them, and
    C is estimated. On known tasks such expressions were 5 to 50 times too large.

    Example: `error_estimate(result)`.
    """
    measured, visits = evaluation.bellman, evaluation.visits
    if measured is None:
        return None
    ratio = 1.0 if visits is None else max(1.0, visits.rows / max(visits.effective_rows, 1e-9))
    zetas = np.array([one.error for one in measured.stages])
    if evaluation.horizon is None:
        stages = np.full(len(evaluation.records), zetas[-1])
        return wasserstein_bound(stages, ratio, evaluation.gamma, 0.0)
    before = evaluation.horizon - np.array([one.stage for one in measured.stages])
    return total_variation_bound(measured.represents * evaluation.gamma**before * zetas, ratio)


def _of_drift(evaluation: "Evaluation") -> Iterator[Reason]:
    """Whether the fit has settled."""
    if evaluation.horizon is not None or not unsettled(evaluation.records):
        return
    window, moved = drift(evaluation.records)
    furthest = float(moved.max())
    yield Reason(
        _graver(furthest, WRONG),
        "drift",
        furthest,
        DRIFT,
        f"the fit has not settled: over its last {window} stages mean or CVaR moved by"
        f" {furthest:.2f} standard deviations of the return (up to {DRIFT:g} is trusted, above"
        f" {WRONG:g} nothing is)",
    )


def _of_warnings(evaluation: "Evaluation") -> Iterator[Reason]:
    """What else the data and the fit raised; what is a reason already is not said twice."""
    covered, opinions = evaluation.coverage, evaluation.second_opinions
    told = {
        *(() if covered is None else covered.warnings),
        *(() if opinions is None else opinions.warnings),
        *unsettled(evaluation.records),
    }
    for warning in evaluation.warnings:
        if warning not in told:
            yield Reason("caution", "warning", None, None, warning.rstrip("."))


def _changes(evaluation: "Evaluation", reasons: tuple[Reason, ...]) -> Iterator[str]:
    """What would change the verdict."""
    kinds = {one.what for one in reasons}
    visits, logged = evaluation.visits, evaluation.logged
    error, _ = _chance(evaluation)
    if "chance" in kinds:
        number, unit = logged.episodes or logged.rows, "episodes" if logged.episodes else "rows"
        wanted = math.ceil(number * (error / CHANCE) ** 2)
        yield f"about {wanted:,} {unit} of the same kind (now {number:,})"
    thin = {"way beyond the log", "effective rows on its way"} & kinds
    if thin or {"actions never logged", "effective rows by action"} & kinds:
        where = "" if visits is None else visits.wanted()
        yield f"data closer to the policy{f': {where}' if where else ''}"
    if "drift" in kinds:
        yield f"more stages, such as stages={2 * len(evaluation.records)}"
    if evaluation.quick:
        yield "an evaluation without quick=True"
    if "chance" in kinds and evaluation.refits is None:
        yield "interval=0.9, which measures the estimate's own standard error"
    if "second opinions" in kinds:
        yield "second_opinions=True"
    if "nothing can judge" in kinds:
        yield "propensities in the log, shorter episodes, or more of them"
