"""Policies that are known row by row, brought to the rows that a `Dataset` kept."""

from typing import Any

import numpy as np

from fle.data import Dataset
from fle.errors import PolicyError
from fle.policies.action_table import ActionTable
from fle.policies.kinds import Array, RowActions, RowProbabilities
from fle.policies.spaces import Space, checked_actions, checked_probabilities


def probability_tables(
    policy: RowProbabilities, data: Dataset, space: Space
) -> tuple[ActionTable, ActionTable]:
    """Tables of the known probabilities for the rows and the initial observations."""
    width = (space.require_discrete(),)
    following = _row_array("RowProbabilities.next", policy.next, data.number_of_source_rows, width)
    starts = len(data.require_initial_observations())
    initial = _row_array("RowProbabilities.initial", policy.initial, starts, width)
    # A log has nothing sensible to say about rows that are over or left out.
    filled = np.where(_used_rows(data)[:, None], following, 1 / width[0])
    return (
        probability_table(checked_probabilities(filled, space, "next row")[data.source_rows]),
        probability_table(checked_probabilities(initial, space, "initial row")),
    )


def action_tables(
    policy: RowActions, data: Dataset, space: Space
) -> tuple[ActionTable, ActionTable]:
    """Tables of the one known action for the rows and the initial observations."""
    width = () if space.action_dim is None else (space.action_dim,)
    following = _row_array("RowActions.next", policy.next, data.number_of_source_rows, width)
    starts = len(data.require_initial_observations())
    initial = _row_array("RowActions.initial", policy.initial, starts, width)
    used = _used_rows(data).reshape(-1, *(1 for _ in width))
    filled = np.where(used, following, following.dtype.type(0))
    return (
        deterministic_table(checked_actions(filled, space)[data.source_rows]),
        deterministic_table(checked_actions(initial, space)),
    )


def probability_table(probabilities: Array) -> ActionTable:
    """Every action is a candidate; the codes are stored once however many rows there are."""
    actions = np.broadcast_to(np.arange(probabilities.shape[1]), probabilities.shape)
    return ActionTable(actions, probabilities)


def deterministic_table(actions: Array) -> ActionTable:
    """One candidate a row."""
    return ActionTable(actions[:, None], np.ones((len(actions), 1)))


def _used_rows(data: Dataset) -> Array:
    used = np.zeros(data.number_of_source_rows, dtype=bool)
    used[data.source_rows[~data.terminations]] = True
    return used


def _row_array(name: str, values: Any, rows: int, width: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.shape != (rows, *width):
        raise PolicyError(
            f"{name}: expected shape {(rows, *width)}, got {array.shape} of {array.dtype}"
        )
    return array
