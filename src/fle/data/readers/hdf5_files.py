"""HDF5 without surprises: only arrays that lie in the file itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fle.data.damage import optional_package
from fle.data.transitions import Array
from fle.errors import DataError


def open_hdf5(path: Path) -> Any:
    """The file, for reading."""
    h5py = optional_package("h5py", "reading HDF5")
    with path.open("rb"):
        return h5py.File(path, "r")


def dataset_names(group: Any, prefix: str = "") -> Iterator[str]:
    """Paths of the arrays in a group; links to other files are not followed."""
    h5py = optional_package("h5py", "reading HDF5")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from dataset_names(item, f"{prefix}{name}/")
        elif isinstance(item, h5py.Dataset) and item.ndim > 0:
            yield f"{prefix}{name}"


def read_dataset(source: str, group: Any, name: str) -> Array:
    """One array, refused if its numbers lie in another file."""
    h5py = optional_package("h5py", "reading HDF5")
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise DataError(f"{source}: {name!r} is missing, or a link to elsewhere; expected an array")
    item = group[name]
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        raise DataError(f"{source}: {name!r} is not an array inside the file; copy its values in")
    return item[()]
