"""How well a stage was fitted, on rows it was not trained on, and what it says of returns."""

import time
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from fle.fitting.encoding import Encoder, Fitted, Rows, as_vectors
from fle.fitting.problem import Stage
from fle.fitting.sampling import SAMPLE_BLOCK, Randomness, draw_block
from fle.fitting.targets import Update, mean_loss
from fle.models.objectives import GradientObjective
from fle.returns import ReturnDistribution
from fle.returns.measures import RISK_LEVEL

MEASURED_ROWS = SAMPLE_BLOCK


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
class Measurement:
    """Measures every stage on the same number of rows, as another shape would be compiled anew."""

    objective: GradientObjective
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
        drawn = draw_block(fitted, inputs, random.generator) * self.encoder.reward_unit
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
        self,
        stage: Stage,
        previous: Fitted,
        fitted: Fitted,
        index: np.ndarray,
        random: Randomness,
    ) -> float:
        """Mean loss of the rows at `index`; a likelihood is per unit of the rewards."""
        update = self.update(self.objective, stage, previous, fitted)
        loss = float(mean_loss(update, jnp.asarray(index), random.key()))
        return self._in_reward_units(fitted, loss)

    def update(
        self, objective: GradientObjective, stage: Stage, previous: Fitted, fitted: Fitted
    ) -> Update:
        """The Bellman update of a stage, in the units of `fitted`."""
        return Update(
            objective,
            fitted.law,
            previous,
            fitted.frame,
            self.rows,
            jnp.float32(stage.discount),
            self.encoder.sizes,
            self.draws,
        )

    def _inputs(self, index: np.ndarray) -> np.ndarray:
        observations, actions = (np.asarray(values)[index] for values in self.rows[:2])
        return as_vectors(observations, actions, self.encoder.sizes)

    def _in_reward_units(self, fitted: Fitted, loss: float) -> float:
        if not self.objective.in_nats:
            return loss
        return loss + float(np.log(np.asarray(fitted.frame.scale) * self.encoder.reward_unit).sum())
