"""How well a stage was fitted, on rows it was not trained on, and what it says of returns."""

import time
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.fitting.encoding import Encoder, Fitted, Rows, as_vectors
from fle.fitting.optimise import Update, mean_loss
from fle.fitting.randomness import Randomness
from fle.fitting.records import StageRecord
from fle.fitting.sampling import SAMPLE_BLOCK, draw_block, draw_targets
from fle.fitting.stages import Stage
from fle.models.base import DensityModel, GradientModel
from fle.returns import cvar
from fle.returns.measures import RISK_LEVEL

MEASURED_ROWS = SAMPLE_BLOCK


@dataclass(frozen=True, eq=False)
class Measure:
    """Measures every stage on the same number of rows, as another shape would be compiled anew."""

    encoder: Encoder
    rows: Rows
    initial_inputs: np.ndarray
    draws: int

    def record(
        self,
        number: int,
        stage: Stage,
        previous: Fitted,
        fitted: Fitted,
        loss: float,
        began: float,
        random: Randomness,
    ) -> StageRecord:
        """What the stage reached; `loss` is that of training, NaN where the fit has none."""
        index = np.resize(stage.held_out, MEASURED_ROWS)
        held_out_loss = self.held_out_loss(stage, previous, fitted, index, random)
        inputs = self.initial_inputs if stage.step is None else self._inputs(index)
        returns = draw_block(fitted, inputs, random.generator) * self.encoder.reward_unit
        return StageRecord(
            stage=number + 1,
            step=stage.step,
            discount=stage.discount,
            loss=held_out_loss if np.isnan(loss) else self._in_reward_units(fitted, loss),
            held_out_loss=held_out_loss,
            mean=returns.mean(axis=0),
            std=returns.std(axis=0),
            cvar=np.array([cvar(column, RISK_LEVEL) for column in returns.T]),
            seconds=time.perf_counter() - began,
        )

    def held_out_loss(
        self,
        stage: Stage,
        previous: Fitted,
        fitted: Fitted,
        index: np.ndarray,
        random: Randomness,
    ) -> float:
        """Mean negative log likelihood of the rows at `index`, in the units of the rewards."""
        model, frame = fitted.model, fitted.frame
        sizes = self.encoder.sizes
        if isinstance(model, GradientModel):
            discount = jnp.float32(stage.discount)
            update = Update(model, previous, frame, self.rows, discount, sizes, self.draws)
            loss = float(mean_loss(update, jnp.asarray(index), random.key()))
        elif isinstance(model, DensityModel):
            targets = draw_targets(
                previous, self.rows, index, stage.discount, sizes, random.generator
            )
            scaled = (targets - np.asarray(frame.centre)) / np.asarray(frame.scale)
            inputs = jnp.asarray(self._inputs(index))
            loss = -float(jnp.mean(log_density(model, inputs, jnp.asarray(scaled, jnp.float32))))
        else:
            return np.nan
        return self._in_reward_units(fitted, loss)

    def _inputs(self, index: np.ndarray) -> np.ndarray:
        observations, actions = (np.asarray(values)[index] for values in self.rows[:2])
        return as_vectors(observations, actions, self.encoder.sizes)

    def _in_reward_units(self, fitted: Fitted, loss: float) -> float:
        if not isinstance(fitted.model, DensityModel):
            return loss
        return loss + float(np.log(np.asarray(fitted.frame.scale) * self.encoder.reward_unit).sum())


@eqx.filter_jit
def log_density(
    model: DensityModel, inputs: Float[Array, "k inputs"], returns: Float[Array, "k d"]
) -> Float[Array, " k"]:
    """Log density of one return for each input."""
    return jax.vmap(model.log_prob)(inputs, returns)
