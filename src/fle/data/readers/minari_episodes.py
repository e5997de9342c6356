"""The episodes of a Minari data set, in either of its storages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fle.data.damage import optional_package, reading
from fle.data.readers.arrow_columns import column_blocks, flattened
from fle.data.readers.hdf5_files import dataset_names, open_hdf5, read_dataset
from fle.data.transitions import Array
from fle.errors import DataError

ROW_ARRAYS = ("rewards", "terminations", "truncations")
# How Minari writes the number of an entry of a Tuple.
INDEX = "_index_"


def holds_episodes(path: Path) -> bool:
    """Whether an HDF5 file is laid out in episodes, as Minari's, rather than flat, as D4RL's."""
    with reading(path, "HDF5"), open_hdf5(path) as file:
        return any(name.startswith("episode_") for name in file)


def hdf5_episodes(
    path: Path, order: Sequence[str], observation: Sequence[str] | None
) -> Iterator[dict[str, Array]]:
    """Every `episode_i` of an HDF5 storage."""
    with reading(path, "Minari HDF5"), open_hdf5(path) as file:
        numbers = sorted(
            int(name.removeprefix("episode_"))
            for name in file
            if name.removeprefix("episode_").isdigit()
        )
        for number in numbers:
            group, source = file[f"episode_{number}"], f"{path}: episode_{number}"
            arrays = {name: read_dataset(source, group, name) for name in ROW_ARRAYS}
            for name in ("observations", "actions"):
                entries = {
                    entry.removeprefix(name).removeprefix("/"): read_dataset(source, group, entry)
                    for entry in dataset_names(group)
                    if entry == name or entry.startswith(f"{name}/")
                }
                chosen = observation if name == "observations" else None
                arrays[name] = _joined(f"{source}: {name}", entries, order, chosen)
            yield arrays


def arrow_episodes(
    folder: Path, order: Sequence[str], observation: Sequence[str] | None
) -> Iterator[dict[str, Array]]:
    """Every numbered folder of an Arrow storage; its last row is the final observation."""
    dataset = optional_package("pyarrow.dataset", "reading Minari's Arrow storage")
    numbered = [path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()]
    for path in sorted(numbered, key=lambda path: int(path.name)):
        files = sorted(path.glob("part-*"), key=lambda file: (len(file.name), file.name))
        with reading(path, "Minari Arrow"):
            kind = "parquet" if any(file.suffix == ".parquet" for file in files) else "arrow"
            table = dataset.dataset([str(file) for file in files], format=kind).to_table()
            table.validate(full=True)
            flat = flattened(table)
            details = path / "metadata.json"
            steps = flat.num_rows - 1
            if details.is_file():
                steps = int(json.loads(details.read_text(encoding="utf-8"))["total_steps"])
            arrays: dict[str, Array] = {}
            for name in ROW_ARRAYS:
                arrays[name] = _column(path, name, flat)[:steps]
            for name in ("observations", "actions"):
                entries = {
                    column.removeprefix(name).removeprefix("."): _column(path, column, flat)
                    for column in flat.column_names
                    if column == name or column.startswith(f"{name}.")
                }
                chosen = observation if name == "observations" else None
                arrays[name] = _joined(f"{path}: {name}", entries, order, chosen)
            arrays["actions"] = arrays["actions"][:steps]
            yield arrays


def _column(path: Path, name: str, table: Any) -> Array:
    return np.concatenate(column_blocks(str(path), name, table.column(name)))


def _joined(
    source: str, entries: Mapping[str, Array], order: Sequence[str], chosen: Sequence[str] | None
) -> Array:
    """A plain array, or the entries of a Dict or Tuple side by side."""
    if not entries:
        raise DataError(f"{source} are missing; expected an array or a group of arrays")
    if list(entries) == [""]:
        if chosen is not None:
            raise DataError(f"{source} is one array without entries; leave out observation=")
        return entries[""]
    plain = {name.replace(INDEX, "").replace("/", "."): array for name, array in entries.items()}
    ranks = {name: _rank(entry, order) for name, entry in zip(plain, entries, strict=True)}
    names = chosen if chosen is not None else sorted(plain, key=ranks.__getitem__)
    unknown = [name for name in names if name not in plain]
    if unknown:
        raise DataError(f"{source} has no entry {unknown[0]!r}; it has {', '.join(plain)}")
    if len(names) == 1:
        return plain[names[0]]
    return np.concatenate([plain[name].reshape(len(plain[name]), -1) for name in names], axis=1)


def _rank(entry: str, order: Sequence[str]) -> tuple[int, list[tuple[int, str]]]:
    """By the order of the space; entries of a Tuple by their numbers: 10 comes after 9."""
    parts = entry.replace("/", ".").split(".")
    numbers = [part.removeprefix(INDEX) if part.startswith(INDEX) else "" for part in parts]
    first = order.index(parts[0]) if parts[0] in order else len(order)
    keys = [
        (int(number) if number.isdigit() else -1, part)
        for number, part in zip(numbers, parts, strict=True)
    ]
    return first, keys
