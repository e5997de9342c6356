"""The columns that have one entry per logged row, moved together."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fle.data.threads import gather, in_parallel

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Transitions:
    """Checked columns of n rows, before episodes are put in order.

    `next_missing` marks rows whose next observation is unknown; the entry there is a filler.
    `source_rows` says where each row stood in the arrays that the user gave. `probabilities` are
    (n, policies, actions), of target policies that are recorded in the data.
    """

    observations: Array
    actions: Array
    rewards: Array
    next_observations: Array | None
    next_missing: Array
    terminations: Array
    truncations: Array
    episodes: Array | None
    steps: Array | None
    weights: Array | None
    probabilities: Array | None
    next_probabilities: Array | None
    source_rows: Array

    def __len__(self) -> int:
        return len(self.observations)

    def take(self, rows: Array, **taken: Array) -> "Transitions":
        """The given rows of every column, but for those that were taken already."""
        others: dict[str, Any] = {
            name: column
            for name, column in vars(self).items()
            if name not in taken and column is not None
        }
        moved = in_parallel(lambda column: gather(column, rows), list(others.values()), len(rows))
        return replace(self, **taken, **dict(zip(others, moved, strict=True)))


def starts_episode(episodes: Array) -> Array:
    """True where a row opens an episode, for rows kept together by episode."""
    return np.concatenate([[True], episodes[1:] != episodes[:-1]])


def ends_episode(episodes: Array) -> Array:
    """True where a row closes an episode, for rows kept together by episode."""
    return np.concatenate([episodes[1:] != episodes[:-1], [True]])


def position_in_episode(episodes: Array) -> Array:
    """How many rows of the same episode come before each row."""
    rows = np.arange(len(episodes))
    return rows - np.maximum.accumulate(np.where(starts_episode(episodes), rows, 0))
