"""In what order the rows of an episode were logged, how much time lay between, and what ends it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fle.data.passes import Array
from fle.data.readers.columns import Columns, Source, is_number, number_range, refuse_nulls
from fle.data.readers.names import ENDS, Roles
from fle.data.validation import flag_array, order_array
from fle.errors import DataError

# Microseconds of each; None for an order column of numbers, which are taken as they are.
UNITS = {
    "days": 86_400_000_000,
    "hours": 3_600_000_000,
    "minutes": 60_000_000,
    "seconds": 1_000_000,
    "number": None,
}
ELAPSED = "elapsed"
# Columns that say when a row was logged, if they hold dates.
DATE_NAMES = ("date", "time", "datetime", "timestamp")
FLAG_WORDS = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}
# Stands for the column that `terminated=True` makes.
EVERY_ROW = "every row"


def arrangement(columns: Columns, roles: Roles) -> tuple[Array, Array]:
    """The rows by episode and order, and which of them, so sorted, start an episode."""
    if "episode" in roles.columns:
        ids = columns.whole(roles.columns["episode"][0])
        numbers = np.unique(ids, return_inverse=True)[1].reshape(-1)
        key = row_order(columns, roles)
        order = np.argsort(numbers, kind="stable") if key is None else np.lexsort((key, numbers))
        episodes = numbers[order]
        return order, np.concatenate([[True], episodes[1:] != episodes[:-1]])
    ends = np.zeros(columns.rows, dtype=bool)
    known = [roles.columns[role][0] for role in ENDS if role in roles.columns]
    if not known:
        raise DataError(
            "missing='forward' and elapsed=... look back within an episode, and nothing says where"
            " one begins; give episode=..., or terminated=..."
        )
    for name in known:
        ends |= columns.whole(name).astype(bool)
    return np.arange(columns.rows), np.concatenate([[True], ends[:-1]])


def row_order(columns: Columns, roles: Roles) -> Array | None:
    """What puts the rows of an episode in order: numbers or dates."""
    if "step" not in roles.columns:
        return None
    name = roles.columns["step"][0]
    kind = columns.blocks[name][0].dtype.kind
    if kind == "U" and not is_number(str(columns.blocks[name][0][0])):
        raise DataError(
            f"{columns.place(name, 0)} is the text {str(columns.blocks[name][0][0])!r}; expected"
            " numbers that increase, or dates written as 2024-03-01 or 01.03.2024: whether"
            " 03/01/2024 is in March or in January is not known; write them so"
        )
    if kind != "M":
        number_range(columns, name, any_size=True)
    return order_array("steps", columns.whole(name))


def elapsed_time(columns: Columns, roles: Roles, unit: str) -> Array:
    """Since the row before in the episode; 0 in its first row."""
    key = row_order(columns, roles)
    if key is None:
        raise DataError("elapsed: expected an order column, got none; give step=...")
    if "next_observation" in roles.columns:
        raise DataError(
            "elapsed: with next observations given, the time until each is unknown; leave"
            " next_observation out, or add your own feature to both"
        )
    if (key.dtype.kind == "M") != (UNITS[unit] is not None):
        wanted = "'days', 'hours', 'minutes' or 'seconds'" if key.dtype.kind == "M" else "'number'"
        raise DataError(
            f"elapsed: {unit!r} does not fit the order column"
            f" {roles.columns['step'][0]!r}; expected {wanted}"
        )
    if ELAPSED in roles.columns["observation"]:
        raise DataError(f"elapsed: there is an observation column {ELAPSED!r} already; rename it")
    order, starts = arrangement(columns, roles)
    size = UNITS[unit]
    numbers = key if size is None else key.astype("datetime64[us]").astype(np.int64)
    gaps = np.diff(numbers[order], prepend=numbers[order][:1]).astype(np.float64)
    gaps[starts] = 0.0
    result = np.empty(len(order))
    result[order] = gaps / (size or 1)
    return result


def refuse_other_order(source: Source, columns: Columns, roles: Roles) -> None:
    """Rows whose order nobody stated must not contradict a date that stands beside them."""
    if "step" in roles.columns or "episode" not in roles.columns:
        return
    used = {name for group in roles.columns.values() for name in group}
    for name in (n for n in source.names if n.lower() in DATE_NAMES and n not in used):
        dates = source.load([name])
        if dates.blocks[name][0].dtype.kind != "M" or name in dates.nulls:
            continue
        values, (order, starts) = dates.whole(name), arrangement(columns, roles)
        back = ~starts[1:] & (values[order][1:] < values[order][:-1])
        if back.any():
            row = int(order[1 + np.argmax(back)])
            raise DataError(
                f"{dates.place(name, row)} is {values[row]}, earlier than the row before it in its"
                " episode: the rows are in no order; sort them, or say which column orders them"
                f" with step={name!r}"
            )


def flags(block: Array) -> Array:
    """Words for true and false; whatever else it is stays."""
    if block.dtype.kind != "U":
        return block
    words, places = np.unique(block, return_inverse=True)
    if not all(word.lower() in FLAG_WORDS for word in words):
        return block
    return np.array([FLAG_WORDS[word.lower()] for word in words])[places.reshape(-1)]


def joined_ends(columns: Columns, roles: Roles) -> tuple[Columns, Roles]:
    """Died or discharged: where several columns say that an episode ends, any of them does."""
    for role in ENDS:
        names = roles.columns.get(role, ())
        if len(names) < 2:
            continue
        refuse_nulls(columns, names)
        said = [
            flag_array(f"{columns.source}: column {name!r}", flags(columns.whole(name)))
            for name in names
        ]
        joint = " or ".join(names)
        columns = replace(columns, blocks={**columns.blocks, joint: [np.any(said, axis=0)]})
        roles = replace(roles, columns={**roles.columns, role: (joint,)})
    return columns, roles


def with_every_row(source: Source, mapped: Mapping[str, Any]) -> tuple[Source, Mapping[str, Any]]:
    """`terminated=True` becomes a column that is true in every row."""
    for role in ENDS:
        given = mapped.get(role)
        if isinstance(given, bool) and (role, given) != (ENDS[0], True):
            raise DataError(
                f"{role}={given}: expected columns, or terminated=True where every row is an"
                " episode of its own; leave it out, or name a column"
            )
    if mapped.get(ENDS[0]) is not True:
        return source, mapped

    def stored(names: Sequence[str]) -> list[str]:
        return [name for name in names if name != EVERY_ROW] or list(source.names[:1])

    def load(names: Sequence[str]) -> Columns:
        found = source.load(stored(names))
        return replace(found, blocks={**found.blocks, EVERY_ROW: [np.ones(found.rows, bool)]})

    measure = source.size
    size = None if measure is None else lambda names: measure(stored(names))
    made = replace(source, names=(*source.names, EVERY_ROW), load=load, size=size)
    return made, {**mapped, ENDS[0]: EVERY_ROW}
