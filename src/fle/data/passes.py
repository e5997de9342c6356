"""Passes over large arrays, shared among the processor's cores, and the memory they may take."""

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fle.errors import FLEError

Array = npt.NDArray[Any]
Item = TypeVar("Item")
Result = TypeVar("Result")

SMALLEST = np.finfo(np.float64).smallest_subnormal
# Below this many rows, starting threads costs more than it saves.
FEW_ROWS = 65_536
# Shares of a pass that each thread is given, one after the other.
SHARES = 8
# Rows of a block: its numbers fit in a cache, and its products are too small to share among cores.
BLOCK = 2_048
# The same in bytes, for plain copies.
MUCH = 2**24
# Rows of a column that are tested together.
TESTED = 2**15
# Bytes below the most that the C library keeps.
KEPT = 2**25 - 2**16
# Bytes at whose multiples XLA wants an array to begin.
ALIGNED = 64
# What reading takes at its peak, as a multiple of its columns (`tests/data/test_memory.py`).
READING = 4.0
_ceiling: ContextVar[int | None] = ContextVar("ceiling", default=None)
_alone: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def memory_ceiling(size: int | None) -> Iterator[None]:
    """In here, what would make this process larger than `size` bytes is refused beforehand.

    Without one, what the machine has left is the limit. The sizes are estimates, made before
    anything is allocated.

    Example: `with fle.memory_ceiling(8 * 2**30): fle.evaluate(data, policy, gamma=0.99)`.
    """
    token = _ceiling.set(size)
    try:
        yield
    finally:
        _ceiling.reset(token)


def ceiling() -> int | None:
    """What this process may grow to, if that was said."""
    return _ceiling.get()


def require_memory(needed: float, what: str, rows: int) -> None:
    """Refuse what does not fit, and say how many of its rows would."""
    ceiling = _ceiling.get()
    left = _left_on_machine() if ceiling is None else ceiling - _size_of_process()
    if left is None or needed <= left:
        return
    whose = "on this machine" if ceiling is None else "below the ceiling (`memory_ceiling`)"
    share = max(left, 0) / needed
    raise FLEError(
        f"{what} would take about {needed / 2**30:.3g} GiB of memory, and"
        f" {max(left, 0) / 2**30:.3g} GiB are left {whose}; about {int(rows * share):,} of its"
        f" {rows:,} rows would fit: use fewer, or give more memory."
    )


def _left_on_machine() -> int | None:
    """What Linux says is left, for the machine and for the group that the process runs in."""
    left = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        left.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text())
        left.append(most - int((group / "memory.current").read_text()))
    return min(left) if left else None


def _size_of_process() -> int:
    """Bytes that are in memory now; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


@contextmanager
def on_one_core() -> Iterator[None]:
    """In here, passes start no threads: this is one of several that keep the cores busy."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def in_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], rows: int
) -> list[Result]:
    """The function of every item, in order, for work over `rows` rows."""
    if rows < FEW_ROWS or len(items) < 2 or _alone.get():
        return [function(item) for item in items]
    workers = min(len(items), os.cpu_count() or 1)
    # Handing out thousands of blocks one by one takes as long as many a pass over them.
    share = -(-len(items) // (SHARES * workers))
    shares = [items[start : start + share] for start in range(0, len(items), share)]
    with ThreadPoolExecutor(workers) as pool:
        done = pool.map(lambda part: [function(item) for item in part], shares)
        return [result for part in done for result in part]


def row_blocks(rows: int, size: int = BLOCK) -> list[slice]:
    """All rows, some at a time: what is worked out of them stays small, and in the cache."""
    return [slice(*ends) for ends in pairwise((*range(0, rows, size), rows))]


def gather(array: Array, rows: Array) -> Array:
    """`array[rows]`, for rows that are known to exist, laid out as the array is."""
    if by_column(array):
        result = np.empty((array.shape[1], len(rows)), dtype=array.dtype).T
        pieces = [(array[:, j], rows, result[:, j]) for j in range(array.shape[1])]
    else:
        result = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)
        pieces = [(array, rows[part], result[part]) for part in row_blocks(len(rows))]

    def copy(piece: tuple[Array, Array, Array]) -> None:
        source, places, target = piece
        # Without "clip", NumPy would fill a copy first, in case a row does not exist.
        np.take(source, places, axis=0, out=target, mode="clip")

    in_parallel(copy, pieces, len(rows) if result.nbytes >= MUCH else 0)
    return result


