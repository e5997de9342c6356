"""`fle.read`: files and frames in, a checked `Dataset` out."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fle.data.assembly import Given, Recorded, assemble
from fle.data.dataset import Dataset, emit_warnings, restored
from fle.data.passes import READING, Array, give_back, require_memory
from fle.data.readers.arrays import hdf5_source, mapping_source, npz_source
from fle.data.readers.arrow_tables import arrow_source, csv_source, frame_source, parquet_source
from fle.data.readers.coding import Coded, Wishes, coded, recoded
from fle.data.readers.columns import (
    Columns,
    Source,
    fits_float32,
    is_narrow,
    joined_ends,
    matrix,
    number_range,
    number_ranges,
    precision,
    refuse_nulls,
    refuse_other_order,
    refuse_reused_episodes,
    row_order,
    with_every_row,
)
from fle.data.readers.formats import Files, find_files
from fle.data.readers.minari import (
    assemble_episodes,
    assemble_minari,
    hdf5_episodes,
    holds_episodes,
)
from fle.data.readers.names import Names, Roles, find_roles, reward_names
from fle.data.readers.prepared_log import is_cache, open_prepared, read_cache
from fle.data.schema import COLUMN_OF, WORDS
from fle.data.validation import (
    Faults,
    episode_array,
    numeric_array,
    require_same_names,
)
from fle.errors import DataError, FaultyDataError, SettingsError

# A row that a message names: "row 3", or both of "rows 3 and 4".
ROW = re.compile(r"(?<=\brow )\d+|(?<=\brows )\d+(?= and)|(?<=\d and )\d+(?=\))")
# What opens the files of each format that holds a table.
OPENED_BY = {
    "parquet": parquet_source,
    "csv": csv_source,
    "arrow": arrow_source,
    "npz": npz_source,
    "hdf5": hdf5_source,
}


def read(
    source: Any,
    *,
    observation: Names | None = None,
    action: Names | None = None,
    reward: Names | None = None,
    episode: str | None = None,
    step: str | None = None,
    terminated: Names | bool | None = None,
    truncated: Names | None = None,
    next_observation: Names | None = None,
    weight: str | None = None,
    propensity: Names | None = None,
    probability: Names | Mapping[str, Names] | None = None,
    number_of_actions: int | None = None,
    action_labels: Sequence[str] | None = None,
    category: Names | None = None,
    missing: str = "refuse",
    elapsed: str | None = None,
) -> Dataset:
    """Read logged transitions, one row each, into a `Dataset`.

    >>> data = fle.read("log.parquet", observation="obs_*", episode="trip", terminated="arrived")

    Args:
        source: a Parquet, CSV, Arrow, npz or (D4RL's) HDF5 file; a list, folder or pattern of
            Parquet or CSV shards; a Minari data set by id or folder; a pandas or polars frame, an
            Arrow table, or a mapping of arrays.
        observation, action, reward, next_observation: the columns, if they are not called so. One
            name, several, a pattern such as `obs_*`, or a prefix. Next observations are paired with
            observations by name. Several rewards make a vector return. An integer column alone is a
            discrete observation or action. Text is coded: an observation as a feature for each
            category, `ward=A`; actions as codes with labels (`Dataset.action_labels`).
        episode, step: one column each. `step` only puts the rows of an episode in order: dates, or
            numbers that increase; where it counts rows, a gap is refused. If the problem depends on
            time, use `with_steps()` of the result.
        terminated, truncated: columns, any of which ends an episode; `terminated=True` where every
            row is an episode of its own.
        weight, propensity: row weights, looked for only if named; the logged action's probability
            under the policy that logged it, or density, or one column per action.
        probability: a target policy's probabilities, a column per action (`probability.*`); or a
            mapping from names to such columns. See `Dataset.recorded_probabilities`.
        number_of_actions, action_labels: how many discrete actions there are, or all their names.
        category: observation columns of numbers that are categories.
        missing: of observations; "refuse", "forward" or "indicator" (docs/messy_logs.md).
        elapsed: "days", "hours", "minutes", "seconds" or "number": adds the feature `elapsed`.
    """
    given = locals()
    mapped = {part: given[part] for part in (*WORDS, "probability") if part in given}
    wishes = Wishes(**{field.name: given[field.name] for field in fields(Wishes)})
    data = read_mapped(source, mapped, wishes, Faults())
    give_back()
    # As seen from the line that called this.
    emit_warnings(data, stacklevel=2)
    return data


def unnamed(what: str, given: Any, names: Sequence[str]) -> Any:
    """The columns of a frame or a mapping side by side, if they are named and ordered like these.

    Anything else comes back as it is.
    """
    table = frame_source(given)
    if isinstance(given, Mapping):
        table = mapping_source({name: np.atleast_1d(value) for name, value in given.items()})
    if table is None:
        return given
    columns = table.load(table.names)
    refuse_nulls(columns, table.names)
    columns = recoded(columns, names)
    require_same_names(what, names, tuple(columns.blocks))
    return matrix(columns, tuple(columns.blocks), np.float64)


def read_mapped(source: Any, mapped: Mapping[str, Any], wishes: Wishes, faults: Faults) -> Dataset:
    """What `read` does, emitting nothing; mapped: columns, or None, by part."""
    table = open_table(source)
    if table is None:
        return _read_files(find_files(source), mapped, wishes)
    return _read_table(table, mapped, wishes, faults)


def open_table(source: Any) -> Source | None:
    """The table that a source is; None for what holds episodes, or a data set."""
    table = _in_memory(source)
    if table is not None:
        return table
    files = find_files(source)
    path = files.paths[0]
    episodes = files.kind == "minari" or (files.kind == "hdf5" and holds_episodes(path))
    if episodes or files.kind == "prepared" or (files.kind == "arrow" and is_cache(path)):
        return None
    return OPENED_BY[files.kind](files.paths)


def _in_memory(given: Any) -> Source | None:
    table = frame_source(given)
    if table is not None:
        return table
    if isinstance(given, Mapping):
        return mapping_source(given)
    if isinstance(given, str | Path):
        return None
    if isinstance(given, Sequence) and all(isinstance(part, str | Path) for part in given):
        return None
    raise DataError(
        "source: expected a path, a list of paths, a frame or a mapping of arrays, got"
        f" {type(given).__name__}"
    )


def _read_files(files: Files, mapped: Mapping[str, Any], wishes: Wishes) -> Dataset:
    path, chosen = files.paths[0], mapped["observation"]
    chosen = [chosen] if isinstance(chosen, str) else chosen
    if files.kind == "prepared":
        _refuse_mapping(mapped, wishes, but=())
        return open_prepared(path)
    if files.kind == "arrow":
        _refuse_mapping(mapped, wishes, but=())
        return read_cache(path)
    _refuse_mapping(mapped, wishes, but=("observation",))
    count = wishes.number_of_actions
    if files.kind == "minari":
        return restored(assemble_minari(path, chosen, count))
    episodes = list(hdf5_episodes(path, (), chosen))
    return restored(assemble_episodes(str(path), episodes, count))


def _refuse_mapping(mapped: Mapping[str, Any], wishes: Wishes, but: Sequence[str]) -> None:
    given = [name for name, value in mapped.items() if value is not None and name not in but]
    usual = Wishes(number_of_actions=wishes.number_of_actions)
    given += [name for name, value in vars(wishes).items() if value != vars(usual)[name]]
    if given:
        raise SettingsError(
            f"{given[0]}=... maps the columns of a table, but this source has fixed names;"
            " leave it out"
        )


def _read_table(
    source: Source, mapped: Mapping[str, Any], wishes: Wishes, faults: Faults
) -> Dataset:
    """Load, check and complete the columns; errors name the file."""
    source, mapped = with_every_row(source, mapped)
    roles = find_roles(source.name, source.names, mapped, mapped["probability"], faults)
    faults.require_none()
    if source.size is not None:
        rows, size = source.size(roles.all())
        require_memory(READING * size, source.name, rows)
    return restored(table_values(source, roles, wishes, faults))


def table_values(
    source: Source, roles: Roles, wishes: Wishes, faults: Faults, *, first: int | None = None
) -> dict[str, Any]:
    """The values of all fields of a data set, out of the columns of a source.

    first: where these are but some rows of a log, how many come before them.
    """
    columns = source.load(roles.all())
    with faults.caught():
        columns, roles = joined_ends(columns, roles)
    code = coded(columns, roles, wishes, faults)
    with faults.caught():
        refuse_other_order(source, code.columns, code.roles)
    try:
        given = _given(source, code, wishes, faults)
        return assemble(replace(given, is_part=first is not None))
    except FaultyDataError as error:
        named = [_with_names(text, columns, roles, first or 0) for text in error.found]
        raise FaultyDataError(named) from error
    except DataError as error:
        raise DataError(_with_names(str(error), columns, roles, first or 0)) from error


def _given(source: Source, code: Coded, wishes: Wishes, faults: Faults) -> Given:
    """The columns as fields; one that has no rule of its own is a single column of numbers."""
    columns, roles = code.columns, code.roles
    warnings: list[str] = []
    initial = source.initial_observations
    parts: dict[str, Any] = {}

    def fill(name: str, make: Callable[[], Any]) -> None:
        with faults.caught():
            parts[name] = make()

    fill("recorded", lambda: _recorded(source.name, columns, roles))
    fill("propensities", lambda: _propensities(columns, roles))
    fill(
        "count",
        lambda: _number_of_actions(
            parts.get("recorded"), parts.get("propensities"), wishes.number_of_actions
        ),
    )
    count = parts.pop("count", None)
    if count is None and code.labels:
        count = len(code.labels)
    fill("observed", lambda: _observations(columns, roles, initial, warnings))
    fill("rewards", lambda: _rewards(columns, roles))
    fill("actions", lambda: _actions(columns, roles, count, warnings))
    fill("order", lambda: row_order(columns, roles))
    fill("episodes", lambda: _episodes(columns, roles, parts.get("order")))
    for name, role in COLUMN_OF.items():
        # The order column declares nothing about time.
        if name not in parts and not WORDS[role].several and name not in ("steps", "episodes"):
            fill(name, partial(_single, columns, roles, role))
    recorded, order = parts.pop("recorded", None), parts.pop("order", None)
    found = {"initial_observations": initial, **parts.pop("observed", {}), **parts}
    return Given(
        fields=found,
        order=order,
        number_of_actions=count,
        reward_names=_reward_names(roles, found["rewards"]) if "rewards" in found else None,
        observation_names=_feature_names(columns, roles, "observation"),
        action_names=_feature_names(columns, roles, "action"),
        action_labels=code.labels,
        recorded=recorded,
        unusable=code.unusable,
        warnings=warnings,
        notes=(*source.notes, *code.notes, *_initial_notes(source, roles)),
        # Several columns were copied into a matrix; one may be the caller's own array.
        owned=len(roles.columns["observation"]) > 1 and "observations" in found,
        faults=faults,
        rows=columns.rows,
    )


def _observations(
    columns: Columns, roles: Roles, initial: Any | None, warnings: list[str]
) -> dict[str, Array]:
    """Observations and next observations in one precision; one integer column is a state."""
    groups = {
        name: roles.columns[COLUMN_OF[name]]
        for name in ("observations", "next_observations")
        if COLUMN_OF[name] in roles.columns
    }
    first = columns.blocks[groups["observations"][0]][0]
    if "observation" in roles.alone and first.ndim == 1 and first.dtype.kind in "biu":
        for group in groups.values():
            number_range(columns, group[0])
        return {name: columns.whole(group[0]) for name, group in groups.items()}
    _require_widths(columns, groups)
    names = [name for group in groups.values() for name in group]
    dtype = precision(columns, names, warnings)
    if all(is_narrow(columns.blocks[name][0].dtype) for name in groups["observations"]):
        # Next observations with more digits would all differ from the rows that follow.
        dtype = np.float32
    elif initial is not None and not fits_float32(numeric_array("initial_observations", initial)):
        dtype = np.float64
    return {field: matrix(columns, group, dtype) for field, group in groups.items()}


def _require_widths(columns: Columns, groups: Mapping[str, Sequence[str]]) -> None:
    """Lists of different lengths would move all columns after them."""
    following = groups.get("next_observations", ())
    if len(following) != len(groups["observations"]):
        return
    for here, after in zip(groups["observations"], following, strict=True):
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


def _feature_names(columns: Columns, roles: Roles, role: str) -> list[str]:
    """Without the prefix that says the role; entries of a list are numbered."""
    names = []
    for name in roles.columns[role]:
        short, block = name.removeprefix(f"{role}."), columns.blocks[name][0]
        width = math.prod(block.shape[1:])
        names += [short] if block.ndim == 1 else [f"{short}[{entry}]" for entry in range(width)]
    return names


def _single(columns: Columns, roles: Roles, role: str) -> Array | None:
    if role not in roles.columns:
        return None
    number_range(columns, roles.columns[role][0])
    return columns.whole(roles.columns[role][0])


def _episodes(columns: Columns, roles: Roles, order: Array | None) -> Array | None:
    if "episode" not in roles.columns:
        return None
    name = roles.columns["episode"][0]
    kind = columns.blocks[name][0].dtype.kind
    if kind == "f":
        number_range(columns, name)
    given = columns.whole(name)
    ids = episode_array("episodes", given.astype(np.str_) if kind == "M" else given)
    refuse_reused_episodes(columns, ids, order)
    return ids


def _recorded(source: str, columns: Columns, roles: Roles) -> Recorded | None:
    """Probabilities of the policies in the data, (n, policies, actions)."""
    following = roles.columns.get("next_probability")
    if not roles.probabilities:
        if following:
            raise DataError(
                f"{source}: next_probability without probability columns; expected both, or neither"
            )
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
        raise DataError(f"{source}: expected one policy beside next_probability, got {len(here)}")
    return Recorded(
        names=tuple(roles.probabilities),
        here=np.stack(here, axis=1),
        following=tables[-1][:, None] if following else None,
    )


def _propensities(columns: Columns, roles: Roles) -> Array | None:
    """Of the policy that logged the data: (n, 1) for its actions, or (n, A) for all of them."""
    names = roles.columns.get("propensity")
    if names is None:
        return None
    number_ranges(columns, names)
    return matrix(columns, names, np.float64)


def _number_of_actions(
    recorded: Recorded | None, propensities: Array | None, given: int | None
) -> int | None:
    """How many actions there are, where columns for each of them or the user say it."""
    columns: dict[str, int] = {}
    if recorded is not None:
        columns["probability"] = recorded.here.shape[2]
    if propensities is not None and propensities.shape[1] > 1:
        columns["propensity"] = propensities.shape[1]
    counts = [*columns.values(), *([] if given is None else [given])]
    if len(set(counts)) > 1:
        said = [f"{what} columns for {count} actions" for what, count in columns.items()]
        said += [] if given is None else [f"number_of_actions is {given}"]
        raise DataError(f"{', but '.join(said)}; expected one column per action")
    return counts[0] if counts else None


def _with_names(message: str, columns: Columns, roles: Roles, first: int) -> str:
    """The same message, in the words of the file, with rows that count from its beginning.

    first: how many rows of the log come before those of the columns.
    """
    if any(message.startswith(part.name) for part in columns.parts):
        return message
    if first:
        message = ROW.sub(lambda found: str(int(found[0]) + first), message)
    for field, role in COLUMN_OF.items():
        names = roles.columns.get(role, ())
        if message.startswith(f"{field}:") and len(names) == 1:
            message = f"column {names[0]!r}{message[len(field) :]}"
    return f"{columns.source}: {message}"
