"""Turns one field of logged data into a checked NumPy array, or says which row cannot be used."""

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.data.passes import Array, all_finite
from fle.errors import DataError, FaultyDataError

LARGEST_ID = 2**31 - 1
# How far from one probabilities may sum, as rounding of what a log wrote leaves them.
SUM_TOLERANCE = 1e-3
# How far above one a probability may be that was stored in float32.
ROUNDING = 1e-6
RENUMBER = "renumber them from 0, for example with np.unique(ids, return_inverse=True)[1]"


class Faults:
    """What is wrong with some data.

    >>> faults = Faults(collect=True)
    >>> with faults.caught():
    ...     raise DataError("row 3 is nan")
    >>> faults.found
    ['row 3 is nan']

    collect: keep faults in `found` and go on, where that makes sense; else the first is raised.
    """

    def __init__(self, *, collect: bool = False) -> None:
        self._collect = collect
        self.found: list[str] = []

    @contextmanager
    def caught(self) -> Iterator[None]:
        """A part of the work that others do not depend on."""
        try:
            yield
        except DataError as error:
            if not self._collect:
                raise
            said = error.found if isinstance(error, FaultyDataError) else (str(error),)
            self.found += [text for text in said if text not in self.found]

    def require_none(self) -> None:
        """Go no further with faults that were collected: what follows would be their doing."""
        if self.found:
            raise FaultyDataError(self.found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """What the check of one field may know of the others.

    observations, actions: once they are checked.
    known_finite: whether the observations were looked through already.
    """

    observations: Array | None = None
    actions: Array | None = None
    number_of_actions: int | None = None
    known_finite: bool = False


def numeric_array(name: str, values: Any) -> Array:
    """`values` as a non-empty array of numbers with one row per item."""
    # np.asarray would forget the mask and keep whatever lies under it.
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        row = int(np.argwhere(np.ma.getmaskarray(values))[0, 0])
        raise DataError(
            f"{name}: row {row} is null (masked); expected a number: drop the row or fill it in"
        )
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(_first_bad_row(name, values)) from error
    if array.ndim == 0:
        raise DataError(
            f"{name}: expected an array with one item per row, got {reprlib.repr(values)}"
            f" ({type(values).__name__}); pass a list or a NumPy array"
        )
    if array.dtype.kind == "c":
        raise DataError(f"{name}: expected real numbers, got dtype {array.dtype}; take .real")
    if array.dtype.kind not in "biuf":
        raise DataError(_first_bad_row(name, values))
    if len(array) == 0:
        raise DataError(f"{name} is empty: expected at least one row")
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def require_finite(name: str, array: Array) -> None:
    """Refuse NaN and infinity, naming the first place."""
    if all_finite(array):
        return
    finite = np.isfinite(array)
    place = np.unravel_index(int(np.argmin(finite)), array.shape)
    where = f"row {place[0]}" + (f", column {place[1]}" if array.ndim > 1 else "")
    raise DataError(
        f"{name}: {where} is {array[place]}; expected a finite number"
        f" ({int((~finite).sum())} such values): drop or repair these rows"
    )


def require_rows(name: str, array: Array, rows: int) -> None:
    """Refuse a field whose length differs from that of the observations."""
    if len(array) != rows:
        raise DataError(
            f"{name} has {len(array)} rows but observations has {rows};"
            " expected one row per transition in both"
        )


def observation_array(name: str, values: Any, context: Context) -> Array:
    """Observations: (n,) int64 states if 1-d integers, else (n, p) floats."""
    array = numeric_array(name, values)
    if array.ndim == 1 and array.dtype.kind in "biu":
        return id_array(name, array)
    return _float_rows(name, array, known_finite=context.known_finite)


def like_observations(name: str, values: Any, context: Context) -> Array:
    """Another field of observations, in the same space and dtype as the observations."""
    array = numeric_array(name, values)
    observations = context.observations
    if observations is None:
        raise DataError(f"{name}: expected observations beside it, got none; give observations")
    if observations.ndim == 1:
        if array.ndim != 1 or array.dtype.kind not in "biu":
            raise DataError(
                f"{name}: expected 1-d integer states as in observations,"
                f" got shape {array.shape} of dtype {array.dtype}"
            )
        return id_array(name, array)
    array = _float_rows(name, array)
    if array.shape[1] != observations.shape[1]:
        raise DataError(
            f"{name} has width {array.shape[1]} but observations has width"
            f" {observations.shape[1]}; expected the same width"
        )
    with np.errstate(over="ignore"):
        narrowed = array.astype(observations.dtype, copy=False)
    require_finite(name, narrowed)
    return narrowed


def action_array(name: str, values: Any, context: Context) -> Array:
    """Actions: (n,) int64 codes, or (n, k) floats if nothing says how many there are."""
    array = numeric_array(name, values)
    count = context.number_of_actions
    if count is None and array.dtype.kind == "f":
        return _float_rows(name, array)
    array = column(name, array, "one integer code per row, or float columns if continuous")
    if count is None:
        return id_array(name, array)
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise DataError(f"number_of_actions: expected a positive integer, got {count!r}")
    array = whole_numbers(name, array)
    outside = (array < 0) | (array >= count)
    if outside.any():
        row = int(np.argmax(outside))
        raise DataError(
            f"{name}: row {row} is {array[row]}; expected 0 to {count - 1}"
            f" because number_of_actions is {count}"
        )
    return id_array(name, array)


def reward_array(name: str, values: Any) -> Array:
    """Rewards as (n, d) float64: one column per kind of reward."""
    array = numeric_array(name, values)
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] == 0):
        raise DataError(f"{name}: expected shape (n,) or (n, d), got {array.shape}")
    rewards = array.reshape(len(array), -1).astype(np.float64, copy=False)
    require_finite(name, rewards)
    return rewards


