"""Arrays that grow in files, whatever their length will be, and what is counted of them."""

import os
import zlib
from pathlib import Path
from typing import Any, final

import numpy as np

from fle.data.passes import Array
from fle.data.readers.prepared_log import BLOCK_BYTES, ColumnFigures, StoredArray, mapped
from fle.files import not_through_links

# Rows that are copied, and numbers that are written, or multiplied, together.
ROWS, TOGETHER, MULTIPLIED = 2**20, 2**15, 2**13
# The polynomial of CRC-32 and x^8, in its order of bits; a word of ones.
POLYNOMIAL, BYTE, ALL = 0xEDB88320, 1 << 23, 2**32 - 1


@final
class GrowingArray:
    """An array in a file that rows are appended to; columns of a matrix lie one after the other.

    Its type is the first rows', but integers take four bytes while they can, and it is widened once
    other rows need it. The file has room for as many rows as there may be; what is not written
    takes no space on the disk.
    """

    def __init__(self, path: Path, room: int, tally: "Tally | None" = None) -> None:
        self._path, self._room, self._written = path, room, 0
        self._tally = tally
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
            self._write(values[:-1], self._tally)
            self._held = values[-1:].copy()

    def replace_last(self, row: Array) -> None:
        """Write another row (1, ...) over the last one."""
        self._held = row

    def read(self) -> Array:
        """All rows, mapped into memory."""
        self._write_held()
        return mapped(self._path, self._entry())

    def finish(self, more: Array | None = None) -> StoredArray:
        """Close the file, and say what is in it.

        more: a row (1, ...) to end with, which does not count in the figures.
        """
        self._write_held()
        if more is not None:
            self._write(more, None)
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
            self._write(held, self._tally)

    def _write(self, values: Array, tally: "Tally | None") -> None:
        """After the rows that are written."""
        if self._by_column:
            for number, column in enumerate(values.T):
                self._put(number * self._room + self._written, column, tally and tally.of(number))
        else:
            width = int(np.prod(self._width))
            numbers = values.reshape(len(values) * width)
            self._put(self._written * width, numbers, tally and tally.of(0))
        self._written += len(values)

    def _put(self, place: int, numbers: Array, figures: "Figures | None") -> None:
        """Write numbers from a place on, counted in numbers."""
        size = 1 if self._dtype is None else self._dtype.itemsize
        # Few enough that all is done with them while they are in the cache, and whole pages of the
        # file, which are written a third faster than parts of them.
        first = 0
        while first < len(numbers):
            block = numbers[first : first + TOGETHER - (place + first) % TOGETHER]
            if figures is not None:
                figures.add(block)
            part = np.ascontiguousarray(block, dtype=self._dtype)
            content, start = memoryview(part.data).cast("B"), (place + first) * size
            first += len(block)
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
            self._write(old[start : start + ROWS], None)


def _stored_type(values: Array) -> np.dtype[Any]:
    if values.dtype.kind != "i" or values.size == 0:
        return values.dtype
    fits = values.min() >= -(2**31) and values.max() < 2**31
    return np.dtype(np.int32 if fits else np.int64)


@final
class Tally:
    """The figures of the columns of an array."""

    def __init__(self) -> None:
        self._columns: list[Figures] = []
        # One for all columns, of which there may be very many.
        self._about = np.empty(TOGETHER)

    def of(self, number: int) -> "Figures":
        """Of one column."""
        while len(self._columns) <= number:
            self._columns.append(Figures(self._about))
        return self._columns[number]

    def figures(self) -> list[ColumnFigures]:
        """Of each column."""
        return [column.so_far() for column in self._columns]


@final
class Figures:
    """Number, mean, spread and range of a column, added up by blocks (Chan et al. 1983)."""

    def __init__(self, about: Array | None = None) -> None:
        self._rows = 0
        self._mean = self._square = 0.0
        self._low, self._high = np.inf, -np.inf
        self._room = np.empty(TOGETHER) if about is None else about

    def add(self, block: Array) -> None:
        """At most TOGETHER more numbers."""
        rows = len(block)
        about = self._room[: -(-rows // MULTIPLIED) * MULTIPLIED]
        # About one of them, so that an offset costs no digits.
        origin = float(block[0])
        np.subtract(block, origin, out=about[:rows], dtype=np.float64)
        about[rows:] = 0.0
        total = float(about.sum())
        # Products that are short enough to wake no threads.
        parts = about.reshape(-1, MULTIPLIED)
        square = float(np.vecdot(parts, parts).sum())
        share = rows / (self._rows + rows)
        moved = origin + total / rows - self._mean
        self._square += max(square - total * total / rows, 0.0)
        self._square += moved * moved * share * self._rows
        self._mean += share * moved
        self._low = min(self._low, float(block.min()))
        self._high = max(self._high, float(block.max()))
        self._rows += rows

    def so_far(self) -> ColumnFigures:
        """What is known of the column."""
        std = float(np.sqrt(self._square / max(self._rows, 1)))
        return ColumnFigures(self._mean, std, self._low, self._high)


@final
class RunningSums:
    """The sums of a file's blocks, out of pieces that are written anywhere in it, once each.

    A piece that goes on where another ended costs a pass over its bytes alone, while they are in
    the cache; what lies between pieces is zeros.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        # By where it ends: where a piece began, and its sum.
        self._pieces: dict[int, tuple[int, int]] = {}

    def add(self, start: int, content: memoryview) -> None:
        """Bytes that are written from `start` on."""
        while content:
            here = content[: self._block - start % self._block]
            begun, value = start, 0
            if start % self._block:
                begun, value = self._pieces.pop(start, (start, 0))
            start, content = start + len(here), content[len(here) :]
            self._pieces[start] = (begun, zlib.crc32(here, value))

    def of_blocks(self, size: int) -> list[int]:
        """Of a file of so many bytes."""
        found, ends = [0] * -(-size // self._block), list(range(0, size, self._block))
        for end, (begun, value) in sorted(self._pieces.items()):
            block = begun // self._block
            before = _over_zeros(found[block], begun - ends[block])
            found[block], ends[block] = _shifted(before, end - begun) ^ value, end
        for block, end in enumerate(ends):
            found[block] = _over_zeros(found[block], min((block + 1) * self._block, size) - end)
        return found


def _over_zeros(value: int, length: int) -> int:
    """A sum that goes on over so many bytes that are zero."""
    return _shifted(value ^ ALL, length) ^ ALL


def _shifted(value: int, length: int) -> int:
    """Times x^8 to the power of a length: what bytes add to the sum of so many more."""
    square = BYTE
    while length:
        value = _product(square, value) if length & 1 else value
        square, length = _product(square, square), length >> 1
    return value


def _product(one: int, other: int) -> int:
    """Of two polynomials over the integers modulo 2, modulo that of CRC-32."""
    result = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            result ^= other
        other = other >> 1 ^ (POLYNOMIAL if other & 1 else 0)
    return result
