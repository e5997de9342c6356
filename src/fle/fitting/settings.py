"""Settings of a fit: what is trained at each stage, and for how long."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from fle.data import Dataset
from fle.errors import SettingsError
from fle.models.base import Tuning

# Optimiser steps of a discounted fit as a whole.
TOTAL_STEPS = 40_000
# Its weight decay times its rows, for each pair of input coordinates; and the most it may be.
DECAY_A_PAIR, MOST_DECAY = 7.0, 1.0


@dataclass(frozen=True)
class Training:
    """How every stage is trained. `finite_horizon()` and `discounted()` give the defaults.

    steps: optimiser steps a stage.
    batch_size: rows a step.
    learning_rate: peak learning rate of Adam.
    weight_decay: decoupled decay of the weight matrices, for batches of 500 rows and less in
        smaller ones; None chooses it at the first stage, by the likelihood of rows kept aside.
    draws: target draws a row gets each time it is used, with fresh next actions and returns.
    decay: "stage" lowers the learning rate to zero in every stage and starts the optimiser anew;
        "fit" does so once, over all stages.
    average: share of a stage's last steps whose parameters are averaged into the stage's model.
    frame_tolerance: how far, relative to the return scale, the targets may move before returns are
        standardised anew; 0 does it at every stage.
    start: "previous" continues from the previous stage's parameters, "fresh" from new ones.
    held_out: share of the rows kept aside to measure the likelihood of every stage.
    """

    steps: int = 1500
    batch_size: int = 500
    learning_rate: float = 1e-2
    weight_decay: float | None = None
    draws: int = 4
    decay: Literal["stage", "fit"] = "stage"
    average: float = 0.5
    frame_tolerance: float = 0.0
    start: Literal["previous", "fresh"] = "previous"
    held_out: float = 0.05

    def __post_init__(self) -> None:
        _require(self.steps >= 1, "steps", "at least 1", self.steps)
        _require(self.batch_size >= 1, "batch_size", "at least 1", self.batch_size)
        _require(self.learning_rate > 0, "learning_rate", "positive", self.learning_rate)
        decay = self.weight_decay
        _require(decay is None or decay >= 0, "weight_decay", "None or at least 0", decay)
        _require(self.draws >= 1, "draws", "at least 1", self.draws)
        _require(0 < self.average <= 1, "average", "in (0, 1]", self.average)
        _require(self.frame_tolerance >= 0, "frame_tolerance", "at least 0", self.frame_tolerance)
        _require(0 < self.held_out < 1, "held_out", "in (0, 1)", self.held_out)
        _require(self.decay in ("stage", "fit"), "decay", '"stage" or "fit"', self.decay)
        _require(self.start in ("previous", "fresh"), "start", '"previous" or "fresh"', self.start)

    @classmethod
    def finite_horizon(cls) -> Self:
        """Each stage is a fit of its own: full decay, its own scale, its own average."""
        return cls()

    @classmethod
    def discounted(cls, stages: int, data: Dataset) -> Self:
        """Many short stages towards a fixed point: one decay, and a scale that settles.

        The first stage, which sees rewards alone, says little about how smooth returns are, so the
        weight decay is not chosen by it: it goes with what there is to overfit and how few the rows
        are. A single stage, as with gamma = 0, is a fit like those of a finite horizon.
        """
        if stages == 1:
            return cls.finite_horizon()
        steps = max(100, -(-TOTAL_STEPS // stages))
        coordinates = sum(
            1 if values.ndim == 1 else values.shape[1]
            for values in (data.observations, data.actions)
        )
        return cls(
            steps=min(steps, 1500),
            learning_rate=5e-3,
            weight_decay=min(MOST_DECAY, DECAY_A_PAIR * coordinates**2 / len(data)),
            decay="fit",
            frame_tolerance=0.1,
        )

    def tuned(self, tuning: Tuning) -> Self:
        """As suits a model: its factors, draws and weight decay in place of the general ones."""
        return replace(
            self,
            steps=round(tuning.steps * self.steps),
            learning_rate=tuning.learning_rate * self.learning_rate,
            batch_size=round(tuning.batch_size * self.batch_size),
            draws=tuning.draws,
            weight_decay=self.weight_decay if tuning.weight_decay is None else tuning.weight_decay,
        )

    def frame_is_settled(self, stage: int, stages: int) -> bool:
        """Whether the frame stays as it is: once the learning rate has fallen, a model could no
        longer follow a change of units.
        """
        return self.decay == "fit" and stage > stages // 2

    def learning_rates(self, stage: int, stages: int) -> np.ndarray:
        """Learning rate of every step of one stage: a short warm-up, then half a cosine."""
        if self.decay == "stage":
            stage, stages = 0, 1
        total = self.steps * stages
        step = np.arange(stage * self.steps, (stage + 1) * self.steps)
        warm_up = np.minimum(1, (step + 1) / min(100, total))
        cosine = 0.5 * (1 + np.cos(np.pi * step / total))
        return (self.learning_rate * warm_up * cosine).astype(np.float32)

    def average_rates(self) -> np.ndarray:
        """Weight of every step's parameters in the running average of a stage."""
        first = min(self.steps - 1, round(self.steps * (1 - self.average)))
        count = np.maximum(1, np.arange(self.steps) - first + 1)
        return (1 / count).astype(np.float32)


def _require(holds: bool, name: str, expected: str, got: object) -> None:
    if not holds:
        raise SettingsError(f"{name} must be {expected}, got {got!r}.")
