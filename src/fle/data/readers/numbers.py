"""Columns become matrices, of float32 where that loses nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.data.readers.columns import Columns
from fle.data.threads import in_parallel, with_room
from fle.data.transitions import Array
from fle.errors import DataError

# Rounding may move a value by this share of its column's range before a warning is due.
LOSS_TOLERANCE = 1e-4
FIRST_ROWS = 1_000
SMALLEST_ID, LARGEST_ID = -(2**31), 2**31 - 1


@dataclass(frozen=True, eq=False)
class Range:
    """The least and the greatest value of a column, for each of its entries."""

    low: Array
    high: Array


def number_range(columns: Columns, name: str) -> Range:
    """The range of a column of finite numbers, or an error that names its first bad row."""
    blocks = columns.blocks[name]
    if blocks[0].dtype.kind not in "biuf":
        _refuse_text(columns, name)
    low = np.min([block.min(axis=0) for block in blocks], axis=0)
    high = np.max([block.max(axis=0) for block in blocks], axis=0)
    # One pass each: NaN and infinity come through minimum and maximum.
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        _refuse_non_finite(columns, name)
    if blocks[0].dtype.kind in "iu" and (low.min() < SMALLEST_ID or high.max() > LARGEST_ID):
        outside = (columns.whole(name) < SMALLEST_ID) | (columns.whole(name) > LARGEST_ID)
        place = np.argwhere(outside)[0]
        raise DataError(
            f"{columns.place(name, int(place[0]))} is {columns.whole(name)[tuple(place)]}, an"
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
        f" number ({len(wrong)} such values): drop or repair these rows"
    )


def _refuse_text(columns: Columns, name: str) -> None:
    values = columns.whole(name)
    row = next((row for row, text in enumerate(values) if not _is_number(text)), 0)
    raise DataError(
        f"{columns.place(name, row)} is the text {str(values[row])[:40]!r}; expected a number:"
        " leave the column out, or store it as numbers (categories as codes from 0)"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
