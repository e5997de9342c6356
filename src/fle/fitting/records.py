"""What each stage of a fit reached."""

from dataclasses import dataclass

import numpy as np


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
