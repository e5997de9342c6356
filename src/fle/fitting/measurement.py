"""What is measured: a stage on held-out rows, coverage of the policy's way, and Bellman errors.

Bellman errors say how far fits are from their own targets, on rows they were not trained on. At a
row (x, a, r, x') the target is z = r + γ y with a' ~ policy(x') and y ~ the fit before, and the fit
says y₀ ~ fit(x, a). Were the fit right, z and y₀ would have one law given (x, a), so that the two
could change places at every row. A two-sample statistic is held against what it reads after such
swaps, at random: its sampling floor, exact whatever the laws are.
"""

import time
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fle.data import Dataset
from fle.data.passes import Array
from fle.fitting.encoding import Encoder, Fitted, Rows, as_vectors
from fle.fitting.following import Lines, Trail, by_fit
from fle.fitting.occupancy import Occupancy
from fle.fitting.problem import Stage, sum_of_discounts
from fle.fitting.targets import (
    LINE_BLOCK,
    SAMPLE_BLOCK,
    Purpose,
    Randomness,
    Update,
    draw_block,
    mean_loss,
    stacked,
)
from fle.models.objectives import GradientObjective
from fle.returns import ReturnDistribution
from fle.returns.measures import RISK_LEVEL

MEASURED_ROWS = SAMPLE_BLOCK
# How often a held-out row is measured at least, each time with fresh targets: more often than a few
# times says nothing that the rows do not know.
OFTEN = 4
# Standard deviations of the log by which visits are called elsewhere, and how often an action must
# be taken for one logged time.
ELSEWHERE, RARE = 0.3, 1.5
# Parts of the way that weigh less are not looked at for the fewest rows.
WEIGHS = 0.01
# States that are named, and their least share of the visits.
NAMED, LEAST_SHARE = 3, 0.05
# Stages that are measured, evenly spaced where there are more; swaps that make the floor.
MOST_MEASURED, SWAPS = 20, 40
# Draws at a row, over all stages: their average has less noise than one.
MOST_DRAWS = 16
# Fewer rows tell nothing of a law.
LEAST_ROWS = 20
# Chance of naming a stage where all are right, and the least excess that is worth a word, in
# standard deviations of the return.
FALSE_ALARM, WORTH = 0.01, 0.05


def measured_rows(held_out: int) -> int:
    """On how many rows the stages of a repeated update are measured, of this many; a power of 2."""
    return int(min(MEASURED_ROWS, 2 ** np.ceil(np.log2(OFTEN * max(held_out, 1)))))


@dataclass(frozen=True)
class StageRecord:
    """What a stage reached, in the units of the rewards.

    loss: mean negative log likelihood over the last tenth of the training (the model's own loss
        where it has no density).
    held_out_loss: the same of fresh targets on rows not trained on.
    mean, std, cvar: of the returns from the initial states, or, in a time-dependent problem, from
        the rows of the stage's step; cvar at level 0.1, one a coordinate.
    """

    stage: int
    step: int | None
    discount: float
    loss: float
    held_out_loss: float
    mean: np.ndarray
    std: np.ndarray
    cvar: np.ndarray
    seconds: float


