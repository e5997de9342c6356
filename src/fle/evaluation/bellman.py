"""The Bellman loop: one maximum-likelihood fit a stage, the same for every model and horizon."""

import time
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fle.errors import TrainingError
from fle.evaluation.encoding import Encoder, Fitted, Frame, Rows, row_inputs, transitions
from fle.evaluation.optimise import (
    TrainingState,
    Update,
    draw_targets,
    initial_state,
    mean_loss,
    parameters_of,
    train_stage,
    with_parameters,
)
from fle.evaluation.progress import Progress
from fle.evaluation.records import StageRecord
from fle.evaluation.settings import Training
from fle.evaluation.stages import Stage
from fle.models.base import TINY, DensityModel, ExactModel, GradientModel, ModelSpec
from fle.returns.risk import cvar

MEASURED_ROWS = 8_192
RISK_LEVEL = 0.1
# Light and strong weight decay, how much likelihood light decay may cost before strong is used,
# and the fewest rows on which that can be told.
WEIGHT_DECAYS = (0.03, 0.3)
TOLERATED_OVERFITTING = 0.03
LEAST_ROWS = 200


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
        self._initial_inputs = jnp.asarray(initial_inputs)
        self._training = training
        self._generator = np.random.default_rng([seed, 1])
        self._key = jax.random.key(seed)
        self._state: TrainingState | None = None
        self._most_rows = 0
        self._weight_decay = training.weight_decay or 0.0
        self.notes: list[str] = []

    def run(
        self, stages: Sequence[Stage], progress: Progress
    ) -> tuple[list[Fitted], list[StageRecord]]:
        """The fitted model and the record of every stage."""
        model = self._spec.build(self._encoder.sizes, self._generator)
        d = self._encoder.sizes.returns
        previous = Fitted(model, Frame(jnp.zeros(d), jnp.ones(d)))
        self._most_rows = max(stage.rows.size for stage in stages)
        if self._training.weight_decay is None:
            self._choose_weight_decay(stages[0], previous)
        fits, records = [], []
        progress.start(len(stages), self._spec.name)
        try:
            for number, stage in enumerate(stages):
                began = time.perf_counter()
                fitted, loss = self._fit(number, len(stages), stage, previous)
                record = self._measure(number, stage, previous, fitted, loss, began)
                progress.advance(number + 1, record.held_out_loss)
                fits.append(fitted)
                records.append(record)
                previous = fitted
        finally:
            progress.finish()
        return fits, records

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
        self._state, losses = self._train(
            model, self._state, number, stages, stage.rows, stage.discount, previous, frame
        )
        if not np.all(np.isfinite(losses)):
            step = int(np.argmin(np.isfinite(losses)))
            raise TrainingError(
                f"The loss of stage {number + 1} of {stages} is not a number from step {step} on. "
                "The last good stage is the one before. Lower the learning rate (now "
                f"{self._training.learning_rate:g}) or look for extreme rewards in the data."
            )
        fitted = Fitted(with_parameters(model, self._state.average), frame)
        return fitted, float(losses[-max(1, losses.size // 10) :].mean())

    def _train(
        self,
        model: GradientModel,
        state: TrainingState,
        number: int,
        stages: int,
        rows: np.ndarray,
        discount: float,
        previous: Fitted,
        frame: Frame,
    ) -> tuple[TrainingState, np.ndarray]:
        state, losses = train_stage(
            model,
            state,
            previous,
            frame,
            self._rows,
            self._batches(rows),
            jnp.asarray(np.resize(rows, self._most_rows)),
            jnp.asarray(self._training.learning_rates(number, stages)),
            jnp.asarray(self._training.average_rates()),
            jnp.float32(discount),
            jnp.float32(self._weight_decay),
            self._next_key(),
            sizes=self._encoder.sizes,
            draws=self._training.draws,
        )
        return state, np.asarray(losses)

    def _choose_weight_decay(self, stage: Stage, previous: Fitted) -> None:
        """Fit half of the first stage's rows lightly and strongly decayed, judge by the other half.

        Light decay is kept unless it overfits badly: a bias that is too small to show in one stage
        adds up over many, while noise partly averages out.
        """
        light, strong = WEIGHT_DECAYS
        self._weight_decay = light
        model = previous.model
        if not isinstance(model, GradientModel) or stage.rows.size < LEAST_ROWS:
            return
        frame = self._frame(0, stage, previous)
        fitted_half, judging_half = np.array_split(stage.rows, 2)
        index = jnp.asarray(np.resize(judging_half, MEASURED_ROWS))
        losses = []
        for decay in WEIGHT_DECAYS:
            self._weight_decay = decay
            state, _ = self._train(
                model, initial_state(model), 0, 1, fitted_half, stage.discount, previous, frame
            )
            fitted = Fitted(with_parameters(model, state.average), frame)
            losses.append(self._held_out_loss(stage, previous, fitted, index))
        overfits = losses[0] - losses[1] > TOLERATED_OVERFITTING
        self._weight_decay = strong if overfits else light
        self.notes.append(
            f"weight decay {self._weight_decay:g}: on rows kept aside, {light:g} is "
            f"{losses[0] - losses[1]:+.3f} worse in log likelihood than {strong:g}"
        )

    def _fit_exactly(self, stage: Stage, previous: Fitted, frame: Frame) -> tuple[Fitted, float]:
        index = jnp.asarray(stage.rows)
        batch = transitions(
            self._rows,
            index,
            self._encoder.sizes,
            jnp.float32(stage.discount),
            previous.frame,
            frame,
        )
        weights = np.ones(index.size) if self._weights is None else self._weights[stage.rows]
        model = previous.model.refit(  # type: ignore[attr-defined]
            previous.model, batch, jnp.asarray(weights / weights.mean(), jnp.float32)
        )
        return Fitted(model, frame), np.nan

    def _frame(self, number: int, stage: Stage, previous: Fitted) -> Frame:
        """Standardise by the stage's targets, unless they hardly moved."""
        index = jnp.asarray(stage.rows[self._positions(stage.rows, MEASURED_ROWS)])
        d = self._encoder.sizes.returns
        targets = draw_targets(
            previous,
            Frame(jnp.zeros(d), jnp.ones(d)),
            self._rows,
            index,
            jnp.float32(stage.discount),
            self._next_key(),
            sizes=self._encoder.sizes,
        )
        centre, scale = self._spec.frame(np.asarray(targets, np.float64))
        old_centre, old_scale = (np.asarray(value) for value in previous.frame)
        moved = np.abs(centre - old_centre) / old_scale
        stretched = np.abs(np.log(scale / old_scale))
        if number > 0 and max(moved.max(), stretched.max()) <= self._training.frame_tolerance:
            return previous.frame
        return Frame(jnp.asarray(centre, jnp.float32), jnp.asarray(scale, jnp.float32))

    def _batches(self, rows: np.ndarray) -> Int[Array, "steps batch"]:
        """Positions in `rows` for every step."""
        shape = (self._training.steps, self._training.batch_size)
        positions = self._positions(rows, shape[0] * shape[1])
        return jnp.asarray(positions.reshape(shape).astype(np.int32))

    def _positions(self, rows: np.ndarray, number: int) -> np.ndarray:
        """Positions in `rows`: whole passes in random order, or draws in proportion to weights."""
        if self._weights is not None:
            weights = self._weights[rows]
            return self._generator.choice(rows.size, number, p=weights / weights.sum())
        passes = -(-number // rows.size)
        shuffled = [self._generator.permutation(rows.size) for _ in range(passes)]
        return np.concatenate(shuffled)[:number]

    def _measure(
        self,
        number: int,
        stage: Stage,
        previous: Fitted,
        fitted: Fitted,
        loss: float,
        began: float,
    ) -> StageRecord:
        # Always the same number of rows, as another shape would be compiled anew.
        index = jnp.asarray(np.resize(stage.held_out, MEASURED_ROWS))
        held_out_loss = self._held_out_loss(stage, previous, fitted, index)
        inputs = self._initial_inputs
        if stage.step is not None:
            inputs = row_inputs(self._rows, index, self._encoder.sizes)
        unit = self._encoder.reward_unit
        returns = np.asarray(sample_returns(fitted, inputs, self._next_key())) * unit
        return StageRecord(
            stage=number + 1,
            step=stage.step,
            discount=stage.discount,
            loss=held_out_loss if np.isnan(loss) else loss,
            held_out_loss=held_out_loss,
            mean=returns.mean(axis=0),
            std=returns.std(axis=0),
            cvar=np.array([cvar(column, RISK_LEVEL) for column in returns.T]),
            seconds=time.perf_counter() - began,
        )

    def _held_out_loss(
        self, stage: Stage, previous: Fitted, fitted: Fitted, index: Int[Array, " k"]
    ) -> float:
        model, frame = fitted
        discount, key = jnp.float32(stage.discount), self._next_key()
        sizes, draws = self._encoder.sizes, self._training.draws
        if isinstance(model, GradientModel):
            update = Update(model, previous, frame, self._rows, discount, sizes, draws)
            loss = float(mean_loss(update, index, key))
        elif isinstance(model, DensityModel):
            targets = draw_targets(previous, frame, self._rows, index, discount, key, sizes=sizes)
            inputs = row_inputs(self._rows, index, sizes)
            loss = -float(jnp.mean(log_density(model, inputs, targets)))
        else:
            return np.nan
        if isinstance(model, DensityModel):
            loss += float(np.log(np.asarray(frame.scale) * self._encoder.reward_unit).sum())
        return loss

    def _fresh_parameters(self) -> Float[Array, " p"]:
        return parameters_of(self._spec.build(self._encoder.sizes, self._generator))

    def _next_key(self) -> PRNGKeyArray:
        self._key, key = jax.random.split(self._key)
        return key


@eqx.filter_jit
def sample_returns(
    fitted: Fitted, inputs: Float[Array, "k inputs"], key: PRNGKeyArray
) -> Float[Array, "k d"]:
    """One return for each input."""
    uniforms = jax.random.uniform(key, (inputs.shape[0], fitted.model.noise_size), minval=TINY)
    return jax.vmap(fitted.sample)(inputs, uniforms)


@eqx.filter_jit
def log_density(
    model: DensityModel, inputs: Float[Array, "k inputs"], returns: Float[Array, "k d"]
) -> Float[Array, " k"]:
    """Log density of one return for each input."""
    return jax.vmap(model.log_prob)(inputs, returns)
