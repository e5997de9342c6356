"""What every policy becomes before training: candidate actions and their probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fle.errors import PolicyError

Array = npt.NDArray[Any]

SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class ActionTable:
    """For each of n rows, m candidate actions and how probable each is.

    `actions` is (n, m) integers if discrete, (n, m, k) floats if continuous; `probabilities` is
    (n, m), and its rows sum to one.
    """

    actions: Array
    probabilities: Array

    def __post_init__(self) -> None:
        actions, probabilities = np.asarray(self.actions), np.asarray(self.probabilities)
        discrete = actions.dtype.kind in "iu" and actions.ndim == 2
        if not discrete and not (actions.dtype.kind == "f" and actions.ndim == 3):
            raise PolicyError(
                "actions: expected integers of shape (n, m) or floats of shape (n, m, k),"
                f" got {actions.dtype} of shape {actions.shape}"
            )
        if actions.shape[:2] != probabilities.shape:
            raise PolicyError(
                f"probabilities: expected shape {actions.shape[:2]} to match the actions,"
                f" got {probabilities.shape}"
            )
        if actions.size == 0:
            raise PolicyError(
                f"actions: expected at least one row and candidate, got {actions.shape}"
            )
        if discrete and actions.min() < 0:
            row = int(np.argwhere(actions < 0)[0, 0])
            raise PolicyError(f"actions: row {row} has a negative action; expected 0 or more")
        if not discrete:
            require_finite_actions(actions)
        if discrete:
            actions = actions.astype(np.int64, copy=False)
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "probabilities", normalised("row", probabilities))

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def candidates(self) -> int:
        """How many candidate actions each row has."""
        return int(self.actions.shape[1])


def normalised(row_name: str, probabilities: Array) -> Array:
    """Rows of probabilities in float64 that sum to one exactly, or a PolicyError."""
    if probabilities.dtype.kind not in "biuf":
        raise PolicyError(f"probabilities: expected numbers, got dtype {probabilities.dtype}")
    exact = probabilities.astype(np.float64, copy=False)
    # Written so that NaN fails it too.
    wrong = ~(exact >= 0)
    if wrong.any():
        row, action = np.argwhere(wrong)[0]
        raise PolicyError(
            f"probabilities: {row_name} {row}, action {action} is {exact[row, action]};"
            " expected a number from 0 to 1"
        )
    sums = exact.sum(axis=1)
    off = ~(np.abs(sums - 1) <= SUM_TOLERANCE)
    if off.any():
        row = int(np.argmax(off))
        raise PolicyError(
            f"probabilities: {row_name} {row} sums to {sums[row]:.6g}; expected 1 within"
            f" {SUM_TOLERANCE:g} ({int(off.sum())} such rows). If these are scores (logits),"
            " apply a softmax"
        )
    return exact / sums[:, None]


def require_finite_actions(actions: Array) -> None:
    """Refuse an action that is NaN or infinite."""
    finite = np.isfinite(actions)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0])
        raise PolicyError(f"actions: row {place[0]} is {actions[place]}; expected a finite action")
