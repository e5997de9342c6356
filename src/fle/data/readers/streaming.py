"""Logs in parts: Parquet shards, whole episodes at a time, and arrays that grow in files."""

import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from fle.data.episodes import increases, starts_episode
from fle.data.passes import READING, Array
from fle.data.readers.arrow_tables import (
    column_blocks,
    columns_of,
    flattened,
    group_sizes,
    leaf_names,
    parquet_file,
    top_level,
)
from fle.data.readers.columns import Columns, Source, flags
from fle.data.readers.formats import optional_package
from fle.data.readers.names import Roles
from fle.data.readers.prepared_log import BLOCK_BYTES, ColumnFigures, StoredArray, mapped
from fle.errors import DataError
from fle.files import not_through_links

# Bytes of a part in numbers of eight bytes, and how many parts one episode may fill.
PART_BYTES, MOST_PARTS = 2**24, 16
# Parts in a row group that is read at once.
MOST_AT_ONCE = 8
# Rows in which the beginning of the last episode is looked for first.
LAST_ROWS = 2**14
NUMBER = 8
# Rows that are copied, and numbers that are written, or multiplied, together.
ROWS, TOGETHER, MULTIPLIED = 2**20, 2**15, 2**13
# The polynomial of CRC-32 and x^8, in its order of bits; a word of ones.
POLYNOMIAL, BYTE, ALL = 0xEDB88320, 1 << 23, 2**32 - 1


@dataclass(frozen=True)
class Shard:
    """A Parquet file, with its number of rows."""

    path: Any
    rows: int


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one file; first: how many of its rows come before them."""

    name: str
    table: Any
    first: int


@dataclass(frozen=True, eq=False)
class LogPart:
    """Rows that follow each other, episodes whole; first: how many of the log come before."""

    pieces: tuple[Piece, ...]
    names: tuple[str, ...]
    first: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(piece.table.num_rows for piece in self.pieces)

    def source(self) -> Source:
        """As the readers take a table."""

        pa = optional_package("pyarrow", "reading Parquet")
        files: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            files.setdefault(piece.name, []).append(piece)
        firsts = [pieces[0].first for pieces in files.values()]

        def load(names: Sequence[str]) -> Columns:
            tables = [
                (name, pa.concat_tables([piece.table for piece in pieces]))
                for name, pieces in files.items()
            ]
            return columns_of(tables, names, firsts)

        return Source(self.pieces[0].name, self.names, load)


def shards_of(paths: Sequence[Any]) -> tuple[Shard, ...]:
    """The files with their sizes; one without rows is refused."""
    shards = []
    for path in paths:
        with parquet_file(path) as file:
            shards.append(Shard(path, file.metadata.num_rows))
        if shards[-1].rows == 0:
            raise DataError(f"{path} is empty: it has columns but no row; expected rows")
    return tuple(shards)


def memory_of_parts(
    shards: Sequence[Shard], schema: Any, names: Sequence[str], at_once: int
) -> float:
    """Bytes that parts take at the most, with the row groups that they are cut from.

    at_once: parts that are worked on while the next is read.
    """
    columns, size = top_level(schema, names), _rows_of_part(shards, names)
    groups: list[tuple[int, int]] = []
    for shard in shards:
        with parquet_file(shard.path) as file:
            sizes = group_sizes(file.metadata, columns)
            rows = [file.metadata.row_group(group).num_rows for group in range(len(sizes))]
            groups += zip(rows, sizes, strict=True)
    # Of those that are read in batches, a part.
    read = [
        stored if rows <= MOST_AT_ONCE * size else stored * size / rows for rows, stored in groups
    ]
    part = max(stored * min(1, size / max(rows, 1)) for rows, stored in groups)
    # One is used, one is read, and one waits.
    return min(
        READING * sum(stored for _, stored in groups), 3 * max(read) + READING * at_once * part
    )


def _rows_of_part(shards: Sequence[Shard], names: Sequence[str]) -> int:
    total = sum(shard.rows for shard in shards)
    size = max(2, PART_BYTES // (NUMBER * len(names)))
    # Equal parts, so that the last is as large as any.
    return -(-total // max(1, total // size))


def parts_of(
    shards: Sequence[Shard], schema: Any, roles: Roles, names: Sequence[str]
) -> Iterator[LogPart]:
    """The whole log, part by part, each of about PART_BYTES; the next is read meanwhile.

    names: the columns that are needed.
    """
    total, size = sum(shard.rows for shard in shards), _rows_of_part(shards, names)
    every = tuple(leaf_names(schema))
    kept: list[Piece] = []
    first = 0
    for piece in _ahead(_pieces(shards, top_level(schema, names), size)):
        kept.append(piece)
        held = sum(each.table.num_rows for each in kept)
        if held < size or first + held == total:
            continue
        cut = _last_start(kept, roles)
        if cut == 0:
            if held > MOST_PARTS * size:
                raise DataError(
                    f"{kept[0].name}: an episode has more than {held:,} rows, which is too long to"
                    " be held in memory; expected shorter ones: cut it where it was cut off, with"
                    " truncated=..., or say with episode=... which rows belong together"
                )
            continue
        part, kept = _split(kept, cut)
        yield LogPart(tuple(part), every, first)
        first += cut
    yield LogPart(tuple(kept), every, first)


def _pieces(shards: Sequence[Shard], columns: Sequence[str], size: int) -> Iterator[Piece]:
    pa = optional_package("pyarrow", "reading Parquet")
    for shard in shards:
        first = 0
        with parquet_file(shard.path) as file:
            for group in range(file.num_row_groups):
                if file.metadata.row_group(group).num_rows <= MOST_AT_ONCE * size:
                    # Twice as fast as in batches.
                    tables = iter([file.read_row_group(group, columns=list(columns))])
                else:
                    batches = file.iter_batches(size, row_groups=[group], columns=list(columns))
                    tables = (pa.Table.from_batches([batch]) for batch in batches)
                for table in map(flattened, tables):
                    # Parts whose numbers fit in a cache.
                    for start in range(0, table.num_rows, size):
                        piece = table.slice(start, size)
                        yield Piece(str(shard.path), piece, first)
                        first += piece.num_rows


def _ahead(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The same, each read while the one before it is used."""
    waiting: deque[Any] = deque()
    with ThreadPoolExecutor(1) as pool:
        waiting.append(pool.submit(next, pieces, None))
        while (piece := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(next, pieces, None))
            yield piece


