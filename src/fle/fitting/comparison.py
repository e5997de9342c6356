"""`fle.compare`: several policies on the same data, ranked and held against each other."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fle.data import Dataset
from fle.errors import FLEWarning, SettingsError
from fle.executors import Executor
from fle.fitting.checkpoints import Resume
from fle.fitting.evaluation import Evaluation
from fle.fitting.jobs import Out, carry_out, run_folder
from fle.fitting.planning import Plan, plan
from fle.fitting.problem import Problem, RowUse, require_dataset, sum_of_discounts
from fle.fitting.progress import Progress, Titled, default_progress
from fle.fitting.sampling import SAMPLE_BLOCK, Purpose, Randomness, draw_block, in_data_units
from fle.models.specs import ModelSpec
from fle.notebook import Tabular, html_lines, html_table
from fle.policies import Policy
from fle.recipe import Recipe
from fle.returns import ReturnDistribution
from fle.returns.dominance import Dominance, dominance, preference
from fle.returns.intervals import Estimate, Interval, difference_of
from fle.returns.measures import Measure, measure, usual_measures

PAIRS = 4 * SAMPLE_BLOCK
# Up to as many policies, each is held against every other.
MOST_IN_PAIRS = 20
CAUTION = "these are differences between fitted distributions; the error of the fits is not in them"
WITH_INTERVALS = (
    "5% to 95% is how single episodes differ, the interval how far the mean difference may be off "
    "by chance, as both were fitted to the same resampled episodes; it does not see a wrong model"
)


@dataclass(frozen=True)
class Difference:
    """Return of the first minus return of the second, in pairs with the same start.

    low, high: its 5% and 95% quantiles. beats: share of the pairs that the first wins. ties: share
    that neither wins.
    """

    first: str
    second: str
    mean: float
    low: float
    high: float
    beats: float
    ties: float

    @classmethod
    def of(cls, first: str, second: str, ours: np.ndarray, theirs: np.ndarray) -> "Difference":
        """From paired returns (n,)."""
        gaps = ours - theirs
        low, high = np.quantile(gaps, [0.05, 0.95])
        return cls(
            first,
            second,
            float(gaps.mean()),
            float(low),
            float(high),
            float(np.mean(gaps > 0)),
            float(np.mean(gaps == 0)),
        )


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Several policies, evaluated on one log with the same settings and seed.

    evaluations: by name, in the order given. refused: those without numbers, as plans where the
        data hardly covers the policy, or as evaluations where the verdict is "do not use".
    paired: by name, returns (n, d) from the same n starts.
    weights: of the rewards in the sum that is ranked; None for one reward.
    """

    evaluations: Mapping[str, Evaluation]
    refused: Mapping[str, Plan | Evaluation]
    paired: Mapping[str, np.ndarray]
    starts: int
    weights: tuple[float, ...] | None = None

    @classmethod
    def of(
        cls,
        plans: Mapping[str, Plan],
        *,
        weights: npt.ArrayLike | None = None,
        anyway: bool = False,
        progress: Progress | None = None,
        out: Out = None,
        resume: Resume = "latest",
        executor: Executor | None = None,
    ) -> "Comparison":
        """Carry out plans that were made for the same data and problem; see `compare`."""
        first = _alike(plans)
        summed = ranking_weights(weights, first.data)
        refused: dict[str, Plan | Evaluation] = {
            n: p for n, p in plans.items() if p.withheld is not None and not anyway
        }
        kept = {name: planned for name, planned in plans.items() if name not in refused}
        fitted = _fitted(kept, first.is_one_fit, executor, anyway, progress, out, resume)
        evaluations: dict[str, Evaluation] = {}
        paired = {}
        which = _paired_starts(len(first.target.initial), first.provenance.seed)
        for place, (name, planned) in enumerate(plans.items()):
            if name in refused:
                continue
            if fitted[name].withheld is not None:
                refused[name] = fitted[name]
                continue
            evaluations[name] = fitted[name]
            # A stream for each policy: from the start on, the two of a pair have nothing in common.
            random = Randomness(first.provenance.seed, Purpose.PAIRS, 1 + place)
            paired[name] = _returns_from(evaluations[name], planned, which, random.generator)
        return cls(evaluations, refused, paired, len(first.target.initial), summed)

    @property
    def problem(self) -> Problem:
        """Which return is compared; the same for all."""
        evaluated = [evaluation.problem for evaluation in self.evaluations.values()]
        return [*evaluated, *(planned.problem for planned in self.refused.values())][0]

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
            raise SettingsError(f"order must be 1 or 2, got {order!r}.")
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
        """A row for each policy, by mean from best to worst; refused ones last, without numbers."""
        names = [name for name, _ in self.ranking()]
        table: dict[str, list[Any]] = {"policy": [*names, *self.refused]}
        for one in usual_measures():
            values = [self.returns[name].measure_if_supported(one) for name in names]
            table[one.text] = [*values, *([None] * len(self.refused))]
        table["verdict"] = [
            *self._verdicts(names),
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
    anyway: bool = False,
    progress: Progress | None = None,
    out: Out = None,
    resume: Resume = "latest",
    executor: Executor | None = None,
) -> Comparison:
    """Evaluate several policies on one log with the same settings, and hold them side by side.

    Args:
        data: the logged transitions.
        policies: by name; see `evaluate` for what a policy may be.
        weights: for several rewards, their weights in the sum that is ranked.
        anyway: give numbers for policies that the data hardly covers too; else they are `refused`.
        out: a folder, in which every policy gets a run directory of its name, or those by name.
        executor: who carries out the fits of all policies; see `fle.carry_out`.

    The other arguments are those of `evaluate`.

    Example: `fle.compare(data, {"old": old, "new": new}, gamma=0.99).ranking("cvar:0.1")`.
    """
    _require_named(policies)
    require_dataset(data)
    ranking_weights(weights, data)
    plans = {}
    for name, policy in policies.items():
        with warnings_named(name):
            plans[name] = plan(
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
                quick=quick,
            )
    shown: dict[str, Any] = {"weights": weights, "anyway": anyway, "progress": progress}
    return Comparison.of(plans, out=out, resume=resume, executor=executor, **shown)


