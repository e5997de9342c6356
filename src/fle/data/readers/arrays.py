"""Arrays by name: a mapping, an npz file, a flat HDF5 file as D4RL writes it, or plain CSV."""

import csv
import gzip
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fle.data.passes import Array, require_memory
from fle.data.readers.columns import Columns, Part, Source, require_distinct
from fle.data.readers.formats import (
    dialect_note,
    has_comma_decimals,
    iso_dates,
    optional_package,
    reading,
    separator,
    with_points,
)
from fle.data.validation import numeric_array
from fle.errors import DataError

INITIAL = "initial_observations"
# A log in episodes has a few groups each.
MOST_GROUPS = 10_000_000
# So many groups with actions are episodes, not parts of a log.
LEAST_EPISODES = 3
# What stands for no value in a CSV file, as pyarrow has it.
NO_VALUE = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
}
# The bytes of a cell as text, and what it is in a file at least.
TEXT_CELL, LEAST_CELL = 64, 2
# Entries that an object's header may hold, at most 64 KiB of them.
IN_HEADER = 2**16


def mapping_source(given: Mapping[Any, Any]) -> Source:
    """Arrays in memory."""
    arrays = {str(name): values for name, values in given.items()}
    return _source("the mapping", tuple(arrays), arrays.__getitem__)


