"""Checked data kept in files: a `Dataset` as one Arrow file, and a log prepared as mapped columns.

A prepared log is files of columns that are mapped into memory. `prepared.json` says what each file
holds, with checksums of its blocks; `manifest.json`, written last, has the hash of `prepared.json`.
A folder without a manifest was not finished.
"""

import json
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fle.data.dataset import Dataset, emit_warnings, restored
from fle.data.passes import Array, by_column
from fle.data.readers.formats import PREPARED, is_prepared, optional_package, reading
from fle.data.schema import FACTS, OTHER_ARRAYS, ROW_FIELDS, fingerprint
from fle.errors import DataError
from fle.files import read_json, written_whole
from fle.manifests import MANIFEST, check_manifest, require_form

MARK = b"fle dataset"
CACHE_FORMAT = MARK + b" 5"
# Tried before the array's own type, and used only if nothing is lost.
SMALLER = {"f8": "f4", "i8": "i4"}
FORMAT = "fle prepared log 1"
# Bytes of a file that share a checksum. It finds what a disk or a copy damaged by accident; who may
# write the folder can make a checksum agree.
BLOCK_BYTES = 2**26
READ_BYTES = 2**18
UNFINISHED = (
    "{folder}: the preparation was not finished; repeat the `fle prepare` that began it, or read"
    " the source itself"
)
# Of the numbers that are written, little-endian.
DTYPES = frozenset(
    {"|b1", "|i1", "|u1"} | {f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)}
)


def write_cache(data: Dataset, path: str | Path) -> None:
    """Write the data set, so that the file is always either whole or not there."""
    pa = optional_package("pyarrow", "writing the data cache")
    arrays = {name: getattr(data, name) for name in (*ROW_FIELDS, *OTHER_ARRAYS)}
    stored = {name: _stored(array) for name, array in arrays.items() if array is not None}
    # Sums depend on it in their last digits, and results must not depend on the cache.
    by_columns = [name for name, array in stored.items() if by_column(array)]
    facts = {
        "by_column": by_columns,
        "shapes": {name: list(array.shape) for name, array in stored.items()},
        "types": {name: arrays[name].dtype.str.lstrip("<>|=") for name in stored},
        "facts": {name: getattr(data, name) for name in FACTS} | {"prepared": ()},
        "fingerprint": fingerprint(data),
    }
    # Arrays differ in length, so each is one list in a table of one row.
    columns = {name: _as_list(pa, array) for name, array in stored.items()}
    table = pa.table(columns).replace_schema_metadata(
        {b"format": CACHE_FORMAT, b"fle": json.dumps(facts).encode()}
    )
    with (
        written_whole(Path(path), table.nbytes) as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)


def read_cache(path: str | Path) -> Dataset:
    """The data set that `write_cache` wrote, with its warnings and notes; none is emitted."""
    pa = optional_package("pyarrow", "reading the data cache")
    with reading(path, "a data cache"):
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        # Offsets that point outside their buffer would end the whole process.
        table.validate(full=True)
        metadata = table.schema.metadata or {}
        if metadata.get(b"format") != CACHE_FORMAT:
            raise DataError(f"{path}: not a data cache of this version; read the source again")
        facts = json.loads(metadata[b"fle"])
        values: dict[str, Any] = dict.fromkeys((*ROW_FIELDS, *OTHER_ARRAYS))
        for name in table.column_names:
            flat = table.column(name).chunk(0).flatten().to_numpy(zero_copy_only=False)
            shape, dtype = facts["shapes"][name], np.dtype(facts["types"][name])
            flat = flat.astype(dtype, copy=False)
            transposed = name in facts["by_column"]
            values[name] = flat.reshape(shape[::-1]).T if transposed else flat.reshape(shape)
        for name in FACTS:
            value = facts["facts"][name]
            values[name] = tuple(value) if isinstance(value, list) else value
        data = restored(values)
        if data.fingerprint != facts["fingerprint"]:
            raise DataError(
                f"{path}: the data cache is damaged; expected the numbers of its fingerprint,"
                " got others: delete it, and read the source again"
            )
    return data