@dataclass(frozen=True, eq=False)
class Before:
    """The fits that the targets of a stage may ask.

    fits: in the order of fitting; a blank one where there is
        none yet. All stages have as many, since another number would be compiled anew.
    last: the number of the last one; -1 before the first stage.
    left: steps to go at this stage, of a problem with a horizon.
    """

    fits: tuple[Fitted, ...]
    last: int
    left: int | None

    @property
    def several(self) -> bool:
        """Whether targets ask different fits."""
        return len(self.fits) > 1

    @property
    def latest(self) -> Fitted:
        """The last one."""
        return self.fits[max(self.last, 0)] if self.several else self.fits[0]

    @cached_property
    def together(self) -> Fitted:
        """All of them, as compiled code takes them."""
        return stacked(list(self.fits))

    def lines(self, trail: Trail, rows: np.ndarray, generator: np.random.Generator) -> Lines:
        """A draw of what follows each row.

        A discounted problem starts from what the log itself earned: nearer to the answer than
        nothing is.
        """
        if self.last < 0 and self.left is None:
            trail = trail.of_log
        else:
            trail.forget_log()
        lines = trail.lines(rows, generator, fit=self.last, left=self.left)
        return lines if self.several else lines._replace(fits=np.zeros_like(lines.fits))


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measures every stage on the same number of rows, as another shape would be compiled anew.

    number: of rows.
    """

    objective: GradientObjective
    encoder: Encoder
    rows: Rows
    trail: Trail
    initial_inputs: np.ndarray
    draws: int
    number: int

    def record(
        self,
        number: int,
        stage: Stage,
        before: Before,
        fitted: Fitted,
        loss: float,
        began: float,
        random: Randomness,
    ) -> StageRecord:
        """What the stage reached; `loss` is that of training, NaN where the fit has none."""
        index = np.resize(stage.held_out, self.number)
        held_out_loss = self.held_out_loss(before, fitted, index, random)
        inputs = self.initial_inputs if stage.step is None else self.inputs(index)
        discounts = sum_of_discounts(self.trail.gamma, before.left)
        offset = self.encoder.reward_centre * discounts
        drawn = draw_block(fitted, inputs, random.generator) * self.encoder.reward_unit + offset
        columns = [ReturnDistribution.from_samples(column) for column in drawn.T]
        return StageRecord(
            stage=number + 1,
            step=stage.step,
            discount=stage.discount,
            loss=held_out_loss if np.isnan(loss) else self._in_reward_units(fitted, loss),
            held_out_loss=held_out_loss,
            mean=np.array([column.measure("mean") for column in columns]),
            std=np.array([column.measure("std") for column in columns]),
            cvar=np.array([column.measure(f"cvar:{RISK_LEVEL}") for column in columns]),
            seconds=time.perf_counter() - began,
        )

    def held_out_loss(
        self, before: Before, fitted: Fitted, index: np.ndarray, random: Randomness
    ) -> float:
        """Mean loss of the rows at `index`; a likelihood is per unit of the rewards."""
        lines = before.lines(self.trail, index, random.generator)
        if before.several:
            lines, _ = by_fit(lines, LINE_BLOCK, len(before.fits))
        update = self.update(self.objective, before, fitted)
        loss = float(mean_loss(update, lines, random.key()))
        return self._in_reward_units(fitted, loss)

    def update(self, objective: GradientObjective, before: Before, fitted: Fitted) -> Update:
        """The Bellman update of a stage, for what is to be fitted."""
        law, frame, support = fitted
        return Update(
            objective,
            law,
            before.together,
            frame,
            support,
            self.rows,
            self.encoder.sizes,
            self.draws,
        )

    def inputs(self, index: np.ndarray) -> np.ndarray:
        """Observations and actions of the rows, encoded."""
        observations, actions = (np.asarray(values)[index] for values in self.rows[:2])
        return as_vectors(observations, actions, self.encoder.sizes)

    def _in_reward_units(self, fitted: Fitted, loss: float) -> float:
        if not self.objective.in_nats:
            return loss
        return loss + float(np.log(np.asarray(fitted.frame.scale) * self.encoder.reward_unit).sum())


@dataclass(frozen=True)
class StepRows:
    """What the log is worth at a step of the policy's way: how many rows, all alike."""

    step: int
    rows: float