def npz_source(paths: Sequence[Path]) -> Source:
    """An npz file, never unpickled."""
    path = paths[0]
    with reading(path, "npz"), _open_npz(path) as archive:
        names = tuple(archive.files)
        unpacked = sum(entry.file_size for entry in archive.zip.infolist())
        require_memory(unpacked, str(path), unpacked // 8)

    def get(name: str) -> Array:
        try:
            with reading(path, "npz"), _open_npz(path) as archive:
                return archive[name]
        except DataError as error:
            if "allow_pickle" not in str(error):
                raise
            raise DataError(
                f"{path}: array {name!r} holds Python objects, which are never unpickled;"
                " expected numbers of one shape: save it with np.stack or .astype(float)"
            ) from error

    return _source(str(path), names, get)


@contextmanager
def _open_npz(path: Path) -> Iterator[Any]:
    # Given an open file, which is closed whatever happens.
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: expected an npz archive of named arrays, got one array")
        with archive:
            yield archive


def hdf5_source(paths: Sequence[Path]) -> Source:
    """A flat HDF5 file: observations, actions, rewards, terminals, timeouts."""
    path = paths[0]
    with reading(path, "HDF5"), open_hdf5(path) as file:
        names = tuple(dataset_names(file))
    _refuse_episodes(path, names)

    def get(name: str) -> Array:
        with reading(path, "HDF5"), open_hdf5(path) as file:
            return read_dataset(str(path), file, name)

    return _source(str(path), names, get)


def _refuse_episodes(path: Path, names: Sequence[str]) -> None:
    """A group for each episode, as robomimic has them, is no table."""
    groups = [name for name in names if name.endswith("/actions")]
    if "actions" not in names and len(groups) >= LEAST_EPISODES:
        raise DataError(
            f"{path}: {len(groups)} groups hold actions, such as {groups[0]!r}: one for each"
            " episode; expected arrays of all rows. Read the groups with"
            " fle.Dataset.from_episodes; docs/adapters.md has the lines"
        )


def _source(source: str, names: tuple[str, ...], get: Callable[[str], Any]) -> Source:
    def load(wanted: Sequence[str]) -> Columns:
        arrays = {name: _array(source, name, get(name)) for name in wanted}
        first = wanted[0]
        for name, array in arrays.items():
            if array.size == 0 or array.ndim == 0:
                raise DataError(
                    f"{source}: {name!r} has shape {array.shape}; expected one row per transition"
                )
        rows = len(arrays[first])
        for name, array in arrays.items():
            if len(array) != rows:
                raise DataError(
                    f"{source}: {name!r} has {len(array)} rows but {first!r} has {rows};"
                    " expected one row per transition in both"
                )
        return Columns((Part(source, rows),), {name: [array] for name, array in arrays.items()})

    initial = get(INITIAL) if INITIAL in names else None
    return Source(source, tuple(name for name in names if name != INITIAL), load, initial)


def _array(source: str, name: str, values: Any) -> Array:
    """Numbers, or text or dates, which may be labels, ids, or an order."""
    single = isinstance(values, np.ndarray) and values.ndim == 0
    if isinstance(values, np.ndarray | list | tuple) and not single and len(values) > 0:
        array = np.asarray(values) if isinstance(values, np.ndarray) else None
        if array is not None and array.dtype.kind in "UM":
            return array
        if array is None and all(isinstance(item, str) for item in values):
            return np.asarray(values, dtype=np.str_)
    return numeric_array(f"{source}: array {name!r}", values)


def open_hdf5(path: Path) -> Any:
    """The file, for reading."""
    h5py = optional_package("h5py", "reading HDF5")
    with path.open("rb"):
        return h5py.File(path, "r")


def dataset_names(group: Any) -> Iterator[str]:
    """Paths of the arrays in a group; links to other files are not followed.

    Links may lead to one group by many ways, or back to itself: each is entered once.
    """
    h5py = optional_package("h5py", "reading HDF5")
    waiting, entered = [("", group)], {address(group)}
    while waiting:
        prefix, here = waiting.pop()
        for name in here:
            if not isinstance(here.get(name, getlink=True), h5py.HardLink):
                continue
            item, path = here[name], f"{prefix}{name}"
            if isinstance(item, h5py.Dataset) and item.ndim > 0:
                yield path
            elif isinstance(item, h5py.Group) and address(item) not in entered:
                entered.add(address(item))
                if len(entered) > MOST_GROUPS:
                    raise DataError(f"more than {MOST_GROUPS:,} groups; expected arrays of a log")
                waiting.append((f"{path}/", item))


def address(item: Any) -> int:
    """Where an object lies in its file: two names of it have the same."""
    h5py = optional_package("h5py", "reading HDF5")
    return int(h5py.h5o.get_info(item.id).addr)


def read_dataset(source: str, group: Any, name: str) -> Array:
    """One array, refused if its numbers lie in another file, or nowhere."""
    h5py = optional_package("h5py", "reading HDF5")
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise DataError(f"{source}: {name!r} is missing, or a link to elsewhere; expected an array")
    item = group[name]
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        raise DataError(
            f"{source}: {name!r} is not an array; expected its numbers in this file: copy them in"
        )
    _require_stored(source, name, item)
    require_memory(item.nbytes, f"{source}: {name!r}", len(item) if item.ndim else 1)
    if h5py.check_string_dtype(item.dtype) is not None:
        return np.asarray(item.asstr()[()], dtype=np.str_)
    return item[()]


def _require_stored(source: str, name: str, item: Any) -> None:
    """Refuse rows that were declared and never written: a few bytes may declare billions."""
    if item.chunks is None:
        stored = item.id.get_storage_size() // max(item.dtype.itemsize, 1)
        # Small arrays lie in the header of their object.
        declared = item.size if item.id.get_storage_size() or item.size > IN_HEADER else 0
        stored = min(stored, declared)
    else:
        declared = math.prod(
            -(-size // chunk) for size, chunk in zip(item.shape, item.chunks, strict=True)
        )
        stored = item.id.get_num_chunks()
    if stored < declared:
        raise DataError(
            f"{source}: {name!r} declares shape {item.shape}, of which {stored / declared:.0%} was"
            " ever written; expected all of it: write the missing rows, or resize the array"
        )


def plain_csv_source(paths: Sequence[Path]) -> Source:
    """CSV by Python's own parser, for where there is no pyarrow: the same, and slower."""
    opened = [_cells(path) for path in paths]
    tables = [table for table, _ in opened]
    first = tables[0]
    for path, table in zip(paths, tables, strict=True):
        if set(table) != set(first):
            odd = ", ".join(map(repr, sorted(set(table) ^ set(first))))
            raise DataError(
                f"{paths[0]} and {path} have different schemas: only one of them has {odd};"
                " expected the same columns in all files"
            )
    parts = tuple(
        Part(str(path), len(next(iter(table.values()))))
        for path, table in zip(paths, tables, strict=True)
    )

    def load(names: Sequence[str]) -> Columns:
        blocks, nulls = {}, {}
        for name in names:
            cells = np.concatenate([table[name] for table in tables])
            missing = np.isin(cells, list(NO_VALUE))
            blocks[name] = [_typed(cells, missing)]
            if missing.any():
                nulls[name] = missing
        return Columns(parts, blocks, nulls)

    return Source(str(paths[0]), tuple(first), load, notes=opened[0][1])


def _cells(path: Path) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The columns of a file as text, and a note if it is written in a way of its own."""
    packed = path.suffix == ".gz"
    require_memory(path.stat().st_size * (TEXT_CELL / LEAST_CELL), str(path), 1)
    opened: Any = gzip.open if packed else open
    with reading(path, "CSV"), opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        mark = separator(file.readline() + file.readline())
        file.seek(0)
        rows = [row for row in csv.reader(file, delimiter=mark) if row]
    if not rows:
        raise DataError(f"{path} is empty: expected a header line and rows")
    header, body = rows[0], rows[1:]
    require_distinct(str(path), header)
    if not body:
        raise DataError(f"{path} is empty: it has columns but no row; expected rows")
    for number, row in enumerate(body):
        if len(row) != len(header):
            raise DataError(
                f"{path}: row {number} has {len(row)} cells; expected {len(header)}, as the header"
                " has: the file is torn, or a comma is not quoted"
            )
    table = {
        name: np.array(cells) for name, cells in zip(header, zip(*body, strict=True), strict=True)
    }
    with_commas = [
        name
        for name, cells in table.items()
        if mark != "," and has_comma_decimals(cells[~np.isin(cells, list(NO_VALUE))])
    ]
    table |= {name: with_points(table[name]) for name in with_commas}
    return table, dialect_note(path, mark, comma_decimals=bool(with_commas))


def _typed(cells: Array, missing: Array) -> Array:
    """Whole numbers, truth values, dates, other numbers, or text: the first that fits all cells."""
    if missing.all():
        return np.zeros(len(cells))
    filled = np.where(missing, cells[~missing][0], cells)
    if np.isin(filled, ["true", "True", "TRUE", "false", "False", "FALSE"]).all():
        return np.isin(filled, ["true", "True", "TRUE"]) & ~missing
    written = iso_dates(filled.tolist())
    filled = filled if written is None else written
    # A date begins with a year of four digits; NumPy would take 12 for a year as well.
    dated = all(len(cell) >= 10 and cell[4] == cell[7] == "-" for cell in filled[:100])
    day = dated and max(map(len, filled)) == 10
    kinds = (f"datetime64[{'D' if day else 'us'}]",) if dated else ("int64", "float64")
    for kind in kinds:
        try:
            values = filled.astype(kind)
        except (ValueError, OverflowError):
            continue
        values[missing] = np.datetime64("NaT") if dated else 0
        return values
    return np.where(missing, "", cells)