def _split(pieces: Sequence[Piece], cut: int) -> tuple[list[Piece], list[Piece]]:
    """The first `cut` rows, and the others."""
    before: list[Piece] = []
    after: list[Piece] = []
    for piece in pieces:
        here = min(max(cut, 0), piece.table.num_rows)
        if here > 0:
            before.append(Piece(piece.name, piece.table.slice(0, here), piece.first))
        if here < piece.table.num_rows:
            after.append(Piece(piece.name, piece.table.slice(here), piece.first + here))
        cut -= piece.table.num_rows
    return before, after


def _last_start(pieces: Sequence[Piece], roles: Roles) -> int:
    """Where the last episode begins; 0 where it is the only one.

    The episode of the last row but one: what is left must be two rows at least.
    """
    number = sum(piece.table.num_rows for piece in pieces)
    for rows in (LAST_ROWS, number):
        before = max(number - rows, 0)
        cut = _last_start_in(_split(pieces, before)[1], roles)
        if cut > 0:
            return before + cut
    return 0


def _last_start_in(pieces: Sequence[Piece], roles: Roles) -> int:
    number = sum(piece.table.num_rows for piece in pieces)
    if "episode" in roles.columns:
        ids = _values(pieces, roles.columns["episode"][0])
        starts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
    else:
        known = [role for role in ("terminated", "truncated") if role in roles.columns]
        names = [name for role in known for name in roles.columns[role]]
        if not names:
            # Separate transitions.
            return number - 2
        ends = np.any([flags(_values(pieces, name)) != 0 for name in names], axis=0)
        starts = np.flatnonzero(ends) + 1
    starts = starts[starts <= number - 2]
    return int(starts[-1]) if len(starts) else 0


@final
class KnownIds:
    """The ids of all episodes so far: one that comes back later would be taken for another."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._largest: Any = None
        self._in_order = True

    def add(self, part: LogPart, roles: Roles) -> None:
        """Those of one more part."""
        if "episode" not in roles.columns:
            return
        ids = _values(part.pieces, roles.columns["episode"][0])
        found = ids[starts_episode(ids)]
        if not increases(found):
            found = np.unique(found)
        if self._largest is not None and found[0] <= self._largest:
            self._in_order = False
        self._largest = found[-1] if self._in_order else self._largest
        if found.dtype.kind == "U":
            found = np.array([hash(text) for text in found.tolist()])
        self._file.write(np.ascontiguousarray(found.astype(np.int64)).data)

    def require_distinct(self, source: str) -> None:
        """Refuse an id that came back; sorted in a file, as there may be very many."""
        self._file.flush()
        if self._in_order or self._file.tell() == 0:
            return
        ids = np.memmap(self._file, np.int64, "r+")
        ids.sort()
        again = np.flatnonzero(ids[1:] == ids[:-1])
        if len(again):
            raise DataError(
                f"{source}: {len(again):,} episodes come back after other ones; expected the rows"
                " of an episode one after the other, also across files: sort the log by episode and"
                " step, or make the ids distinct"
            )


def _values(pieces: Sequence[Piece], name: str) -> Array:
    blocks = [column_blocks(piece.name, name, piece.table.column(name))[0] for piece in pieces]
    return np.concatenate([block for group in blocks for block in group])


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
