"""`fle.compare`: several policies on the same data, ranked and held against each other."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fle.data import Dataset
from fle.errors import SettingsError
from fle.executors import Executor
from fle.fitting.checkpoints import Resume
from fle.fitting.contest import Contest, Refusal, Unfitted
from fle.fitting.evaluation import Evaluation
from fle.fitting.jobs import Handling, Out, carried_out, carry_out, run_folder
from fle.fitting.planning import Asked, Planner
from fle.fitting.plans import Plan
from fle.fitting.problem import Problem, RowUse, require_dataset, sum_of_discounts
from fle.fitting.targets import SAMPLE_BLOCK, Purpose, Randomness, draws, in_data_units
from fle.models.specs import ModelSpec
from fle.policies import Policy
from fle.recipe import Recipe
from fle.returns import ReturnDistribution
from fle.returns.intervals import (
    MOST_IN_PAIRS,
    Difference,
    Dominance,
    Estimate,
    Interval,
    difference_of,
    dominance,
    pairs_of,
    preference,
)
from fle.returns.measures import Measure, measure, usual_measures
from fle.screen import Progress, Tabular, Titled, default_progress, html_lines, html_table

PAIRS = 4 * SAMPLE_BLOCK
HERE = Handling()
CAUTION = "these are differences between fitted distributions; the error of the fits is not in them"
WITH_INTERVALS = (
    "5% to 95% is how single episodes differ, the interval how far the mean difference may be off "
    "by chance, as both were fitted to the same resampled episodes; it does not see a wrong model"
)


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Several policies, evaluated on one log with the same settings and seed.

    evaluations: by name, in the order given. refused: those without numbers, as plans where the
        data hardly covers the policy, or as evaluations where the verdict is "do not use".
    paired: by name, returns (n, d) from the same n starts.
    weights: of the rewards in the sum that is ranked; None for one reward.
    contest: how those that were fitted were chosen; None where plans were given.

    Example: `fle.compare(data, {"old": old, "new": new}, gamma=0.99).differences()`.
    """

    evaluations: Mapping[str, Evaluation]
    refused: Mapping[str, Plan | Refusal | Evaluation]
    paired: Mapping[str, np.ndarray]
    starts: int
    weights: tuple[float, ...] | None = None
    contest: Contest | None = None

    @classmethod
    def of(
        cls,
        plans: Mapping[str, Plan],
        weights: npt.ArrayLike | None = None,
        how: Handling = HERE,
    ) -> "Comparison":
        """Carry out plans that were made for the same data and problem; see `compare`."""
        first = _alike(plans)
        summed = ranking_weights(weights, first.data)
        withheld = {n: p for n, p in plans.items() if p.withheld is not None and not how.anyway}
        kept = {name: planned for name, planned in plans.items() if name not in withheld}
        fits = _Fits({}, dict(withheld), {})
        fits.add(kept, {name: place for place, name in enumerate(plans)}, how)
        starts = len(first.target.initial)
        return cls(fits.evaluations, fits.refused, fits.paired, starts, summed)

    @classmethod
    def of_contest(
        cls,
        contest: Contest,
        weights: npt.ArrayLike | None = None,
        how: Handling = HERE,
    ) -> "Comparison":
        """Fit the contenders; see `compare`. Without an executor there is one plan at a time."""
        data, names = contest.planner.data, contest.contenders
        fits = _Fits({}, dict(contest.refused), {})
        places = {name: place for place, name in enumerate(contest.policies)}
        if how.executor is not None:
            fits.add({name: contest.plan(name) for name in names}, places, how)
        else:
            for name in names:
                titled = how._replace(progress=Titled(name, how.progress or default_progress()))
                fits.add({name: contest.plan(name)}, places, titled)
        return cls(
            fits.evaluations,
            fits.refused,
            fits.paired,
            len(data.require_initial_observations()),
            ranking_weights(weights, data),
            contest,
        )

    @property
    def problem(self) -> Problem:
        """Which return is compared; the same for all."""
        evaluated = [evaluation.problem for evaluation in self.evaluations.values()]
        return [*evaluated, *(planned.problem for planned in self.refused.values())][0]

    @property
    def unfitted(self) -> Mapping[str, Unfitted]:
        """By name, those without a full fit, from best to worst by their last look."""
        return {} if self.contest is None else self.contest.unfitted

    @property
    def quick(self) -> bool:
        """Whether any of these is a first look, which decides nothing."""
        return any(found.quick for found in self.evaluations.values())

    @cached_property
    def returns(self) -> dict[str, ReturnDistribution]:
        """By name, the scalar return that is compared."""
        return {
            name: evaluation.returns
            if self.weights is None
            else evaluation.returns.scalarize(self.weights)
            for name, evaluation in self.evaluations.items()
        }

    def ranking(self, by: str | Measure = "mean") -> list[tuple[str, float]]:
        """Names and values of a risk measure, the best first.

        Example: `comparison.ranking("cvar:0.1")`.
        """
        chosen = measure(by) if isinstance(by, str) else by
        values = [(name, law.measure(chosen)) for name, law in self.returns.items()]
        return sorted(values, key=lambda pair: -chosen.direction * pair[1])

    @property
    def level(self) -> float | None:
        """Of the intervals of differences; None where there are none."""
        refits = [found.refits for found in self.evaluations.values()]
        levels = [None if found is None else found.level for found in refits]
        return None if not levels or None in levels else levels[0]

    def interval(
        self,
        first: str,
        second: str,
        by: str | Measure = "mean",
        level: float | None = None,
    ) -> Estimate:
        """A measure of the first policy minus that of the second, with its interval.

        Both have the same resampled episodes in each replicate: what they share cancels.

        Example: `comparison.interval("new", "old", "cvar:0.1").low > 0`.
        """
        for name in (first, second):
            if name not in self.evaluations:
                known = ", ".join(self.evaluations)
                raise SettingsError(f"policy: expected one of {known}; got {name!r}.")
        return difference_of(self.returns[first], self.returns[second], by, level)

    def differences(self, names: Sequence[str] | None = None) -> list[Difference]:
        """The pairs of `pairs_of`, as returns from the same starts; names from best to worst."""
        pairs = pairs_of(list(self.evaluations) if names is None else names)
        sums = {name: self._sums(self.paired[name]) for pair in pairs for name in pair}
        return [Difference.of(a, b, sums[a], sums[b]) for a, b in pairs]

    def dominance(
        self, order: Literal[1, 2] = 1, names: Sequence[str] | None = None
    ) -> list[Dominance]:
        """The same pairs, both ways round, held against stochastic dominance of an order."""
        if order not in (1, 2):
            raise SettingsError(f"order: expected 1 or 2, got {order!r}.")
        pairs = pairs_of(list(self.evaluations) if names is None else names)
        sums = {name: np.sort(self._sums(self.paired[name])) for pair in pairs for name in pair}
        return [
            dominance(first, second, sums[first], sums[second], order)
            for pair in pairs
            for first, second in (pair, pair[::-1])
        ]

    def dominance_in_words(self, names: Sequence[str] | None = None) -> list[str]:
        """For each pair of policies, which of them everybody would prefer, if any."""
        names = list(self.evaluations) if names is None else list(names)
        holding = {
            order: {(d.first, d.second) for d in self.dominance(order, names) if d.holds}
            for order in (1, 2)
        }
        return [preference(a, b, holding[1], holding[2]) for a, b in pairs_of(names)]

    def caution(self) -> str:
        """What the differences do not show, in words."""
        return CAUTION if self.level is None else WITH_INTERVALS

    def summed(self) -> str:
        """Which sum of rewards is meant, where there are several."""
        if self.weights is None or not self.evaluations:
            return ""
        names = next(iter(self.evaluations.values())).return_names
        terms = zip(self.weights, names, strict=True)
        return ", of the weighted sum " + " + ".join(f"{w:g} {name}" for w, name in terms)

    def pairing(self) -> str:
        """How the pairs were made, in words."""
        pairs = len(next(iter(self.paired.values()))) if self.paired else 0
        words = (
            f"{pairs:,} pairs of simulated episodes; both of a pair begin at the same one of the"
            f" {self.starts:,} logged starts and are independent from there on"
        )
        if len(self.evaluations) > MOST_IN_PAIRS:
            words += (
                f"; of {len(self.evaluations):,} policies, the first is held against every other,"
                " and each against the next"
            )
        return words

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        by: str | Measure = "mean",
        title: str = "Comparison of policies",
    ) -> None:
        """Write one HTML page with the ranking, the pairs and the distributions."""
        from fle.report import write_comparison

        write_comparison(self, path, by=by, title=title)

    def columns(self) -> dict[str, list[Any]]:
        """A row for each policy, by mean from best to worst; then those without a full fit, with
        what their last look said, and refused ones, without numbers.
        """
        names = [name for name, _ in self.ranking()]
        others = [*self.unfitted, *self.refused]
        table: dict[str, list[Any]] = {"policy": [*names, *others]}
        for one in usual_measures():
            values = [self.returns[name].measure_if_supported(one) for name in names]
            table[one.text] = [*values, *([None] * len(others))]
        if self.unfitted:
            looks = [found.value for found in self.unfitted.values()]
            empty: list[Any] = [None] * len(self.refused)
            table["look"] = [*([None] * len(names)), *looks, *empty]
        table["verdict"] = [
            *self._verdicts(names),
            *(found.outcome for found in self.unfitted.values()),
            *(str(p.withheld) for p in self.refused.values()),
        ]
        return table

    def _verdicts(self, names: Sequence[str]) -> list[str]:
        return [self.evaluations[name].verdict.level for name in names]

    def plot(self) -> Any:
        """An Altair chart of all distribution functions."""
        from fle.report.plots import plot_comparison

        return plot_comparison(self)

    def _repr_html_(self) -> str:
        table = self.columns()
        rows = [
            ["\N{EN DASH}" if v is None else v if isinstance(v, str) else f"{v:.5g}" for v in row]
            for row in zip(*table.values(), strict=True)
        ]
        pairs = [
            (
                f"{d.first} minus {d.second}",
                f"mean {d.mean:.5g}; in single episodes {d.low:.4g} to {d.high:.4g}; the first wins"
                f" {d.beats:.1%}",
            )
            for d in self.differences([name for name, _ in self.ranking()])
        ]
        below = html_lines("Differences", pairs) if pairs else ""
        return html_table(f"Comparison of policies{self._mark}", list(table), rows) + below

    def _sums(self, rows: np.ndarray) -> np.ndarray:
        return rows @ np.ones(1) if self.weights is None else rows @ np.asarray(self.weights)

    def __repr__(self) -> str:
        lines = [
            f"  {place}. {name}: mean {value:.5g} ({self.evaluations[name].verdict.level})"
            for place, (name, value) in self._places()
        ]
        lines += [f"  {n}: {found.in_words()}" for n, found in self.unfitted.items()]
        lines += [f"  no estimate for {name}: {p.withheld}" for name, p in self.refused.items()]
        return "\n".join([f"Comparison{self._mark}", *lines])

    @property
    def _mark(self) -> str:
        return ", a first look" if self.quick else ""

    def _places(self) -> list[tuple[int, tuple[str, float]]]:
        return list(enumerate(self.ranking(), start=1))


