"""Named columns on their way from a file to matrices: where each row came from, in what order."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fle.data.passes import Array, in_parallel, with_room
from fle.data.readers.names import ENDS, Roles
from fle.data.validation import LARGEST_ID, flag_array, order_array
from fle.errors import DataError

# Rounding may move a value by this share of its column's range before a warning is due.
LOSS_TOLERANCE = 1e-4
FIRST_ROWS = 1_000
# To leave rows out would join what came before and after them.
MEND = (
    "fill it in, or for observations say missing='indicator' or missing='forward'; a row left out"
    " in the middle of an episode would join what came before and after it"
)
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


@dataclass(frozen=True)
class Part:
    """One file, or one object in memory, with its number of rows, or some rows of it.

    first: how many rows of the file come before them.
    """

    name: str
    rows: int
    first: int = 0


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns as blocks of NumPy arrays (k, ...) that follow each other.

    nulls: (n,), of the columns that have any, the rows without a value; a filler stands there.
    """

    parts: tuple[Part, ...]
    blocks: Mapping[str, Sequence[Array]]
    nulls: Mapping[str, Array] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """What an error calls all parts together."""
        first = self.parts[0].name
        if len(self.parts) == 1:
            return first
        return f"{first} and {len(self.parts) - 1} more (rows counted through all of them)"

    @property
    def rows(self) -> int:
        """The rows of all parts together."""
        return sum(part.rows for part in self.parts)

    def whole(self, name: str) -> Array:
        """A column in one piece."""
        blocks = self.blocks[name]
        return blocks[0] if len(blocks) == 1 else np.concatenate(list(blocks))

    def place(self, name: str, row: int) -> str:
        """The file, the column and the row within that file."""
        for part in self.parts[:-1]:
            if row < part.rows:
                return cell(part.name, name, part.first + row)
            row -= part.rows
        return cell(self.parts[-1].name, name, self.parts[-1].first + row)


def refuse_nulls(columns: Columns, names: Sequence[str]) -> None:
    """An error that names the first row without a value, if any of the columns has one."""
    for name in names:
        nulls = columns.nulls.get(name)
        if nulls is not None:
            raise DataError(
                f"{columns.place(name, int(np.argmax(nulls)))} is null ({int(nulls.sum())} nulls);"
                f" expected a value in every row: {MEND}"
            )


@dataclass(frozen=True)
class Source:
    """Something with named columns, of which only the needed ones are loaded.

    size: how large they will be; None for what is in memory already.
    notes: how it was opened, as far as a user should know.
    """

    name: str
    names: tuple[str, ...]
    load: Callable[[Sequence[str]], Columns]
    initial_observations: Any | None = None
    size: Callable[[Sequence[str]], "Size"] | None = None
    notes: tuple[str, ...] = ()


class Size(NamedTuple):
    """What columns will be in memory, as far as a file tells before it is read."""

    rows: int
    bytes: int


def cell(source: str, column: str, row: int) -> str:
    """How errors name a place; rows count from 0."""
    return f"{source}: column {column!r}, row {row}"


def require_distinct(source: str, names: Sequence[str]) -> None:
    """Refuse a table in which one name stands for two columns."""
    name, times = next(iter(Counter(names).most_common(1)), ("", 0))
    if times > 1:
        raise DataError(
            f"{source}: column {name!r} appears {times} times; expected each name once: rename or"
            " drop one"
        )


@dataclass(frozen=True, eq=False)
class Range:
    """The least and the greatest value of a column, for each of its entries."""

    low: Array
    high: Array


def number_range(columns: Columns, name: str, *, any_size: bool = False) -> Range:
    """The range of a column of finite numbers, or an error that names its first bad row.

    any_size: whether integers may be beyond 32 bits, as those of clocks are.
    """
    blocks = columns.blocks[name]
    if blocks[0].dtype.kind not in "biuf":
        _refuse_text(columns, name)
    low = np.min([block.min(axis=0) for block in blocks], axis=0)
    high = np.max([block.max(axis=0) for block in blocks], axis=0)
    # One pass each: NaN and infinity come through minimum and maximum.
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        _refuse_non_finite(columns, name)
    whole = blocks[0].dtype.kind in "iu" and not any_size
    if whole and (low.min() < -LARGEST_ID - 1 or high.max() > LARGEST_ID):
        values = columns.whole(name)
        place = np.argwhere((values < -LARGEST_ID - 1) | (values > LARGEST_ID))[0]
        raise DataError(
            f"{columns.place(name, int(place[0]))} is {values[tuple(place)]}, an"
            " integer beyond 32 bits; expected a smaller one: renumber it if it is an id, or store"
            " it as a float if it is a measurement"
        )
    return Range(low, high)


def number_ranges(columns: Columns, names: Sequence[str]) -> list[Range]:
    """The ranges of several columns."""
    return in_parallel(lambda name: number_range(columns, name), names, columns.rows)


