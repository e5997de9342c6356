"""How well a stage was fitted, on rows it was not trained on, and what it says of returns."""

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fle.fitting.encoding import Encoder, Fitted, Rows, as_vectors
from fle.fitting.following import Lines, Trail, by_fit
from fle.fitting.problem import Stage, sum_of_discounts
from fle.fitting.sampling import SAMPLE_BLOCK, Randomness, draw_block
from fle.fitting.targets import LINE_BLOCK, Update, mean_loss, stacked
from fle.models.objectives import GradientObjective
from fle.returns import ReturnDistribution
from fle.returns.measures import RISK_LEVEL

MEASURED_ROWS = SAMPLE_BLOCK
# How often a held-out row is measured at least, each time with fresh targets: more often than a few
# times says nothing that the rows do not know.
OFTEN = 4


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