def compare(
    data: Dataset,
    policies: Mapping[str, Policy],
    *,
    gamma: float | None = None,
    horizon: int | None = None,
    weights: npt.ArrayLike | None = None,
    model: str | ModelSpec = "auto",
    rows: RowUse | None = None,
    stages: int | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    action_draws: int = 16,
    seed: int = 0,
    interval: Interval | Mapping[str, Any] | float | None = None,
    second_opinions: bool = True,
    quick: bool = False,
    by: str | Measure = "mean",
    budget: int | None = None,
    anyway: bool = False,
    progress: Progress | None = None,
    out: Out = None,
    resume: Resume = "latest",
    executor: Executor | None = None,
) -> Comparison:
    """Evaluate several policies on one log with the same settings, and hold them side by side.

    Args:
        data: the logged transitions.
        policies: by name; see `evaluate` for what a policy may be. A mapping that makes a policy
            when it is asked for it will do: each is asked for once or twice.
        weights: for several rewards, their weights in the sum that is ranked.
        by: the measure that a budget is spent by.
        budget: the most full fits. With more policies, all get a cheap look, and those whose
            interval reaches the best are fitted, the best first; see `docs/comparing.md`.
        anyway: give numbers for policies that the data hardly covers too; else they are `refused`.
        out: a folder, in which every policy gets a run directory of its name, or those by name.
        executor: who carries out the fits of all policies; see `fle.carry_out`.

    The other arguments are those of `evaluate`.

    Example: `fle.compare(data, {"old": old, "new": new}, gamma=0.99).ranking("cvar:0.1")`.
    """
    asked = Asked.among(locals())
    _require_named(policies)
    require_dataset(data)
    summed, shown = ranking_weights(weights, data), progress or default_progress()
    contest = Contest.of(
        Planner.of(data, asked),
        policies,
        by=measure(by),
        weights=summed,
        budget=budget,
        anyway=anyway,
        progress=shown,
    )
    how = Handling(executor, anyway, shown, out, resume)
    return Comparison.of_contest(contest, weights, how)