@dataclass(frozen=True)
class Visits:
    """How well the log covers where the policy goes and what it does there, over its whole way.

    effective_rows: 1 / sum p², with p the policy's discounted visits of (observation, action) as a
        law over logged rows; out of `rows`.
    beyond: share of its way where hardly anything was logged.
    by_step: effective rows at each part of the way.
    where, actions: what is visited or done far more often than it was logged, in the names of the
        data; empty where nothing stands out.
    """

    effective_rows: float
    rows: int
    beyond: float
    by_step: tuple[StepRows, ...]
    where: str
    actions: str

    @classmethod
    def of(cls, data: Dataset, found: Occupancy) -> "Visits":
        """From an occupancy of the same data."""
        rows, chances, beyond, by_step = found.pairs
        scale = len(data) / max(len(rows), 1)
        effective = scale / max(float((chances**2).sum()), 1e-300) if chances.any() else 0.0
        total = sum(mass for _, _, mass in by_step)
        steps = tuple(StepRows(step, r) for step, r, mass in by_step if mass >= WEIGHS * total)
        return cls(
            float(min(effective, len(data))),
            len(data),
            float(beyond),
            steps,
            _observed(data, rows, chances),
            _done(data, rows, chances),
        )

    @property
    def fewest(self) -> StepRows:
        """The part of the way that the log shows least of."""
        return min(self.by_step, key=lambda one: one.rows, default=StepRows(0, 0.0))

    def in_words(self) -> str:
        """The figures in one line."""
        words = (
            f"where the policy goes, the {self.rows:,} rows are worth about"
            f" {self.effective_rows:,.0f}"
        )
        if self.beyond >= WEIGHS:
            words += f", and {self.beyond:.0%} of its way was hardly logged"
        return words

    def wanted(self) -> str:
        """What should be logged, in the names of the data; empty where nothing stands out."""
        return " and ".join(filter(None, (self.where, self.actions)))

    def as_plain(self) -> dict[str, Any]:
        """For files and machines."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Visits":
        """From the content of a file."""
        steps = tuple(StepRows(**one) for one in plain["by_step"])
        return cls(**{**plain, "by_step": steps})


def _observed(data: Dataset, rows: Array, chances: Array) -> str:
    """The observations that are visited more than logged."""
    observations = data.observations[rows]
    if observations.ndim == 1:
        return _codes("state", observations, chances, ())
    return _column(observations, chances, data.observation_names, "observation")


def _done(data: Dataset, rows: Array, chances: Array) -> str:
    """The actions that are taken more than logged."""
    actions = data.actions[rows]
    if actions.ndim == 1:
        return _codes("action", actions, chances, data.action_labels)
    return _column(actions, chances, data.action_names, "action")


def _codes(kind: str, codes: Array, chances: Array, labels: tuple[str, ...]) -> str:
    names, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    visited, logged = np.bincount(places, chances), counts / len(codes)
    known = np.flatnonzero((visited > LEAST_SHARE) & (visited > RARE * logged))
    worst = known[np.argsort(-visited[known] / logged[known])][:NAMED]
    return ", ".join(
        f"{kind} {labels[names[place]] if labels else names[place]} ({visited[place]:.0%} of its"
        f" visits, {logged[place]:.1%} of the rows)"
        for place in worst
    )


def _column(values: Array, chances: Array, names: tuple[str, ...], kind: str) -> str:
    """The column that is shifted most, as a half-line with half of the visits."""
    moved = (chances @ values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-300)
    column = int(np.argmax(np.abs(moved)))
    if not abs(moved[column]) > ELSEWHERE:
        return ""
    chosen = values[:, column]
    order = np.argsort(chosen)
    reached = np.cumsum(chances[order])
    middle = chosen[order][np.searchsorted(reached, 0.5 * reached[-1])]
    above = moved[column] > 0
    share = float(np.mean(chosen >= middle if above else chosen <= middle))
    name = names[column] if names else f"{kind} {column}"
    side = "from {:.4g} on" if above else "up to {:.4g}"
    return f"{name} {side.format(middle)} (half of its visits, {share:.1%} of the rows)"


@dataclass(frozen=True)
class StageError:
    """How far the fit of a stage is from its targets.

    stage: in the order of fitting, from 1. step: of the rows; None where all serve.
    distance: Wasserstein-1 between targets and fit over the same rows, in standard deviations of
        the targets; the largest of all coordinates.
    floor, spread: mean and standard deviation of what it reads where the fit is right.
    scale: a standard deviation of the targets in those of the return from the initial states.
    """

    stage: int
    step: int | None
    distance: float
    floor: float
    spread: float
    scale: float

    @property
    def excess(self) -> float:
        """What chance does not explain, on average."""
        return max(0.0, self.distance - self.floor)

    @property
    def error(self) -> float:
        """The same in standard deviations of the return from the initial states."""
        return self.excess * self.scale

    @property
    def errors(self) -> float:
        """The same in standard deviations of the floor."""
        return (self.distance - self.floor) / max(self.spread, 1e-12)


@dataclass(frozen=True)
class BellmanErrors:
    """Measured errors of the stages, and what they do to the mean.

    rows: how many rows a stage was measured on, at most. held_out: whether none was trained on.
    represents: stages that each measured one stands for.
    bias: what the mean residuals, weighted by where the policy goes and discounted, would add to
        the mean of the return, in its standard deviations (a doubly robust correction with
        marginalised ratios); the coordinate where it is farthest beyond chance.
    bias_error: its standard error, over episodes.
    """

    stages: tuple[StageError, ...]
    rows: int
    held_out: bool
    represents: float
    bias: float
    bias_error: float

    @property
    def standing_out(self) -> StageError | None:
        """The stage that is worst beyond chance, if any is."""
        from scipy.stats import norm

        limit = norm.isf(FALSE_ALARM / max(len(self.stages), 1))
        found = [one for one in self.stages if one.errors > limit and one.error > WORTH]
        return max(found, key=lambda one: one.error, default=None)

    def as_plain(self) -> dict[str, Any]:
        """For files and machines."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "BellmanErrors":
        """From the content of a file."""
        return cls(**{**plain, "stages": tuple(StageError(**one) for one in plain["stages"])})


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows of one stage: a draw of the fit and one of its target, (n, d) each.

    residuals: target minus fit, (n, d), on average over as many draws as could be afforded.
    """

    index: np.ndarray
    fitted: np.ndarray
    targets: np.ndarray
    residuals: np.ndarray


def bellman_errors(plan: Any, fits: tuple[Fitted, ...], held_out: bool) -> BellmanErrors | None:
    """Of the fits that a plan ended with; None where there are too few rows to tell.

    plan: the `Plan` that was carried out. held_out: whether the stages' held-out rows were kept
        from the fits.
    """
    data, problem = plan.data, plan.problem
    random = Randomness(plan.provenance.seed, Purpose.BELLMAN)
    generator = random.generator
    chosen = _chosen_stages(problem.stages if problem.horizon is not None else 1)
    discounted = problem.horizon is None
    spread = np.maximum(draw_block(fits[-1], plan.probe, generator).std(axis=0), 1e-12)
    visited = _visited(plan)
    errors, parts = [], []
    represents = (problem.stages if not discounted else 1) / len(chosen)
    for number in chosen:
        stage = plan.stages[-1 if discounted else number]
        previous = fits[-1] if discounted else (fits[number - 1] if number else None)
        rows = stage.held_out if held_out else stage.rows
        fitted, draws = fits[-1 if discounted else number], max(1, MOST_DRAWS // len(chosen))
        found = _measured(plan, fitted, previous, rows, draws, generator)
        if len(found.index) < LEAST_ROWS:
            return None
        name = len(plan.stages) if discounted else number + 1
        errors.append(_stage_error(name, stage.step, found, spread, generator))
        # Steps before this stage, in the order of time; all steps are alike where there are none.
        before = 0 if discounted else problem.stages - 1 - number
        weight = 1 / (1 - problem.gamma) if discounted else represents * problem.gamma**before
        parts.append(_residuals(data, found, visited, weight / spread))
    bias, error = _summed(parts)
    number = max(len(one.episodes) for one in parts)
    return BellmanErrors(tuple(errors), number, held_out, represents, bias, error)


def _chosen_stages(number: int) -> list[int]:
    picks = np.linspace(0, number - 1, min(number, MOST_MEASURED)).round().astype(int)
    return [int(pick) for pick in np.unique(picks)]


def _visited(plan: Any) -> np.ndarray:
    """(n,) How often the policy is at each row; equal where it is the log's own."""
    if plan.occupancy is None:
        return np.ones(len(plan.data))
    rows, chances = plan.occupancy.pairs[:2]
    visited = np.zeros(len(plan.data))
    visited[rows] = chances
    return visited