def label_tuple(labels: Sequence[str] | None, count: int | None) -> tuple[str, ...]:
    """One distinct name for each of the action codes; none where none was given."""
    if labels is None or len(labels) == 0:
        return ()
    names = (labels,) if isinstance(labels, str) else tuple(str(label) for label in labels)
    if count is None:
        raise DataError("action_labels: expected discrete actions, got continuous ones")
    if len(names) != count or len(set(names)) < count:
        raise DataError(
            f"action_labels: expected {count} distinct names, one for each action, got"
            f" {reprlib.repr(labels)}"
        )
    return names


def reward_name_tuple(names: Sequence[str] | None, dimension: int) -> tuple[str, ...]:
    """One distinct name per reward column."""
    if names is None:
        if dimension == 1:
            return ("reward",)
        return tuple(f"reward_{number}" for number in range(1, dimension + 1))
    # A string is a sequence too, of its letters.
    given = (names,) if isinstance(names, str) else tuple(names)
    proper = all(isinstance(name, str) and name for name in given)
    if len(given) != dimension or not proper or len(set(given)) != dimension:
        raise DataError(
            f"reward_names: expected {dimension} distinct names, one per reward column,"
            f" got {reprlib.repr(names)}"
        )
    return given


def flag_array(name: str, values: Any) -> Array:
    """Terminations or truncations as (n,) bool; zeros and ones are accepted."""
    array = column(name, numeric_array(name, values), "one flag per row")
    if array.dtype == bool:
        return array
    neither = (array != 0) & (array != 1)
    if neither.any():
        row = int(np.argmax(neither))
        raise DataError(f"{name}: row {row} is {array[row]}; expected True or False (or 1 or 0)")
    return array.astype(bool, copy=False)


def step_array(name: str, values: Any) -> Array:
    """Steps as (n,) int64, counting from 0."""
    array = column(name, numeric_array(name, values), "one integer per row")
    return id_array(name, whole_numbers(name, array))


def order_array(name: str, values: Any) -> Array:
    """What puts rows in order: dates, or finite numbers; whole ones become integers."""
    dates = np.asarray(values) if isinstance(values, np.ndarray) else None
    if dates is not None and dates.dtype.kind == "M":
        if np.isnat(dates).any():
            raise DataError(
                f"{name}: row {int(np.argmax(np.isnat(dates)))} is no date; expected one in every"
                " row: fill it in"
            )
        return column(name, dates, "one date per row")
    array = column(name, numeric_array(name, values), "one number per row")
    if array.dtype.kind == "f":
        require_finite(name, array)
        whole = (array == np.floor(array)).all() and (np.abs(array) < 2.0**53).all()
        return array.astype(np.int64) if whole else array
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        return array
    return array.astype(np.int64, copy=False)