def is_cache(path: Path) -> bool:
    """Whether an Arrow file was written by `write_cache`."""
    pa = optional_package("pyarrow", "reading Arrow files")
    with reading(path, "Arrow"), pa.OSFile(str(path)) as file:
        metadata = pa.ipc.open_file(file).schema.metadata or {}
        return metadata.get(b"format", b"").startswith(MARK)


def _stored(array: Array) -> Array:
    smaller = SMALLER.get(array.dtype.str.lstrip("<>|="))
    if smaller is None:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(smaller)
    return narrow if (narrow.astype(array.dtype) == array).all() else array


def _as_list(pa: Any, array: Array) -> Any:
    lines = array.T if by_column(array) else array
    flat = pa.array(np.ascontiguousarray(lines).reshape(-1))
    return pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), flat)


DTYPES |= {"<f2", "<f4", "<f8"}


class StoredArray(NamedTuple):
    """An array in a file.

    shape: as it is read. room: rows that each column has room for, where columns lie one after the
    other; 0 where rows do. checksums: CRC-32 of each BLOCK_BYTES of the file.
    """

    dtype: str
    shape: list[int]
    room: int
    checksums: list[int]

    @property
    def bytes(self) -> int:
        """The size of the file."""
        numbers = self.room * self.shape[-1] if self.room else int(np.prod(self.shape))
        return numbers * np.dtype(self.dtype).itemsize


class ColumnFigures(NamedTuple):
    """The statistics of a column, over all rows."""

    mean: float
    std: float
    low: float
    high: float


class Contents(NamedTuple):
    """What `prepared.json` says.

    follows: whether each next observation is the observation of the row after it in the file, which
    has one row more than the log. statistics: by field, of each column.
    """

    format: str
    arrays: dict[str, StoredArray]
    follows: bool
    facts: dict[str, Any]
    statistics: dict[str, list[ColumnFigures]]
    sources: dict[str, int]

    def as_plain(self) -> dict[str, Any]:
        """As the file holds it."""
        columns = self.statistics.items()
        return self._asdict() | {
            "arrays": {name: entry._asdict() for name, entry in self.arrays.items()},
            "statistics": {name: [one._asdict() for one in figures] for name, figures in columns},
        }


def open_prepared(folder: str | Path) -> Dataset:
    """The log that `fle prepare` wrote; its columns stay on the disk and are mapped into memory.

    Every file is held against its checksums first. Nothing is emitted.
    """
    folder = Path(folder)
    if not is_prepared(folder):
        raise DataError(f"{folder}: expected a folder that `fle prepare` wrote; check the path")
    if not (folder / MANIFEST).is_file():
        raise DataError(UNFINISHED.format(folder=folder))
    check_manifest(folder)
    contents = read_contents(folder)
    _check_arrays(folder, contents.arrays)
    try:
        return as_data(folder, contents)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder / PREPARED} is damaged: its facts are not those of a log; copy the folder"
            " again, or prepare it again"
        ) from error


def as_data(folder: Path, contents: Contents) -> Dataset:
    """The log of a folder that is known to be whole."""
    values: dict[str, Any] = dict.fromkeys((*ROW_FIELDS, *OTHER_ARRAYS))
    values |= {
        name: mapped(folder / file_of(name), entry) for name, entry in contents.arrays.items()
    }
    if contents.follows:
        base = values["observations"]
        values["observations"], values["next_observations"] = base[:-1], base[1:]
    for name in FACTS:
        value = contents.facts.get(name, ())
        if isinstance(value, list) and not all(isinstance(one, str) for one in value):
            raise TypeError(name)
        values[name] = tuple(value) if isinstance(value, list) else value
    if not all(isinstance(values[name], tuple) for name in ("reward_names", "warnings")):
        raise TypeError("expected lists of names and of warnings")
    values["prepared"] = (str(folder), read_json(folder / MANIFEST)["files"][PREPARED]["sha256"])
    return restored(values)