def _measured(
    plan: Any,
    fitted: Fitted,
    previous: Fitted | None,
    rows: np.ndarray,
    draws: int,
    generator: np.random.Generator,
) -> Measured:
    """Draws of the fit, and of its one-step target, at each of some rows."""
    data, encoder, table = plan.data, plan.encoder, plan.target.following
    index = np.sort(generator.permutation(rows)[:SAMPLE_BLOCK])
    here = encoder.inputs(data.observations[index], data.actions[index])
    rewards = (data.rewards[index] - encoder.reward_centre) / encoder.reward_unit
    discounts = (plan.problem.gamma * ~data.terminations[index])[:, None]
    chances = np.cumsum(table.probabilities[index], axis=1)

    def target() -> np.ndarray:
        if previous is None:
            return rewards
        levels = generator.random((len(index), 1)) * chances[:, -1:]
        picks = np.minimum((chances <= levels).sum(axis=1), chances.shape[1] - 1)
        after = encoder.inputs(data.next_observations[index], table.actions[index, picks])
        return rewards + discounts * draw_block(previous, after, generator)

    pairs = [(draw_block(fitted, here, generator), target()) for _ in range(draws)]
    residuals = np.mean([targets - drawn for drawn, targets in pairs], axis=0)
    return Measured(index, *pairs[0], residuals)


