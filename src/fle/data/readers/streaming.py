"""Parquet shards some rows at a time: parts of whole episodes, each a table of its own."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from fle.errors import DataError

# Bytes of a part in numbers of eight bytes, and how many parts one episode may fill.
PART_BYTES, MOST_PARTS = 2**24, 16
# Parts in a row group that is read at once.
MOST_AT_ONCE = 8
# Rows in which the beginning of the last episode is looked for first.
LAST_ROWS = 2**14
NUMBER = 8


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
