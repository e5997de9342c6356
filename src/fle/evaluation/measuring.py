"""How well a stage was fitted, on rows it was not trained on, and what it says of returns."""

import time
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fle.evaluation.encoding import Encoder, Fitted, Rows, row_inputs
from fle.evaluation.optimise import Update, draw_targets, mean_loss
from fle.evaluation.randomness import Randomness
from fle.evaluation.records import StageRecord
from fle.evaluation.stages import Stage
from fle.models.base import TINY, DensityModel, GradientModel
from fle.returns.risk import cvar

MEASURED_ROWS = 8_192
RISK_LEVEL = 0.1


@dataclass(frozen=True, eq=False)
class Measure:
    """Measures every stage on the same number of rows, as another shape would be compiled anew."""

    encoder: Encoder
    rows: Rows
    initial_inputs: Float[Array, "k inputs"]
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
        index = jnp.asarray(np.resize(stage.held_out, MEASURED_ROWS))
        held_out_loss = self.held_out_loss(stage, previous, fitted, index, random)
        inputs = self.initial_inputs
        if stage.step is not None:
            inputs = row_inputs(self.rows, index, self.encoder.sizes)
        unit = self.encoder.reward_unit
        returns = np.asarray(sample_returns(fitted, inputs, random.key())) * unit
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
        index: Int[Array, " k"],
        random: Randomness,
    ) -> float:
        """Mean negative log likelihood of the rows at `index`, in the units of the rewards."""
        model, frame = fitted.model, fitted.frame
        discount, key = jnp.float32(stage.discount), random.key()
        sizes = self.encoder.sizes
        if isinstance(model, GradientModel):
            update = Update(model, previous, frame, self.rows, discount, sizes, self.draws)
            loss = float(mean_loss(update, index, key))
        elif isinstance(model, DensityModel):
            targets = draw_targets(previous, frame, self.rows, index, discount, key, sizes=sizes)
            inputs = row_inputs(self.rows, index, sizes)
            loss = -float(jnp.mean(log_density(model, inputs, targets)))
        else:
            return np.nan
        return self._in_reward_units(fitted, loss)

    def _in_reward_units(self, fitted: Fitted, loss: float) -> float:
        if not isinstance(fitted.model, DensityModel):
            return loss
        return loss + float(np.log(np.asarray(fitted.frame.scale) * self.encoder.reward_unit).sum())


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