def _empty(shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Memory of Arrow, which keeps what was given back, where NumPy asks the system anew."""
    size = shape[0] * shape[1] * dtype.itemsize
    pa = sys.modules.get("pyarrow")
    if size < MUCH or pa is None:
        return np.empty(shape, dtype)
    return np.frombuffer(pa.allocate_buffer(size), dtype).reshape(shape)


def keep_memory() -> None:
    """What is given back is used again, not fetched anew from the system, which clears it.

    The C library of Linux keeps pieces as large as the largest that it was given back.
    """
    np.empty(KEPT, np.uint8)


def give_back() -> None:
    """What Arrow keeps for later goes back to the system: fits need the memory now."""
    pa = sys.modules.get("pyarrow")
    if pa is not None:
        pa.default_memory_pool().release_unused()


def by_column(array: Array) -> bool:
    """Whether the entries of a column lie next to each other, and those of a row do not."""
    return array.ndim == 2 and array.strides[0] == array.itemsize and array.shape[1] > 1


def with_room(rows: int, width: int, dtype: type[np.generic]) -> Array:
    """An empty matrix, column by column, with memory for one more row, for `successors`."""
    return _empty((width, rows + 1), np.dtype(dtype)).T[:rows]


def successors(array: Array, *, overwrite: bool) -> Array:
    """The row after each row; the last repeats itself.

    overwrite: the array is ours (see `with_room`), and nothing is copied if it has room.
    """
    base = array.base
    ours = overwrite and by_column(array)
    if not ours or base is None or base.size != array.shape[1] * (len(array) + 1):
        return np.concatenate([array[1:], array[-1:]])
    columns = base.reshape(array.shape[1], len(array) + 1)
    columns[:, -1] = array[-1]
    return columns.T[1:]


def with_successors(array: Array, rows: Array, *, overwrite: bool) -> tuple[Array, Array]:
    """`array[rows]` for increasing rows, and the row after each of them in the array.

    overwrite: the first may be written over the array itself, if it lies column by column.
    """
    if not overwrite or not by_column(array):
        return gather(array, rows), gather(array, np.minimum(rows + 1, len(array) - 1))
    following = _empty((array.shape[1], len(rows)), array.dtype)

    def move(number: int) -> None:
        column = array[:, number]
        np.take(column[1:], rows, out=following[number], mode="clip")
        for start in range(0, len(rows), FEW_ROWS):
            places = rows[start : start + FEW_ROWS]
            column[start : start + len(places)] = np.take(column, places, mode="clip")

    in_parallel(move, range(len(following)), len(rows))
    return array[: len(rows)], following.T


def all_finite(array: Array) -> bool:
    """Whether no entry is NaN or infinite: both come through minimum and maximum."""
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def holds_throughout(test: Callable[[slice], Array], rows: int) -> bool:
    """Whether a test is passed by all rows, some at a time: what it makes stays in the cache."""
    return all(bool(test(block).all()) for block in row_blocks(rows, TESTED))


def shows_next(observations: Array, following: Array) -> Array:
    """(n,) Whether the next observation of each row is the observation of the row after it."""
    shown = np.zeros(len(observations), bool)
    for block in row_blocks(len(observations) - 1):
        after = slice(block.start + 1, block.stop + 1)
        same = following[block] == observations[after]
        shown[block] = same if same.ndim == 1 else same.all(axis=1)
    return shown


def centre_and_scale(values: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each column (n, p), in float64; 1 where a column is constant.

    Constant means that all values are equal. No spread is too small: it may be the unit.
    """
    low, high = (bound.astype(np.float64) for bound in (values.min(axis=0), values.max(axis=0)))
    constant = low == high
    span = np.where(constant, 1.0, high - low)

    def moments(block: slice) -> tuple[Array, Array]:
        # From 0 to 1: an offset costs no digits, and no square is too large or too small.
        shares = (values[block].astype(np.float64) - low) / span
        return shares.mean(axis=0), shares.var(axis=0)

    blocks = row_blocks(len(values))
    means, variances = zip(*in_parallel(moments, blocks, len(values)), strict=True)
    counts = np.array([[block.stop - block.start] for block in blocks]) / len(values)
    mean = (counts * means).sum(axis=0)
    variance = (counts * (np.asarray(variances) + np.square(means - mean))).sum(axis=0)
    scale = np.maximum(np.sqrt(variance) * span, SMALLEST)
    return low + span * mean, np.where(constant, 1.0, scale)


def aligned(shape: tuple[int, ...]) -> Array:
    """An empty array of float32 as compiled code wants it, which else would make a copy."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + size].view(np.float32).reshape(shape)


def standardised(parts: Sequence[Array], centre: Array, scale: Array) -> Array:
    """(values - centre) / scale of arrays one below the other, in float64, then as float32."""
    result = aligned((sum(map(len, parts)), *parts[0].shape[1:]))
    first = 0
    for values in parts:
        target = result[first : first + len(values)]

        def fill(block: slice, values: Array = values, target: Array = target) -> None:
            target[block] = (values[block].astype(np.float64) - centre) / scale

        in_parallel(fill, row_blocks(len(values)), len(values))
        first += len(values)
    return result
