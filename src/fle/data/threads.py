"""Passes over large arrays, shared among the processor's cores; NumPy lets them run at once."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Item = TypeVar("Item")
Result = TypeVar("Result")

# Below this many rows, starting threads costs more than it saves.
FEW_ROWS = 65_536
# The same in bytes, for plain copies.
MUCH = 2**24


def in_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], rows: int
) -> list[Result]:
    """The function of every item, in order, for work over `rows` rows."""
    if rows < FEW_ROWS or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(len(items), os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))


def gather(array: Array, rows: Array) -> Array:
    """`array[rows]`, for rows that are known to exist."""
    result = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)

    def copy(start: int) -> None:
        part = slice(start, start + FEW_ROWS)
        # Without "clip", NumPy would fill a copy first, in case a row does not exist.
        np.take(array, rows[part], axis=0, out=result[part], mode="clip")

    starts = range(0, len(rows), FEW_ROWS)
    in_parallel(copy, starts, len(rows) if result.nbytes >= MUCH else 0)
    return result


def with_room(rows: int, width: int, dtype: type[np.generic]) -> Array:
    """An empty matrix with memory for one more row, which `successors` can use."""
    return np.empty((rows + 1, width), dtype=dtype)[:rows]


def successors(array: Array, *, overwrite: bool) -> Array:
    """The row after each row; the last repeats itself.

    overwrite: the array is ours (see `with_room`), and nothing is copied if it has room.
    """
    base = array.base
    if not overwrite or base is None or base.shape != (len(array) + 1, *array.shape[1:]):
        return np.concatenate([array[1:], array[-1:]])
    base[-1] = array[-1]
    return base[1:]


def compact(array: Array, rows: Array) -> Array:
    """`array[rows]` for increasing rows, written over the front of the array itself."""
    for start in range(0, len(rows), FEW_ROWS // 8):
        part = slice(start, start + FEW_ROWS // 8)
        array[: len(rows)][part] = np.take(array, rows[part], axis=0, mode="clip")
    return array[: len(rows)]


def all_finite(array: Array) -> bool:
    """Whether no entry is NaN or infinite."""

    def finite(start: int) -> bool:
        return bool(np.isfinite(array[start : start + FEW_ROWS]).all())

    return all(in_parallel(finite, range(0, len(array), FEW_ROWS), len(array)))
