"""Arrays that grow in files, whatever their length will be, and what is counted of them."""

import os
from pathlib import Path
from typing import Any, final

import numpy as np

from fle.data.passes import Array
from fle.data.readers.prepared_log import BLOCK_BYTES, ColumnFigures, StoredArray, mapped
from fle.data.readers.running_sums import RunningSums
from fle.files import not_through_links

# Rows that are copied, and numbers that are written, counted or multiplied, together.
ROWS, PUT, COUNTED, MULTIPLIED = 2**20, 2**15, 2**15, 2**13


@final
class GrowingArray:
    """An array in a file that rows are appended to; columns of a matrix lie one after the other.

    Its type is the first rows', but integers take four bytes while they can, and it is widened once
    other rows need it. The file has room for as many rows as there may be; what is not written
    takes no space on the disk.
    """

    def __init__(self, path: Path, room: int) -> None:
        self._path, self._room, self._written = path, room, 0
        # The last row, which may be replaced: no byte is written twice.
        self._held: Array | None = None
        self._dtype: np.dtype[Any] | None = None
        self._width: tuple[int, ...] = ()
        self._open()

    def __len__(self) -> int:
        return self._written + (self._held is not None)

    @property
    def _by_column(self) -> bool:
        return len(self._width) == 1

    def append(self, values: Array) -> None:
        """Write more rows (k, ...)."""
        wanted = _stored_type(values)
        if self._dtype is None:
            self._width, self._dtype = values.shape[1:], wanted
            self._reserve()
        elif np.promote_types(self._dtype, wanted) != self._dtype:
            self._widen(np.promote_types(self._dtype, wanted))
        if len(values):
            self._write_held()
            self._write(values[:-1])
            self._held = values[-1:].copy()

    def replace_last(self, row: Array) -> None:
        """Write another row (1, ...) over the last one."""
        self._held = row

    def read(self) -> Array:
        """All rows, mapped into memory."""
        self._write_held()
        return mapped(self._path, self._entry())

    def finish(self) -> StoredArray:
        """Close the file, and say what is in it."""
        self._write_held()
        entry = self._entry()
        self._file.truncate(entry.bytes)
        # What a loss of power keeps from the disk, the checksums find.
        self._file.close()
        return entry._replace(checksums=self._sums.of_blocks(entry.bytes))

    def close(self) -> None:
        """Give the file back, finished or not."""
        self._file.close()

    def _entry(self) -> StoredArray:
        kind = np.dtype(np.float32) if self._dtype is None else self._dtype
        shape = [self._written, *self._width]
        return StoredArray(kind.newbyteorder("<").str, shape, self._room * self._by_column, [])

    def _open(self) -> None:
        self._file = os.fdopen(not_through_links(str(self._path), os.O_RDWR | os.O_CREAT), "r+b")
        self._sums = RunningSums(BLOCK_BYTES)

    def _reserve(self) -> None:
        numbers = self._room * int(np.prod(self._width))
        self._file.truncate(numbers * (1 if self._dtype is None else self._dtype.itemsize))

    def _write_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._write(held)

    def _write(self, values: Array) -> None:
        """After the rows that are written."""
        if self._by_column:
            for number, column in enumerate(values.T):
                self._put(number * self._room + self._written, column)
        else:
            width = int(np.prod(self._width))
            self._put(self._written * width, values.reshape(len(values) * width))
        self._written += len(values)

    def _put(self, place: int, numbers: Array) -> None:
        """Write numbers from a place on, counted in numbers."""
        size = 1 if self._dtype is None else self._dtype.itemsize
        # Few enough that they are converted, summed and written while they are in the cache.
        for first in range(0, len(numbers), PUT):
            part = np.ascontiguousarray(numbers[first : first + PUT], dtype=self._dtype)
            content, start = memoryview(part.data).cast("B"), (place + first) * size
            self._sums.add(start, content)
            while content:
                done = os.pwrite(self._file.fileno(), content, start)
                content, start = content[done:], start + done

    def _widen(self, dtype: np.dtype[Any]) -> None:
        """Write the rows anew, in another type."""
        old = mapped(self._path, self._entry())
        self._path.unlink()
        self._file.close()
        self._open()
        self._dtype, self._written = dtype, 0
        self._reserve()
        for start in range(0, len(old), ROWS):
            self._write(old[start : start + ROWS])


def _stored_type(values: Array) -> np.dtype[Any]:
    if values.dtype.kind != "i" or values.size == 0:
        return values.dtype
    fits = values.min() >= -(2**31) and values.max() < 2**31
    return np.dtype(np.int32 if fits else np.int64)


@final
class Tally:
    """Number, mean, spread and range of columns, added up part by part (Chan et al. 1983)."""

    def __init__(self) -> None:
        self._rows = 0
        self._mean = self._square = self._low = self._high = np.zeros(0)

    def add(self, values: Array) -> None:
        """More rows (k,) or (k, p)."""
        columns = values.reshape(len(values), -1).T
        mean, square, low, high = np.array([_figures(column) for column in columns]).T
        if self._rows == 0:
            self._low, self._high, self._mean, self._square = low, high, mean, square
        else:
            share = len(values) / (self._rows + len(values))
            moved = mean - self._mean
            self._square = self._square + square + moved**2 * share * self._rows
            self._mean = self._mean + share * moved
            self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
        self._rows += len(values)

    def figures(self) -> list[ColumnFigures]:
        """Of each column."""
        std = np.sqrt(self._square / max(self._rows, 1))
        columns = zip(self._mean, std, self._low, self._high, strict=True)
        return [ColumnFigures(*map(float, column)) for column in columns]


def _figures(column: Array) -> tuple[float, float, float, float]:
    """Mean, sum of squares about it, least and greatest."""
    # About a value of the column, so that an offset costs no digits.
    origin, total, square = float(column[0]), 0.0, 0.0
    low, high, about = [], [], np.empty(COUNTED)
    for start in range(0, len(column), COUNTED):
        block = column[start : start + COUNTED]
        low.append(block.min())
        high.append(block.max())
        about[: len(block)] = block
        about[: len(block)] -= origin
        about[len(block) :] = 0.0
        total += float(about.sum())
        # Products that are short enough to wake no threads.
        square += sum(float(part @ part) for part in about.reshape(-1, MULTIPLIED))
    mean = total / len(column)
    return origin + mean, max(square - total * mean, 0.0), float(min(low)), float(max(high))
