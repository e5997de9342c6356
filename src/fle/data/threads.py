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

    in_parallel(copy, range(0, len(rows), FEW_ROWS), len(rows))
    return result