def weight_array(name: str, values: Any) -> Array:
    """Row weights: finite, none negative, not all zero."""
    array = column(name, numeric_array(name, values), "one number per row")
    weights = array.astype(np.float64, copy=False)
    require_finite(name, weights)
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise DataError(f"{name}: row {row} is {weights[row]}; expected 0 or more")
    if weights.sum() <= 0:
        raise DataError(f"{name}: all are zero; expected at least one positive weight")
    return weights


def propensity_array(name: str, values: Any, context: Context) -> Array:
    """Of the policy that logged the data: (n,) for the logged actions, or (n, A) for all of them.

    One number is the logged action's probability if actions are discrete, and else its density.
    """
    propensities = numeric_array(name, values).astype(np.float64, copy=False)
    require_finite(name, propensities)
    actions = context.actions
    if actions is None:
        raise DataError(f"{name}: expected actions beside it, got none; give actions")
    require_rows(name, propensities, len(actions))
    if propensities.ndim == 2 and propensities.shape[1] > 1:
        return _distributions(name, propensities, actions, context.number_of_actions)
    expected = "one number per row, or one per row and action if these are discrete"
    propensities = column(name, propensities, expected)
    most = 1 + ROUNDING if actions.ndim == 1 else np.inf
    wrong = (propensities <= 0) | (propensities > most)
    if wrong.any():
        row, density = int(np.argmax(wrong)), "a density, above 0"
        _refuse_propensity(
            f"{name}: row {row} is {propensities[row]}; expected"
            f" {'a probability, above 0 and at most 1' if actions.ndim == 1 else density}",
            wrong,
        )
    return np.minimum(propensities, 1.0) if actions.ndim == 1 else propensities