def _stage_error(
    number: int,
    step: int | None,
    found: Measured,
    spread: np.ndarray,
    generator: np.random.Generator,
) -> StageError:
    """The coordinate that is farthest beyond its floor."""
    worst: StageError | None = None
    for column, whole in enumerate(spread):
        targets, drawn = found.targets[:, column], found.fitted[:, column]
        unit = max(float(targets.std()), 1e-12)
        swapped = []
        for _ in range(SWAPS):
            swap = generator.random(len(targets)) < 0.5
            swapped.append(
                _w1(np.where(swap, drawn, targets), np.where(swap, targets, drawn)) / unit
            )
        floor, noise = float(np.mean(swapped)), float(np.std(swapped))
        distance = _w1(targets, drawn) / unit
        error = StageError(number, step, distance, floor, noise, unit / float(whole))
        if worst is None or error.errors > worst.errors:
            worst = error
    if worst is None:
        raise ValueError("a return has at least one coordinate")
    return worst


def _w1(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(np.sort(first) - np.sort(second)).mean())


@dataclass(frozen=True, eq=False)
class _Part:
    """What a stage adds to the bias (d,), and by episode how far it is from its mean (n, d)."""

    bias: np.ndarray
    episodes: np.ndarray
    shares: np.ndarray


def _residuals(data: Dataset, found: Measured, visited: np.ndarray, weight: np.ndarray) -> _Part:
    chances = visited[found.index]
    if not chances.sum() > 0:
        chances = np.ones(len(chances))
    chances = chances / chances.sum()
    residuals = found.residuals * weight
    bias = chances @ residuals
    owners = found.index if data.episodes is None else data.episodes[found.index]
    return _Part(bias, owners, chances[:, None] * (residuals - bias))


def _summed(parts: list[_Part]) -> tuple[float, float]:
    """Bias and standard error of the coordinate that is farthest beyond chance."""
    bias = np.sum([part.bias for part in parts], axis=0)
    owners = np.concatenate([part.episodes for part in parts])
    places = np.unique(owners, return_inverse=True)[1]
    errors = [
        np.sqrt(np.sum(np.bincount(places, column) ** 2))
        for column in np.concatenate([part.shares for part in parts]).T
    ]
    worst = int(np.argmax(np.abs(bias) / np.maximum(errors, 1e-12)))
    return float(bias[worst]), float(errors[worst])
