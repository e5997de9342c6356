"""The Bellman loop: one maximum-likelihood fit a stage, the same for every model and horizon."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fle.errors import TrainingError
from fle.fitting.checkpoints import Keeper, LoopState
from fle.fitting.encoding import Encoder, Fitted, Frame, Limits, Rows, transitions
from fle.fitting.limits import return_limits
from fle.fitting.measuring import MEASURED_ROWS, Measure
from fle.fitting.optimise import (
    TrainingState,
    initial_state,
    parameters_of,
    stage_training,
    with_parameters,
)
from fle.fitting.progress import Progress
from fle.fitting.randomness import Randomness
from fle.fitting.remarks import overfitting
from fle.fitting.sampling import draw_targets
from fle.fitting.settings import Training
from fle.fitting.stages import Stage
from fle.models.base import DensityModel, ExactModel, GradientModel, ModelSpec, Sizes

# Weight decays from light to strong, and how many nats better one must be to be chosen, at the
# first stage and for all later ones: its bias is worth as much. The fewest rows for a choice.
WEIGHT_DECAYS = (0.03, 0.3, 3.0)
HANDICAPS = ({0.03: 0.0, 0.3: 0.01, 3.0: 0.05}, {0.03: 0.0, 0.3: 0.03, 3.0: 0.05})
LEAST_ROWS = 200
# Least scale of returns, in units of the rewards: where all are zero, it would shrink to nothing.
LEAST_SCALE = 1e-6


class BellmanLoop:
    """Fits the stages in order; holds what does not change between them."""

    def __init__(
        self,
        spec: ModelSpec,
        encoder: Encoder,
        rows: Rows,
        weights: np.ndarray | None,
        initial_inputs: np.ndarray,
        training: Training,
        seed: int,
    ):
        self._spec = spec
        self._encoder = encoder
        self._rows = rows
        self._weights = weights
        self._measure = Measure(encoder, rows, initial_inputs, training.draws)
        self._training = training
        self._seed = seed
        self._random = Randomness.before(seed)
        self._state: TrainingState | None = None
        self._most_rows = 0
        self._limits: list[Limits] = []
        self._weight_decay = training.weight_decay or 0.0

    def run(
        self, stages: Sequence[Stage], kept: int, keeper: Keeper, progress: Progress
    ) -> LoopState:
        """The state after the last stage, with the last `kept` fits and all records."""
        blank = blank_fit(self._spec, self._encoder.sizes, self._random)
        self._most_rows = max(stage.rows.size for stage in stages)
        self._limits = return_limits(self._rows, [stage.discount for stage in stages])
        restored = keeper.restore(blank)
        state = self._first_state(stages[0], blank) if restored is None else restored
        self._state, self._weight_decay = state.optimiser, state.weight_decay
        resumed = "" if restored is None else f", from stage {state.stage + 1}"
        progress.start(len(stages), self._spec.name + resumed)
        try:
            for number in range(state.stage, len(stages)):
                state = self._next_state(state, stages, blank, kept)
                keeper.keep(state)
                progress.advance(number + 1, state.records[-1].held_out_loss)
        except (TrainingError, KeyboardInterrupt):
            keeper.flush()
            raise
        finally:
            progress.finish()
        keeper.flush()
        return state

    def _first_state(self, stage: Stage, blank: Fitted) -> LoopState:
        notes: tuple[str, ...] = ()
        blank = blank._replace(limits=self._limits[0])
        if self._training.weight_decay is None:
            notes = self._choose_weight_decay(0, stage, blank, WEIGHT_DECAYS)
        return LoopState(0, (), None, self._weight_decay, notes, ())

    def _next_state(
        self, state: LoopState, stages: Sequence[Stage], blank: Fitted, kept: int
    ) -> LoopState:
        began = time.perf_counter()
        number = state.stage
        stage = stages[number]
        self._random = Randomness(self._seed, number + 1)
        previous = state.fits[-1] if state.fits else blank
        previous = previous._replace(limits=self._limits[number])
        notes = state.notes
        light, used = WEIGHT_DECAYS[0], self._weight_decay
        if number == 1 and self._training.weight_decay is None and used != light:
            notes += self._choose_weight_decay(number, stage, previous, (light, used))
        fitted, loss = self._fit(number, len(stages), stage, previous)
        record = self._measure.record(number, stage, previous, fitted, loss, began, self._random)
        if number == len(stages) - 1 and isinstance(fitted.model, DensityModel):
            known = self._loss_of_known_rows(stage, previous, fitted)
            notes += overfitting(known, record.held_out_loss, stage.held_out.size)
        return replace(
            state,
            stage=number + 1,
            fits=(*state.fits, fitted)[-kept:],
            optimiser=self._state if self._training.decay == "fit" else None,
            weight_decay=self._weight_decay,
            notes=notes,
            records=(*state.records, record),
        )

    def _fit(
        self, number: int, stages: int, stage: Stage, previous: Fitted
    ) -> tuple[Fitted, float]:
        frame = previous.frame
        if not self._training.frame_is_settled(number, stages):
            frame = self._frame(number, stage, previous)
        if isinstance(previous.model, ExactModel):
            return self._fit_exactly(stage, previous, frame)
        if not isinstance(previous.model, GradientModel):
            raise TypeError(f"{type(previous.model).__name__} is neither Gradient- nor ExactModel.")
        model = previous.model
        if self._training.start == "fresh":
            model = with_parameters(model, self._fresh_parameters())
        if self._state is None or self._training.decay == "stage":
            self._state = initial_state(model)
        train = self._training_of(number, stages, stage.rows, stage.discount, previous, frame)
        self._state, losses = train(model, self._state, self._weight_decay)
        finite = np.append(np.isfinite(losses), np.isfinite(self._state.average).all())
        if not finite.all():
            step = int(np.argmin(finite))
            raise TrainingError(
                f"The loss of stage {number + 1} of {stages} is not a number from step {step} on. "
                "The last good stage is the one before. Lower the learning rate (now "
                f"{self._training.learning_rate:g}) or look for extreme rewards in the data."
            )
        fitted = Fitted(with_parameters(model, self._state.average), frame)
        return fitted, float(losses[-max(1, losses.size // 10) :].mean())

    def _training_of(
        self,
        number: int,
        stages: int,
        rows: np.ndarray,
        discount: float,
        previous: Fitted,
        frame: Frame,
    ) -> Callable[[GradientModel, TrainingState, float], tuple[TrainingState, np.ndarray]]:
        """The training of a stage, with all that is random drawn already."""
        batches, key = self._batches(rows), self._random.key()

        def train(
            model: GradientModel, state: TrainingState, weight_decay: float
        ) -> tuple[TrainingState, np.ndarray]:
            state, losses = stage_training(self._training.batch_size)(
                model,
                state,
                previous,
                frame,
                self._rows,
                batches,
                jnp.asarray(np.resize(rows, self._most_rows)),
                jnp.asarray(self._training.learning_rates(number, stages)),
                jnp.asarray(self._training.average_rates()),
                jnp.float32(discount),
                jnp.float32(weight_decay),
                key,
                sizes=self._encoder.sizes,
                draws=self._training.draws,
            )
            return state, np.asarray(losses)

        return train

    def _choose_weight_decay(
        self, number: int, stage: Stage, previous: Fitted, decays: Sequence[float]
    ) -> tuple[str, ...]:
        """Fit four fifths of a stage's rows with each decay, judge by the rest.

        Targets of the first stage are rewards alone, the same at every use of a row, and can be
        learned by heart; those of later stages are mostly drawn afresh, and decay that is not
        light is therefore put to the test again there.
        """
        self._weight_decay = decays[0]
        model = previous.model
        if not isinstance(model, GradientModel) or stage.rows.size < LEAST_ROWS:
            return ()
        frame = self._frame(number, stage, previous)
        fitting, judging = np.split(stage.rows, [4 * stage.rows.size // 5])
        index = np.resize(judging, MEASURED_ROWS)
        train = self._training_of(0, 1, fitting, stage.discount, previous, frame)

        def candidate(decay: float) -> Fitted:
            state, _ = train(model, initial_state(model), decay)
            return Fitted(with_parameters(model, state.average), frame)

        # At first one alone, so that the others find the program compiled and can share the cores.
        alone = 1 if number == 0 else 0
        candidates = [candidate(decay) for decay in decays[:alone]]
        with ThreadPoolExecutor(len(decays)) as pool:
            candidates += pool.map(candidate, decays[alone:])
        losses = [
            self._measure.held_out_loss(stage, previous, fitted, index, self._random)
            for fitted in candidates
        ]
        excess = np.array(losses) - np.nanmin(losses)
        handicaps = [HANDICAPS[number][decay] for decay in decays]
        # Where no candidate has a loss, the fit itself will say so.
        judged = np.nan_to_num(excess + handicaps, nan=np.inf)
        self._weight_decay = decays[int(np.argmin(judged))]
        compared = ", ".join(f"{d:g}: {e:+.3f}" for d, e in zip(decays, excess, strict=True))
        return (
            f"weight decay {self._weight_decay:g} from stage {number + 1} on, by the loss on rows "
            f"kept aside, relative to the best ({compared})",
        )

    def _loss_of_known_rows(self, stage: Stage, previous: Fitted, fitted: Fitted) -> float:
        """Measured as on rows kept aside, so that the two can be compared."""
        places = np.linspace(0, stage.rows.size - 1, MEASURED_ROWS).astype(int)
        return self._measure.held_out_loss(
            stage, previous, fitted, stage.rows[places], self._random
        )

    def _fit_exactly(self, stage: Stage, previous: Fitted, frame: Frame) -> tuple[Fitted, float]:
        """With rows of weight zero added, so that all stages have the same number of rows."""
        model, before, limits = previous
        used = stage.rows.size
        batch = transitions(
            self._rows,
            jnp.asarray(np.resize(stage.rows, self._most_rows)),
            self._encoder.sizes,
            jnp.float32(stage.discount),
            before,
            limits,
            frame,
        )
        weights = np.ones(used) if self._weights is None else self._weights[stage.rows]
        padded = np.pad(weights / weights.mean(), (0, self._most_rows - used))
        refitted = model.refit(model, batch, jnp.asarray(padded, jnp.float32))  # type: ignore[attr-defined]
        return Fitted(refitted, frame), np.nan

    def _frame(self, number: int, stage: Stage, previous: Fitted) -> Frame:
        """Standardise by the stage's targets, unless they hardly moved and none is out of reach."""
        index = stage.rows[self._positions(stage.rows, MEASURED_ROWS)]
        sizes, generator = self._encoder.sizes, self._random.generator
        targets = draw_targets(previous, self._rows, index, stage.discount, sizes, generator)
        centre, scale = self._spec.frame(targets)
        scale = np.maximum(scale, LEAST_SCALE)
        old_centre, old_scale = (np.asarray(value) for value in previous.frame)
        moved = np.abs(centre - old_centre) / old_scale
        stretched = np.abs(np.log(scale / old_scale))
        close = max(moved.max(), stretched.max()) <= self._training.frame_tolerance
        held = not previous.model.bounded or np.all(np.abs(targets - old_centre) <= old_scale)
        if number > 0 and close and held:
            return previous.frame
        return Frame(jnp.asarray(centre, jnp.float32), jnp.asarray(scale, jnp.float32))

    def _batches(self, rows: np.ndarray) -> Int[Array, "steps batch"]:
        """Positions in `rows` for every step."""
        shape = (self._training.steps, self._training.batch_size)
        positions = self._positions(rows, shape[0] * shape[1])
        return jnp.asarray(positions.reshape(shape).astype(np.int32))

    def _positions(self, rows: np.ndarray, number: int) -> np.ndarray:
        weights = None if self._weights is None else self._weights[rows]
        return self._random.positions(rows.size, weights, number)

    def _fresh_parameters(self) -> Float[Array, " p"]:
        return parameters_of(blank_fit(self._spec, self._encoder.sizes, self._random).model)


def blank_fit(spec: ModelSpec, sizes: Sizes, random: Randomness) -> Fitted:
    """A fresh model in a frame that changes nothing."""
    frame = Frame(jnp.zeros(sizes.returns), jnp.ones(sizes.returns))
    return Fitted(spec.build(sizes, random.generator), frame)