def _distributions(name: str, table: Array, actions: Array, count: int | None) -> Array:
    """(n, A) that sums to one, with the logged action possible."""
    if actions.ndim > 1:
        raise DataError(
            f"{name}: expected one density per row because actions are continuous,"
            f" got shape {table.shape}; give the density of the logged action"
        )
    least = int(actions.max()) + 1 if count is None else count
    if table.shape[1] < least or (count is not None and table.shape[1] != count):
        raise DataError(
            f"{name} has {table.shape[1]} columns but there are {least} actions;"
            " expected one column per action, or one number per row"
        )
    sums, logged = table.sum(axis=1), table[np.arange(len(table)), actions]
    wrong = (table < 0).any(axis=1) | (np.abs(sums - 1) > SUM_TOLERANCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        _refuse_propensity(
            f"{name}: row {row} is {reprlib.repr(table[row].tolist())}, with sum {sums[row]:g};"
            " expected probabilities with sum 1",
            wrong,
        )
    if (logged <= 0).any():
        row = int(np.argmax(logged <= 0))
        _refuse_propensity(
            f"{name}: row {row} is 0 for the logged action {actions[row]}; expected above 0, since"
            " it was taken",
            logged <= 0,
        )
    return table / sums[:, None]


def _refuse_propensity(message: str, wrong: Array) -> None:
    raise DataError(
        f"{message} ({int(wrong.sum())} such rows); repair them, or leave propensities out:"
        " they can be estimated"
    )


def episode_array(name: str, values: Any) -> Array:
    """Episode ids as given: integers of any size, whole floats, or strings."""
    if isinstance(values, np.ndarray | list | tuple) and all(isinstance(i, str) for i in values):
        array = np.asarray(values, dtype=np.str_)
    else:
        array = whole_numbers(name, numeric_array(name, values))
    return column(name, array, "one id per row")


def column(name: str, array: Array, expected: str) -> Array:
    """(n,) or (n, 1) as (n,)."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{name}: expected {expected}, got {array.dtype} of shape {array.shape}")
    return array


def whole_numbers(name: str, array: Array) -> Array:
    """Integers, where floats may be given if they are whole."""
    if array.dtype.kind != "f":
        return array
    require_finite(name, array)
    broken = array != np.floor(array)
    if broken.any():
        row = int(np.argwhere(broken)[0, 0])
        raise DataError(f"{name}: row {row} is {array[row]}; expected a whole number")
    if (np.abs(array) >= 2.0**63).any():
        raise DataError(
            f"{name}: expected integers of at most 64 bits, got larger ones; {RENUMBER}"
        )
    return array.astype(np.int64)


def id_array(name: str, array: Array) -> Array:
    """Integers counted from 0 that survive the 32-bit integers of the compiled code."""
    # Compared before the cast: a uint64 beyond int64 would come out negative.
    if array.min() < 0 or array.max() > LARGEST_ID:
        row = int(np.argmax((array < 0) | (array > LARGEST_ID)))
        raise DataError(
            f"{name}: row {row} is {array[row]}; expected integers from 0 to {LARGEST_ID}:"
            f" {RENUMBER}"
        )
    return array.astype(np.int64, copy=False)


def _float_rows(name: str, array: Array, *, known_finite: bool = False) -> Array:
    """(n, p) float32 or float64; anything with more dimensions is flattened."""
    rows = array.reshape(len(array), -1)
    if rows.shape[1] == 0:
        raise DataError(f"{name}: expected at least one column, got shape {array.shape}")
    if rows.dtype.kind != "f":
        # float32 holds every integer of up to 16 bits exactly.
        rows = rows.astype(np.float32 if rows.dtype.itemsize <= 2 else np.float64)
    elif rows.dtype.itemsize < 4:
        rows = rows.astype(np.float32)
    if not known_finite:
        require_finite(name, rows)
    return rows


def _first_bad_row(name: str, values: Any) -> str:
    """Why `values` is not an array of numbers, with the first row that spoils it."""
    advice = "expected numbers of one shape in every row"
    if not isinstance(values, Iterable):
        return f"{name}: {advice}, got {type(values).__name__}"
    first_shape: tuple[int, ...] | None = None
    for row, item in enumerate(values):
        try:
            cell = np.asarray(item)
        except (ValueError, TypeError):
            return f"{name}: row {row} is ragged or not an array: {reprlib.repr(item)}; {advice}"
        if cell.dtype.kind == "O" and any(part is None for part in cell.flat):
            return (
                f"{name}: row {row} is null (None); expected a number: drop the row or fill it in"
            )
        if isinstance(item, int) and cell.dtype.kind == "O":
            return f"{name}: row {row} is {item}, beyond 64 bits; {RENUMBER}"
        if cell.dtype.kind not in "biuf":
            return f"{name}: row {row} is {reprlib.repr(item)} ({type(item).__name__}); {advice}"
        first_shape = cell.shape if first_shape is None else first_shape
        if cell.shape != first_shape:
            return (
                f"{name}: row {row} has shape {cell.shape} but row 0 has shape {first_shape}"
                f" (ragged); {advice}"
            )
    return f"{name}: {advice}, got an object array; convert it with np.stack or .astype(float)"


def feature_names(field: str, given: Sequence[str] | None, values: Array) -> tuple[str, ...]:
    """One distinct name for each column (n, p); none where none was given, or codes need none."""
    if given is None or values.ndim == 1:
        return ()
    names = tuple(str(name) for name in given)
    if len(names) != values.shape[1] or len(set(names)) < len(names):
        raise DataError(
            f"{field}: expected {values.shape[1]} distinct names, one a column, got {len(names)}:"
            f" {', '.join(map(repr, names[:5]))}"
        )
    return names


def require_same_names(whose: str, expected: Sequence[str], given: Sequence[str]) -> None:
    """Refuse columns of other names, or in another order; nothing is known of unnamed ones."""
    if not expected or not given or tuple(expected) == tuple(given):
        return
    lacking = [name for name in expected if name not in set(given)]
    surplus = [name for name in given if name not in set(expected)]
    problem = "the order is another: put them in this one"
    if lacking or surplus:
        parts = [f"{_some(lacking)} are missing"] if lacking else []
        parts += [f"nothing knows {_some(surplus)}"] if surplus else []
        problem = " and ".join(parts)
    raise DataError(
        f"{whose}: expected the columns {_some(expected)}, got {_some(given)}; {problem}"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
