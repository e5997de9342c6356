"""The columns of a table become the fields of a `Dataset`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fle.data.assembly import Assembled, assemble
from fle.data.readers.columns import Columns, Source
from fle.data.readers.names import Roles, reward_names
from fle.data.readers.numbers import (
    fits_float32,
    is_narrow,
    matrix,
    number_range,
    number_ranges,
    precision,
)
from fle.data.readers.shards import refuse_reused_episodes
from fle.data.recorded import Recorded
from fle.data.transitions import Array
from fle.data.validation import episode_array, numeric_array, step_array
from fle.errors import DataError

FIELDS = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "next_observations": "next_observation",
    "terminations": "terminated",
    "truncations": "truncated",
    "steps": "step",
    "episodes": "episode",
    "weights": "weight",
}


def assemble_table(source: Source, roles: Roles, number_of_actions: int | None) -> Assembled:
    """Load, check and complete the columns; errors name the file."""
    columns = source.load(roles.all())
    warnings: list[str] = []
    recorded = _recorded(source.name, columns, roles)
    count = _number_of_actions(source.name, recorded, number_of_actions)
    try:
        states = _observations(columns, roles, source.initial_observations, warnings)
        rewards = _rewards(columns, roles)
        episodes, order = _episodes_and_order(columns, roles)
        return assemble(
            observations=states["observation"],
            next_observations=states.get("next_observation"),
            actions=_actions(columns, roles, count, warnings),
            rewards=rewards,
            terminations=_single(columns, roles, "terminated"),
            truncations=_single(columns, roles, "truncated"),
            weights=_single(columns, roles, "weight"),
            next_missing=None,
            episodes=episodes,
            steps=None,
            order=order,
            initial_observations=source.initial_observations,
            number_of_actions=count,
            reward_names=_reward_names(roles, rewards),
            recorded=recorded,
            earlier_warnings=warnings,
            earlier_notes=(*roles.notes, *_initial_notes(source, roles)),
            # Several columns were copied into a matrix; one may be the caller's own array.
            ours=len(roles.columns["observation"]) > 1,
        )
    except DataError as error:
        raise DataError(_with_names(str(error), columns, roles)) from error


def _observations(
    columns: Columns, roles: Roles, initial: Any | None, warnings: list[str]
) -> dict[str, Array]:
    """Observations and next observations in one precision; one integer column is a state."""
    groups = {
        role: roles.columns[role]
        for role in ("observation", "next_observation")
        if role in roles.columns
    }
    first = columns.blocks[groups["observation"][0]][0]
    if "observation" in roles.alone and first.ndim == 1 and first.dtype.kind in "biu":
        for group in groups.values():
            number_range(columns, group[0])
        return {role: columns.whole(group[0]) for role, group in groups.items()}
    _require_widths(columns, groups)
    names = [name for group in groups.values() for name in group]
    dtype = precision(columns, names, warnings)
    if all(is_narrow(columns.blocks[name][0].dtype) for name in groups["observation"]):
        # Next observations with more digits would all differ from the rows that follow.
        dtype = np.float32
    elif initial is not None and not fits_float32(numeric_array("initial_observations", initial)):
        dtype = np.float64
    return {role: matrix(columns, group, dtype) for role, group in groups.items()}


def _require_widths(columns: Columns, groups: Mapping[str, Sequence[str]]) -> None:
    """Lists of different lengths would move all columns after them."""
    following = groups.get("next_observation", ())
    if len(following) != len(groups["observation"]):
        return
    for here, after in zip(groups["observation"], following, strict=True):
        widths = [math.prod(columns.blocks[name][0].shape[1:]) for name in (here, after)]
        if widths[0] != widths[1]:
            raise DataError(
                f"observations: column {here!r} has width {widths[0]} but {after!r} has"
                f" width {widths[1]}; expected the same width"
            )


def _initial_notes(source: Source, roles: Roles) -> Sequence[str]:
    names = roles.columns["observation"]
    if source.initial_observations is None or len(names) == 1:
        return ()
    return (
        "initial_observations has no names; its columns are taken to be"
        f" {', '.join(map(repr, names))}",
    )


def _actions(columns: Columns, roles: Roles, count: int | None, warnings: list[str]) -> Array:
    names = roles.columns["action"]
    codes = count is not None or all(columns.blocks[name][0].dtype.kind in "biu" for name in names)
    if codes and len(names) == 1:
        number_range(columns, names[0])
        return columns.whole(names[0])
    if codes:
        raise DataError(
            f"actions: {', '.join(map(repr, names))} are several columns of codes; expected one"
            " column if actions are discrete, or floats if they are continuous"
        )
    return matrix(columns, names, precision(columns, names, warnings))


def _rewards(columns: Columns, roles: Roles) -> Array:
    names = roles.columns["reward"]
    number_ranges(columns, names)
    return matrix(columns, names, np.float64)


def _reward_names(roles: Roles, rewards: Array) -> Sequence[str] | None:
    names = reward_names(roles)
    if len(names) != rewards.shape[1] or (len(names) == 1 and "reward" in roles.alone):
        return None
    return names


def _single(columns: Columns, roles: Roles, role: str) -> Array | None:
    if role not in roles.columns:
        return None
    number_range(columns, roles.columns[role][0])
    return columns.whole(roles.columns[role][0])


def _episodes_and_order(columns: Columns, roles: Roles) -> tuple[Array | None, Array | None]:
    order = _single(columns, roles, "step")
    if "episode" not in roles.columns:
        return None, order
    name = roles.columns["episode"][0]
    if columns.blocks[name][0].dtype.kind == "f":
        number_range(columns, name)
    ids = episode_array(columns.whole(name))
    refuse_reused_episodes(columns, ids, None if order is None else step_array(order))
    return ids, order


def _recorded(source: str, columns: Columns, roles: Roles) -> Recorded | None:
    """Probabilities of the policies in the data, (n, policies, actions)."""
    following = roles.columns.get("next_probability")
    if not roles.probabilities:
        if following:
            raise DataError(f"{source}: next_probability without probability columns; give both")
        return None
    groups = list(roles.probabilities.values()) + ([following] if following else [])
    number_ranges(columns, [name for group in groups for name in group])
    tables = [matrix(columns, group, np.float32) for group in groups]
    if len({table.shape[1] for table in tables}) > 1:
        widths = ", ".join(str(table.shape[1]) for table in tables)
        raise DataError(
            f"{source}: probability columns for {widths} actions; expected as many in each policy"
        )
    here = tables[: len(roles.probabilities)]
    if following and len(here) > 1:
        raise DataError(f"{source}: next_probability serves one policy, but {len(here)} were named")
    return Recorded(
        names=tuple(roles.probabilities),
        here=np.stack(here, axis=1),
        following=tables[-1][:, None] if following else None,
    )


def _number_of_actions(source: str, recorded: Recorded | None, given: int | None) -> int | None:
    if recorded is None:
        return given
    count = recorded.here.shape[2]
    if given is not None and given != count:
        raise DataError(
            f"{source}: probability columns for {count} actions, but number_of_actions is {given};"
            " expected one column per action"
        )
    return count


def _with_names(message: str, columns: Columns, roles: Roles) -> str:
    """The same message, in the words of the file."""
    if any(message.startswith(part.name) for part in columns.parts):
        return message
    for field, role in FIELDS.items():
        names = roles.columns.get(role, ())
        if message.startswith(f"{field}:") and len(names) == 1:
            message = f"column {names[0]!r}{message[len(field) :]}"
    return f"{columns.source}: {message}"