def _require_named(policies: Any) -> None:
    if not isinstance(policies, Mapping):
        raise SettingsError(
            'policies: expected a mapping from names to policies, such as {"new": new, "old": old},'
            f" got {type(policies).__name__}"
        )


class _Fits(NamedTuple):
    """What carrying out gave so far: as of `Comparison`."""

    evaluations: dict[str, Evaluation]
    refused: dict[str, Plan | Refusal | Evaluation]
    paired: dict[str, np.ndarray]

    def add(self, plans: Mapping[str, Plan], places: Mapping[str, int], how: Handling) -> None:
        """Fit some more.

        places: among all policies, which decide what is random.
        """
        done = [found for found in self.refused.values() if isinstance(found, Evaluation)]
        known = next(iter([*self.evaluations.values(), *done]), None)
        for name, fitted in _fitted(plans, known, how).items():
            if fitted.withheld is not None:
                self.refused[name] = fitted
                continue
            self.evaluations[name] = fitted
            planned = plans[name]
            seed = planned.provenance.seed
            which = _paired_starts(len(planned.target.initial), seed)
            # A stream for each policy: from the start on, two of a pair have nothing in common.
            random = Randomness(seed, Purpose.PAIRS, 1 + places[name])
            self.paired[name] = _returns_from(fitted, planned, which, random.generator)