def precision(columns: Columns, names: Sequence[str], warnings: list[str]) -> type[np.floating]:
    """float32, or float64 where anything would be lost: units and offsets are the user's.

    A warning says how much a policy that computes in float32 will not see.
    """
    needed: type[np.floating] = np.float32
    for name, bounds in zip(names, number_ranges(columns, names), strict=True):
        if needed is np.float32 and not all(map(fits_float32, columns.blocks[name])):
            needed = np.float64
        if is_narrow(columns.blocks[name][0].dtype):
            continue
        low, high = bounds.low.astype(np.float64), bounds.high.astype(np.float64)
        allowed = LOSS_TOLERANCE * (high - low)
        most = np.maximum(np.abs(low), np.abs(high)) * 2.0**-24 + 2.0**-150
        if ((most <= allowed) | (high == low)).all() and max(-low.min(), high.max()) < 3e38:
            continue
        worst = _largest_rounding(columns.blocks[name])
        if (worst > np.maximum(allowed, 0)).any() and (high > low).any():
            entry = int(np.argmax(worst - allowed))
            share = float(np.ravel(worst)[entry] / max(np.ravel(high - low)[entry], 1e-300))
            warnings.append(
                f"column {name!r} loses up to {np.ravel(worst)[entry]:.3g} in float32,"
                f" {share:.2g} of its range; it is kept in float64, but most policies work in"
                " float32: subtract an offset, or rescale it, there and here"
            )
    return needed


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether float32 holds all that the type can: floats as short, integers of 16 bits."""
    return dtype.itemsize <= (4 if dtype.kind == "f" else 2)


def fits_float32(values: Array) -> bool:
    """Whether float32 holds every value exactly."""
    if is_narrow(values.dtype):
        return True
    # The first rows tell most columns, without looking at all.
    for part in (values[:FIRST_ROWS], values[FIRST_ROWS:]):
        with np.errstate(over="ignore"):
            if (part.astype(np.float32).astype(np.float64) != part).any():
                return False
    return True


def matrix(columns: Columns, names: Sequence[str], dtype: type[np.floating]) -> Array:
    """The columns side by side, (n, p); a column of lists gives several.

    In memory, each column stays in one piece, as it came: rows would have to be woven together.
    """
    flat = [[block.reshape(len(block), -1) for block in columns.blocks[name]] for name in names]
    widths = [blocks[0].shape[1] for blocks in flat]
    if len(flat) == 1 and len(flat[0]) == 1:
        with np.errstate(over="ignore"):
            return flat[0][0].astype(dtype, copy=False)
    result = with_room(sum(map(len, flat[0])), sum(widths), dtype)
    starts = np.concatenate([[0], np.cumsum(widths)])

    def fill(number: int) -> None:
        row = 0
        with np.errstate(over="ignore"):
            for block in flat[number]:
                target = result[row : row + len(block), starts[number] : starts[number + 1]]
                target[...] = block
                row += len(block)

    in_parallel(fill, range(len(flat)), len(result))
    return result


def _largest_rounding(blocks: Sequence[Array]) -> Array:
    worst = []
    for block in blocks:
        exact = block.astype(np.float64)
        with np.errstate(over="ignore"):
            worst.append(np.abs(exact - exact.astype(np.float32)).max(axis=0))
    return np.max(worst, axis=0)


def _refuse_non_finite(columns: Columns, name: str) -> None:
    values = columns.whole(name)
    wrong = np.argwhere(~np.isfinite(values))
    raise DataError(
        f"{columns.place(name, int(wrong[0][0]))} is {values[tuple(wrong[0])]}; expected a finite"
        f" number ({len(wrong)} such values): {MEND}"
    )


def _refuse_text(columns: Columns, name: str) -> None:
    values = columns.whole(name)
    if values.dtype.kind == "M":
        raise DataError(
            f"{columns.place(name, 0)} is the date {values[0]}; expected a number: dates order the"
            " rows of an episode, as step=..., and elapsed='days' makes a feature of them"
        )
    row = next((row for row, text in enumerate(values) if not is_number(text)), 0)
    raise DataError(
        f"{columns.place(name, row)} is the text {str(values[row])[:40]!r}; expected a number:"
        " leave the column out, or store it as numbers"
    )


def is_number(text: str) -> bool:
    """Whether a text says a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def refuse_reused_episodes(columns: Columns, ids: Array, steps: Array | None) -> None:
    """An id may come back in another file only to go on, which the steps must show."""
    if len(columns.parts) == 1:
        return
    bounds = np.cumsum([part.rows for part in columns.parts])
    if (ids[1:] >= ids[:-1]).all():
        # In order, so what goes on goes on in the next row; far cheaper than sorting to find out.
        goes_on = ids[1:] == ids[:-1]
        across = goes_on[bounds[:-1] - 1] if steps is None else goes_on & (steps[1:] <= steps[:-1])
        if not across.any():
            return
    files = np.searchsorted(bounds, np.arange(len(ids)), side="right")
    _, numbers = np.unique(ids, return_inverse=True)
    keys = (
        numbers
        if steps is None
        else np.unique(
            np.stack([numbers, np.unique(steps, return_inverse=True)[1]], axis=1),
            axis=0,
            return_inverse=True,
        )[1].reshape(-1)
    )
    lowest = np.full(keys.max() + 1, len(bounds))
    np.minimum.at(lowest, keys, files)
    reused = files != lowest[keys]
    if reused.any():
        row = int(np.argmax(reused))
        there, here = columns.parts[lowest[keys[row]]].name, columns.parts[files[row]].name
        which = "" if steps is None else f" with step {steps[row]}"
        raise DataError(
            f"episode {ids[row]}{which} is in {there} and again in {here}; expected each id in one"
            " file: make the ids distinct, or give a step column if the episode goes on"
        )


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
