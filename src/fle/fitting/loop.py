"""The Bellman loop: one fit a stage, the same for every law, objective and horizon."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.errors import TrainingError
from fle.fitting.encoding import Encoder, Fitted, Frame, Rows, transitions
from fle.fitting.following import Lines, Trail, by_fit
from fle.fitting.large_logs import Feeding
from fle.fitting.measurement import MEASURED_ROWS, Before, Measurement, StageRecord, measured_rows
from fle.fitting.optimiser import (
    Layout,
    OptimiserState,
    Schedule,
    initial_state,
    layout_of,
    stage_training,
    with_parameters,
)
from fle.fitting.problem import Stage
from fle.fitting.remarks import explained_by, heard, lost_tail, overfitting
from fle.fitting.targets import (
    LINE_BLOCK,
    Purpose,
    Randomness,
    draw_block,
    draw_targets,
    mean_block,
)
from fle.models.law import Law, Sizes, placed
from fle.models.objectives import GradientObjective, Objective, Transition
from fle.models.specs import ModelSpec
from fle.models.support import Support, anywhere, return_limits, support_of
from fle.recipe import HANDICAPS, HELD_OUT, LEAST_ROWS, LEAST_SCALE, WEIGHT_DECAYS, Resolved
from fle.screen import Progress

# The chance at which what a rival says of a fit's residuals is taken for a fault of the fit [0029].
MISSED = 0.01
# Blocks of draws that tell whether the first fit has the tails of the log.
FIRST_BLOCKS = 4
# How often a row may stand among the lines of a stage, each following the log as far as it will.
MOST_COPIES = 8


@dataclass(frozen=True)
class LoopState:
    """All that the next stage depends on, and what the finished ones reached.

    Nothing random is in it: what a stage draws follows from the seed and its number.

    stage: how many stages are finished.
    fits: those that are kept, the last one last.
    optimiser: carried on where the learning rate falls over the whole fit; None before.
    """

    stage: int
    fits: tuple[Fitted, ...]
    optimiser: OptimiserState | None
    weight_decay: float
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    records: tuple[StageRecord, ...]


class Keeper(Protocol):
    """Told of every state, and asked for the last one."""

    def restore(self, blank: Fitted) -> LoopState | None:
        """The state to go on from, if any; `blank` is a fresh fit of the same shapes."""

    def keep(self, state: LoopState) -> None:
        """A stage is finished."""

    def flush(self) -> None:
        """No more states come: whatever is not yet on the disk goes there now."""


class NothingKept:
    """A fit that is not written anywhere."""

    def restore(self, blank: Fitted) -> LoopState | None:
        """Nothing."""
        return None

    def keep(self, state: LoopState) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""


class Fits(Protocol):
    """What an evaluation knows of its fits."""

    @property
    def fits(self) -> tuple[Fitted, ...]:
        """One for each step."""

    @property
    def records(self) -> tuple[StageRecord, ...]:
        """Of every stage."""


@dataclass(frozen=True)
class Finished(NothingKept):
    """The fits of an evaluation that serve another one too: there is nothing left to train."""

    evaluation: Fits

    def restore(self, blank: Fitted) -> LoopState | None:
        """The state after the last stage."""
        fits, records = self.evaluation.fits, self.evaluation.records
        note = "the fit is shared with another policy: what one step earns depends on none"
        return LoopState(len(records), fits, None, 0.0, (note,), (), records)


Training = Callable[
    [GradientObjective, Law, OptimiserState, float], tuple[OptimiserState, np.ndarray]
]


class Outcome(NamedTuple):
    """What fitting a stage gave; the loss is NaN where the fit has none."""

    law: Law
    optimiser: OptimiserState | None
    loss: float


@dataclass(frozen=True, eq=False)
class Loop:
    """All that does not change between stages. What does is one value, the `LoopState`.

    trail: how far targets follow the log.
    kept: how many of the last fits the result needs; all of them where there is a horizon.
    probe: inputs at the initial states, at which every stage is asked what it says.
    warm: fits of the same plan under other weights to begin from; see `refit`.
    feeding: of a log that is too large to be held at once, what stages are trained on; `rows` are
        some of it, on which they are measured.
    """

    spec: ModelSpec
    recipe: Resolved
    encoder: Encoder
    rows: Rows
    trail: Trail
    weights: np.ndarray | None
    stages: tuple[Stage, ...]
    probe: np.ndarray
    kept: int
    finite: bool
    seed: int
    warm: tuple[Fitted, ...] = ()
    feeding: Feeding | None = None

    def fed(self, number: int) -> "tuple[Loop, np.ndarray]":
        """The loop over the rows that a stage is trained on, and which of them it uses."""
        stage = self.stages[number]
        if self.feeding is None:
            return self, stage.rows
        fed = self.feeding.at(number, stage.step, len(self.stages))
        if fed is None:
            return self, stage.rows
        rows, trail, weights, places = fed
        return replace(self, rows=rows, trail=trail, weights=weights, feeding=None), places

    @cached_property
    def objective(self) -> Objective:
        """How the law is fitted."""
        objective = self.spec.fitted_by(self.recipe)
        if not self.several:
            return objective
        across = objective.measured_by.across_fits()
        if across is None:
            raise TypeError(f"{type(objective).__name__} cannot ask several fits; follow no log.")
        return across

    @property
    def several(self) -> bool:
        """Whether targets that follow the log ask different fits: those of later steps."""
        return self.kept > 1 and self.trail.follows

    @cached_property
    def blank(self) -> Fitted:
        """A fresh law in a frame that changes nothing."""
        return blank_fit(self.spec, self.recipe, self.encoder.sizes, self.seed)

    @cached_property
    def limits(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of the returns of every fit."""
        trail, horizon = self.trail, len(self.stages) if self.finite else None
        limits = return_limits(trail.rewards, trail.terminations, trail.gamma, horizon)
        return limits if self.finite else limits * len(self.stages)

    @cached_property
    def most_rows(self) -> int:
        """Of any stage: others are filled up to as many, so that all have one shape."""
        return max(stage.rows.size for stage in self.stages)

    @cached_property
    def measurement(self) -> Measurement:
        """How every stage is measured."""
        return Measurement(
            self.objective.measured_by,
            self.encoder,
            self.rows,
            self.trail,
            self.probe,
            self.recipe.draws,
            self.measured_rows,
        )

    @property
    def measured_rows(self) -> int:
        """With a horizon as many as tell one weight decay from another, by the same program."""
        if self.finite:
            return MEASURED_ROWS
        return measured_rows(max(stage.held_out.size for stage in self.stages))

    @cached_property
    def layout(self) -> Layout:
        """How the training of every stage is laid out in memory."""
        return layout_of(
            self.measurement.update(
                self.measurement.objective, self.before(self.first()), self.blank
            ),
            self.recipe.steps,
            self.recipe.batch_size,
            self.most_rows,
            copies=1 if self.trail.is_certain else MOST_COPIES,
            several=self.several,
        )

    def before(self, state: LoopState) -> Before:
        """The fits that the next stage may ask."""
        last = len(state.fits) - 1
        left = state.stage + 1 if self.finite else None
        latest = state.fits[-1] if state.fits else self.blank
        if not self.several:
            return Before((latest,), last, left)
        fits = [*state.fits, *[self.blank] * (len(self.stages) - len(state.fits))]
        return Before(tuple(fits), last, left)

    def run(self, keeper: Keeper, progress: Progress) -> LoopState:
        """The state after the last stage, with the last `kept` fits and all records."""
        restored = keeper.restore(self.blank)
        state = self.first() if restored is None else restored
        resumed = "" if restored is None else f", from stage {state.stage + 1}"
        progress.start(len(self.stages), self.spec.name + resumed)
        try:
            while state.stage < len(self.stages):
                state = self.advance(state)
                keeper.keep(state)
                progress.advance(state.stage, state.records[-1].held_out_loss)
        except (TrainingError, KeyboardInterrupt):
            keeper.flush()
            raise
        finally:
            progress.finish()
        keeper.flush()
        return state

    def refit(self, going_on: Callable[[], None]) -> tuple[Fitted, ...]:
        """The fits of all stages from the warm ones on; none is measured.

        going_on: called after every stage; may raise to stop it.
        """
        state = self.first()
        while state.stage < len(self.stages):
            random = Randomness(self.seed, Purpose.FIT, state.stage)
            fitted, outcome = self._fitted(state, self.before(state), state.weight_decay, random)
            state = self._with(state, fitted, outcome)
            going_on()
        return state.fits

    def first(self) -> LoopState:
        """The state before the first stage."""
        decay = self.recipe.weight_decay
        light = WEIGHT_DECAYS[0] if decay == HELD_OUT else float(decay)
        begun = () if self.finite else self.warm
        return LoopState(0, begun, None, light, (), (), ())

    def advance(self, state: LoopState) -> LoopState:
        """The state after one more stage."""
        began = time.perf_counter()
        number = state.stage
        stage = self.stages[number]
        before = self.before(state)
        decay, notes = self._chosen_decay(state, before)
        random = Randomness(self.seed, Purpose.FIT, number)
        fitted, outcome = self._fitted(state, before, decay, random)
        record = self.measurement.record(number, stage, before, fitted, outcome.loss, began, random)
        if number == len(self.stages) - 1 and self.measurement.objective.in_nats:
            known = self._loss_of_known_rows(stage, before, fitted, random)
            notes += overfitting(known, record.held_out_loss, stage.held_out.size)
        return replace(
            self._with(state, fitted, outcome),
            weight_decay=decay,
            notes=(*state.notes, *notes),
            warnings=(*state.warnings, *self._reservations(state, before, fitted, random)),
            records=(*state.records, record),
        )

    def _fitted(
        self, state: LoopState, before: Before, decay: float, random: Randomness
    ) -> tuple[Fitted, Outcome]:
        """The fit of the next stage."""
        frame, support = self._frame(state.stage, before, random)
        outcome = self.objective.fit(StageTask(self, state, before, frame, support, decay, random))
        return Fitted(outcome.law, frame, support), outcome

    def _with(self, state: LoopState, fitted: Fitted, outcome: Outcome) -> LoopState:
        """The state with one more fit."""
        return replace(
            state,
            stage=state.stage + 1,
            fits=(*state.fits, fitted)[-self.kept :],
            optimiser=outcome.optimiser if self.recipe.schedule == "fit" else None,
        )

    def positions(self, rows: np.ndarray, number: int, random: Randomness) -> np.ndarray:
        """Places among the rows, drawn by their weights."""
        levels = None if self.weights is None else self.weights[rows]
        if levels is not None:
            np.cumsum(levels, out=levels)
        return random.positions(rows.size, levels, number)

    def training(self, number: int, stages: int, rows: np.ndarray, task: "StageTask") -> Training:
        """The training of a stage, with all that is random drawn already."""
        recipe = self.recipe
        lines, batches = self._lines(rows, task.before, task.random)
        schedule = Schedule(
            placed(batches.reshape(recipe.steps, recipe.batch_size).astype(np.int32)),
            placed(recipe.learning_rates(number, stages)),
            placed(recipe.average_rates()),
        )
        key = task.random.key()

        def train(
            objective: GradientObjective, law: Law, state: OptimiserState, weight_decay: float
        ) -> tuple[OptimiserState, np.ndarray]:
            fitted = Fitted(law, task.frame, task.support)
            update = self.measurement.update(objective, task.before, fitted)
            state, losses = stage_training(recipe.batch_size)(
                update, state, lines, schedule, jnp.float32(weight_decay), key, self.layout
            )
            return state, np.asarray(losses)

        return train

    def _lines(
        self, rows: np.ndarray, before: Before, random: Randomness
    ) -> tuple[Lines, np.ndarray]:
        """What follows the rows of a stage, and which of these lines each use has."""
        uses = self.positions(rows, self.recipe.steps * self.recipe.batch_size, random)
        if not self.layout.tabulated:
            return before.lines(self.trail, rows[uses], random.generator), np.arange(uses.size)
        copies = self.layout.copies
        # Stages of fewer rows are filled up, so that all have one shape.
        used = np.tile(np.resize(rows, self.most_rows), copies)
        lines = before.lines(self.trail, used, random.generator)
        if copies > 1:
            uses = uses + self.most_rows * random.generator.integers(copies, size=uses.size)
        if before.several:
            lines, places = by_fit(lines, LINE_BLOCK, len(before.fits))
            uses = places[uses]
        return lines, uses

    def _chosen_decay(self, state: LoopState, before: Before) -> tuple[float, tuple[str, ...]]:
        """Fit four fifths of a stage's rows with each decay, judge by the rest."""
        number, stage = state.stage, self.stages[state.stage]
        decays = sorted({state.weight_decay, *stage.decays})
        objective = self.objective.measured_by
        if len(decays) == 1 or stage.rows.size < LEAST_ROWS or objective is not self.objective:
            return state.weight_decay, ()
        random = Randomness(self.seed, Purpose.CHOICE, number)
        previous = before.latest
        frame, support = self._frame(number, before, random)
        task = StageTask(self, state, before, frame, support, state.weight_decay, random)
        fitting, judging = np.split(stage.rows, [4 * stage.rows.size // 5])
        train = self.training(0, 1, fitting, task)

        def candidate(decay: float) -> Fitted:
            trained, _ = train(objective, previous.law, initial_state(previous.law), decay)
            return Fitted(with_parameters(previous.law, trained.average), frame, support)

        # At first one alone, so that the others find the program compiled and can share the cores.
        alone = 0 if state.fits else 1
        candidates = [candidate(decay) for decay in decays[:alone]]
        with ThreadPoolExecutor(len(decays)) as pool:
            candidates += pool.map(candidate, decays[alone:])
        index = np.resize(judging, MEASURED_ROWS)
        losses = [
            self.measurement.held_out_loss(before, fitted, index, random) for fitted in candidates
        ]
        excess = np.array(losses) - np.nanmin(losses)
        # Rewards alone can be learned by heart; a bias of later stages adds up.
        handicaps = HANDICAPS[0 if stage.discount == 0 else 1]
        # Where no candidate has a loss, the fit itself will say so.
        judged = np.nan_to_num(excess + [handicaps[decay] for decay in decays], nan=np.inf)
        # Candidates come with the weakest decay first, which no other can find to miss anything.
        missing = self._missing(before, candidates, judging, random)
        judged[missing] = np.inf
        chosen = decays[int(np.argmin(judged))]
        compared = ", ".join(
            f"{decay:g}: {worse:+.3f}{' and its means miss what a weaker one sees' if off else ''}"
            for decay, worse, off in zip(decays, excess, missing, strict=True)
        )
        return chosen, (
            f"weight decay {chosen:g} from stage {number + 1} on, by the loss on held-out rows, "
            f"relative to the best ({compared})",
        )

    def _missing(
        self, before: Before, candidates: list[Fitted], judging: np.ndarray, random: Randomness
    ) -> np.ndarray:
        """Which candidates miss what one before them sees of the means of held-out returns.

        A likelihood may gain more by the shape of a law than it loses by means that do not look at
        the inputs. But means by action are where a policy differs from the log.
        """
        index = np.resize(judging, MEASURED_ROWS)
        lines = before.lines(self.trail, index, random.generator)
        targets = draw_targets(
            list(before.fits), self.rows, lines, self.encoder.sizes, random.generator
        )
        # What only fills up says nothing new.
        used = slice(min(judging.size, MEASURED_ROWS))
        inputs = self.measurement.inputs(index)

        def means() -> list[np.ndarray]:
            return [mean_block(fitted, inputs, random.generator)[used] for fitted in candidates]

        # Drawn twice: an error of the draws in residuals and differences alike would go together.
        own, others = means(), means()

        def misses(k: int, weaker: np.ndarray) -> bool:
            residuals = targets[used] - own[k]
            return explained_by(residuals, heard(residuals, weaker - others[k])) < MISSED

        return np.array(
            [any(misses(k, weaker) for weaker in others[:k]) for k in range(len(candidates))]
        )

    def _reservations(
        self, state: LoopState, before: Before, fitted: Fitted, random: Randomness
    ) -> tuple[str, ...]:
        """Whether the first fit has the tails of what it was fitted to.

        Where one update is repeated, the first fit is but a beginning.
        """
        if state.stage > 0 or not self.finite:
            return ()
        rows, targets, drawn = self.stages[0].rows, [], []
        for _ in range(FIRST_BLOCKS):
            index = rows[self.positions(rows, MEASURED_ROWS, random)]
            lines = before.lines(self.trail, index, random.generator)
            targets.append(lines.rewards)
            drawn.append(draw_block(fitted, self.measurement.inputs(index), random.generator))
        return lost_tail(np.concatenate(targets), np.concatenate(drawn), rows.size)

    def _loss_of_known_rows(
        self, stage: Stage, before: Before, fitted: Fitted, random: Randomness
    ) -> float:
        """Measured as on held-out rows, so that the two can be compared."""
        places = np.linspace(0, stage.rows.size - 1, self.measured_rows).astype(int)
        return self.measurement.held_out_loss(before, fitted, stage.rows[places], random)

    def _frame(self, number: int, before: Before, random: Randomness) -> tuple[Frame, Support]:
        """Standardise by the stage's targets, unless they hardly moved and none is out of reach.

        The same targets show where returns can lie.
        """
        previous = before.latest
        if self.recipe.frame_is_settled(number, len(self.stages)):
            return previous.frame, previous.support
        stage = self.stages[number]
        index = stage.rows[self.positions(stage.rows, MEASURED_ROWS, random)]
        lines = before.lines(self.trail, index, random.generator)
        targets = draw_targets(
            list(before.fits), self.rows, lines, self.encoder.sizes, random.generator
        )
        centre, scale = self.spec.frame(targets)
        scale = np.maximum(scale, LEAST_SCALE)
        # A row that is drawn again has the same rewards, which makes no atom.
        rows = np.unique(index, return_index=True)[1]
        support = previous.support
        if self.spec.any_shape:
            support = support_of(targets[rows], self.limits[number])
        old_centre, old_scale = (np.asarray(value) for value in previous.frame)
        moved = np.abs(centre - old_centre) / old_scale
        stretched = np.abs(np.log(scale / old_scale))
        close = max(moved.max(), stretched.max()) <= self.recipe.frame_tolerance
        held = not previous.law.bounded or np.all(np.abs(targets - old_centre) <= old_scale)
        if before.last >= 0 and close and held:
            return previous.frame, support
        return Frame(placed(centre), placed(scale)), support


@dataclass(frozen=True, eq=False)
class StageTask:
    """What an objective may use to fit one stage (see `StageFit` in `models/objectives.py`)."""

    loop: Loop
    state: LoopState
    before: Before
    frame: Frame
    support: Support
    weight_decay: float
    random: Randomness

    @property
    def stage(self) -> Stage:
        """The stage to fit."""
        return self.loop.stages[self.state.stage]

    @property
    def previous(self) -> Law:
        """The law that next returns are drawn from."""
        return self.before.latest.law

    @cached_property
    def law(self) -> Law:
        """The law to begin with."""
        if self.loop.warm and self.loop.finite:
            return self.loop.warm[self.state.stage].law
        if self.loop.recipe.start == "previous":
            return self.previous
        return self.loop.spec.build(
            self.loop.encoder.sizes, self.loop.recipe, self.random.generator
        )

    def minimise(self, objective: GradientObjective) -> Outcome:
        """Train the law by stochastic gradients; its parameters are the average of the last."""
        number, stages = self.state.stage, len(self.loop.stages)
        law, optimiser = self.law, self.state.optimiser
        if optimiser is None:
            optimiser = initial_state(law)
        loop, rows = self.loop.fed(number)
        train = loop.training(number, stages, rows, self)
        optimiser, losses = train(objective, law, optimiser, self.weight_decay)
        finite = np.append(np.isfinite(losses), np.isfinite(optimiser.average).all())
        if not finite.all():
            step = int(np.argmin(finite))
            raise TrainingError(
                f"The loss of stage {number + 1} of {stages} is not a number from step {step} on. "
                "The last good stage is the one before. Lower the learning rate (now "
                f"{self.loop.recipe.learning_rate:g}) or look for extreme rewards in the data."
            )
        loss = float(losses[-max(1, losses.size // 10) :].mean())
        return Outcome(with_parameters(law, optimiser.average), optimiser, loss)

    def solved(self, law: Law) -> Outcome:
        """A law that was fitted at once."""
        return Outcome(law, None, np.nan)

    def transitions(self) -> Transition:
        """The rows of the stage, filled up so that all stages have the same number."""
        rows = np.resize(self.stage.rows, self.loop.most_rows)
        lines = self.before.lines(self.loop.trail, rows, self.random.generator)
        return transitions(
            self.loop.rows, lines, self.loop.encoder.sizes, self.before.latest, self.frame
        )

    def weights(self) -> Float[Array, " rows"]:
        """Of mean 1; rows that only fill up have none."""
        used, given = self.stage.rows.size, self.loop.weights
        weights = np.ones(used) if given is None else given[self.stage.rows]
        padded = np.pad(weights / weights.mean(), (0, self.loop.most_rows - used))
        return placed(padded)


def blank_fit(spec: ModelSpec, recipe: Resolved, sizes: Sizes, seed: int) -> Fitted:
    """A fresh law in a frame that changes nothing."""
    frame = Frame(placed(np.zeros(sizes.returns)), placed(np.ones(sizes.returns)))
    generator = Randomness(seed, Purpose.FIRST_LAW).generator
    return Fitted(spec.build(sizes, recipe, generator), frame, anywhere(sizes.returns))