def ranking_weights(weights: npt.ArrayLike | None, data: Dataset) -> tuple[float, ...] | None:
    """What makes one number of the rewards; None if there is only one."""
    if weights is None and data.return_dim > 1:
        raise SettingsError(
            f"A ranking needs one number, but there are {data.return_dim} rewards: "
            f"{', '.join(data.reward_names)}. Give `weights`, one for each."
        )
    return None if weights is None else checked_weights(weights, data)


def checked_weights(weights: npt.ArrayLike, data: Dataset) -> tuple[float, ...]:
    """The weights of the rewards in a sum, one for each."""
    if data.return_dim == 1:
        raise SettingsError("weights is for several rewards, and the data has one; leave it out.")
    given = np.asarray(weights, dtype=float)
    if given.shape != (data.return_dim,) or not np.all(np.isfinite(given)):
        raise SettingsError(
            f"weights: expected {data.return_dim} finite numbers, for "
            f"{', '.join(data.reward_names)}; got {given.tolist()}."
        )
    return tuple(float(weight) for weight in given)


def _alike(plans: Mapping[str, Plan]) -> Plan:
    """The first of the plans, if all are for the same data and problem."""
    if not plans:
        raise SettingsError("policies: expected at least one, got none.")
    (name, first), *others = plans.items()
    for other, planned in others:
        same = planned.provenance.data == first.provenance.data
        if not same or planned.problem.question != first.problem.question:
            raise SettingsError(
                f"expected plans for the same data and problem, got others for {name!r} and "
                f"{other!r}. Make them from one data set, with equal gamma, horizon and rows."
            )
    return first


def _fitted(
    plans: Mapping[str, Plan], known: Evaluation | None, how: Handling
) -> dict[str, Evaluation]:
    """The evaluations of plans of one log.

    known: of another policy on it, if there is one already.
    """
    if not any(planned.is_one_fit for planned in plans.values()):
        return carry_out(plans, **how._asdict())
    found: dict[str, Evaluation] = {}
    progress = how.progress or default_progress()
    for name, planned in plans.items():
        shown = progress if len(plans) == 1 else Titled(name, progress)
        own = how._replace(progress=shown, out=run_folder(how.out, name))
        if known is None:
            found[name] = carried_out(planned, own)
        else:
            # What one step earns does not depend on the policy: one fit serves all.
            found[name] = planned.carry_out(
                anyway=own.anyway, progress=shown, out=own.out, resume=own.resume, known=known
            )
        known = found[name]
    return found


def _paired_starts(starts: int, seed: int) -> np.ndarray:
    """Which start each pair has: all of them equally often, up to one."""
    generator = Randomness(seed, Purpose.PAIRS).generator
    return np.resize(generator.permutation(starts), PAIRS)


def _returns_from(
    evaluation: Evaluation, planned: Plan, which: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """A return (n, d) from each of n starts; actions by the policy."""
    starts, table = planned.data.require_initial_observations(), planned.target.initial
    cumulative = np.cumsum(table.probabilities[which], axis=1)
    levels = generator.random(which.size) * cumulative[:, -1]
    picks = np.minimum((levels[:, None] >= cumulative).sum(axis=1), table.candidates - 1)
    inputs = evaluation.encoder.inputs(starts[which], table.actions[which, picks])
    discounts = sum_of_discounts(evaluation.problem.gamma, evaluation.problem.horizon)
    encoder = evaluation.encoder
    offset = encoder.reward_centre * discounts
    drawn = draws(evaluation.fits[-1], inputs, generator)
    lattice = None
    if evaluation.model.any_shape:
        lattice = encoder.lattice(evaluation.gamma, evaluation.horizon)
    return in_data_units(evaluation.fits[-1], drawn, encoder.reward_unit, offset, lattice)