def _require_named(policies: Any) -> None:
    if not isinstance(policies, Mapping):
        raise SettingsError(
            'policies: expected a mapping from names to policies, such as {"new": new, "old": old},'
            f" got {type(policies).__name__}"
        )


def pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Which policies are held against each other: all, or of very many the first and neighbours.

    names: in the order of their ranking, so that the first is the best.

    Example: `pairs_of(["a", "b", "c"])` is `[("a", "b"), ("a", "c"), ("b", "c")]`.
    """
    if len(names) <= MOST_IN_PAIRS:
        return list(combinations(names, 2))
    return [*((names[0], other) for other in names[1:]), *pairwise(names[1:])]


@contextmanager
def warnings_named(name: str) -> Iterator[None]:
    """Our warnings in here say whose they are."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        own = issubclass(warning.category, FLEWarning)
        text = f"{name}: {warning.message}" if own else str(warning.message)
        warnings.warn(text, warning.category, stacklevel=3)


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
        raise SettingsError("policies must have at least one policy, got none.")
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
    plans: Mapping[str, Plan],
    one_fit: bool,
    executor: Executor | None,
    anyway: bool,
    progress: Progress | None,
    out: Out,
    resume: Resume,
) -> dict[str, Evaluation]:
    """The evaluations of plans of one log."""
    settings: dict[str, Any] = {"anyway": anyway, "resume": resume}
    if not one_fit:
        return carry_out(plans, executor=executor, progress=progress, out=out, **settings)
    found: dict[str, Evaluation] = {}
    for name, planned in plans.items():
        to, shown = run_folder(out, name), Titled(name, progress or default_progress())
        # What one step earns does not depend on the policy: one fit serves all.
        if known := next(iter(found.values()), None):
            found[name] = planned.carry_out(progress=shown, out=to, known=known, **settings)
        else:
            folders = None if to is None else {name: to}
            found |= carry_out(
                {name: planned}, executor=executor, progress=shown, out=folders, **settings
            )
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
    blocks = [
        draw_block(evaluation.fits[-1], inputs[first : first + SAMPLE_BLOCK], generator)
        for first in range(0, len(inputs), SAMPLE_BLOCK)
    ]
    discounts = sum_of_discounts(evaluation.problem.gamma, evaluation.problem.horizon)
    encoder = evaluation.encoder
    offset = encoder.reward_centre * discounts
    drawn = np.concatenate(blocks)
    lattice = None
    if evaluation.model.any_shape:
        lattice = encoder.lattice(evaluation.gamma, evaluation.horizon)
    return in_data_units(evaluation.fits[-1], drawn, encoder.reward_unit, offset, lattice)