def open_log(folder: str | Path) -> Dataset:
    """A log that `fle prepare` wrote, as a `Dataset` whose columns are mapped into memory.

    >>> data = fle.open("log/")
    """
    data = open_prepared(folder)
    emit_warnings(data, stacklevel=2)
    return data


def read_contents(folder: Path) -> Contents:
    """What the folder says of itself."""
    path = folder / PREPARED
    plain = read_json(path)
    if plain.get("format") != FORMAT:
        raise DataError(f"{path}: of another version of fle; prepare the log again")
    require_form(plain, Contents, str(path))
    arrays = {name: StoredArray(**entry) for name, entry in plain["arrays"].items()}
    figures = {
        name: [ColumnFigures(**column) for column in columns]
        for name, columns in plain["statistics"].items()
    }
    return Contents(**{**plain, "arrays": arrays, "statistics": figures})


def file_of(name: str) -> str:
    """The file of a field."""
    return f"{name}.bin"


def mapped(path: Path, entry: StoredArray) -> Array:
    """A file as an array that is read from the disk where it is used."""
    if entry.room:
        whole = np.memmap(path, entry.dtype, "r", shape=(entry.shape[1], entry.room))
        return np.asarray(whole).T[: entry.shape[0]]
    return np.asarray(np.memmap(path, entry.dtype, "r", shape=tuple(entry.shape)))


def checksums(path: Path) -> list[int]:
    """CRC-32 of each BLOCK_BYTES of a file."""
    found, size = [], path.stat().st_size
    # One buffer that stays in the cache: new ones would cost more than the sum.
    buffer = memoryview(bytearray(READ_BYTES))
    with path.open("rb", buffering=0) as file:
        for start in range(0, size, BLOCK_BYTES):
            value, left = 0, min(BLOCK_BYTES, size - start)
            while left and (number := file.readinto(buffer[: min(READ_BYTES, left)])):
                value, left = zlib.crc32(buffer[:number], value), left - number
            found.append(value)
    return found


def all_checksums(folder: Path, names: list[str]) -> Mapping[str, list[int]]:
    """Of the files of several fields."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: checksums(folder / file_of(name)), names)
        return dict(zip(names, found, strict=True))


def _check_arrays(folder: Path, arrays: Mapping[str, StoredArray]) -> None:
    for name, entry in arrays.items():
        path = folder / file_of(name)
        # Probabilities are (rows, draws, actions).
        formed = 1 <= len(entry.shape) <= 3 and min(entry.shape) >= 0
        if entry.dtype not in DTYPES or not formed or (entry.room and len(entry.shape) != 2):
            raise DataError(
                f"{folder / PREPARED} is damaged: {name} is of no form that is written; copy the"
                " folder again, or prepare it again"
            )
        if name not in (*ROW_FIELDS, *OTHER_ARRAYS) or not path.is_file():
            raise DataError(f"{path} is missing; copy the folder as a whole, or prepare it again")
        if path.stat().st_size != entry.bytes:
            raise DataError(
                f"{path} is damaged: expected {entry.bytes:,} bytes, got"
                f" {path.stat().st_size:,}; copy the folder again, or prepare it again"
            )
    for name, found in all_checksums(folder, list(arrays)).items():
        if found != arrays[name].checksums:
            pairs = enumerate(zip_longest(found, arrays[name].checksums))
            block = next(number for number, (here, stated) in pairs if here != stated)
            raise DataError(
                f"{folder / file_of(name)} is damaged: the checksum of the bytes from"
                f" {block * BLOCK_BYTES:,} on is another; copy the folder again, or prepare it"
                " again"
            )
