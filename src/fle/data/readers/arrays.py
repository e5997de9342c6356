"""Arrays by name: a mapping, an npz file, or a flat HDF5 file as D4RL writes it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fle.data.passes import Array, require_memory
from fle.data.readers.columns import Columns, Part, Source
from fle.data.readers.formats import optional_package, reading
from fle.data.validation import numeric_array
from fle.errors import DataError

INITIAL = "initial_observations"
# A log in episodes has a few groups each.
MOST_GROUPS = 10_000_000
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

    def get(name: str) -> Array:
        with reading(path, "HDF5"), open_hdf5(path) as file:
            return read_dataset(str(path), file, name)

    return _source(str(path), names, get)


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
