"""Minari data sets, read without Minari; nothing that their metadata names is ever run."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fle.data.assembly import Given, assemble, flatten_episodes
from fle.data.passes import Array
from fle.data.readers.arrays import address, dataset_names, open_hdf5, read_dataset
from fle.data.readers.arrow_tables import column_blocks, flattened
from fle.data.readers.columns import Columns, Part, cell, matrix, precision
from fle.data.readers.formats import optional_package, reading
from fle.data.validation import LARGEST_ID
from fle.errors import DataError

MAIN_FILE, METADATA = "main_data.hdf5", "metadata.json"
IMAGE_SIDE = 32
ROW_ARRAYS = ("rewards", "terminations", "truncations")
# How Minari writes the number of an entry of a Tuple.
INDEX = "_index_"


def assemble_minari(
    folder: Path, observation: Sequence[str] | None, number_of_actions: int | None
) -> dict[str, Any]:
    """All episodes of a data set; `observation` picks entries of a Dict observation."""
    metadata = _metadata(folder)
    with reading(folder / METADATA, "Minari's metadata"):
        _refuse_images(folder, metadata)
    order, main = _order(metadata, "observation_space"), folder / MAIN_FILE
    if main.is_file():
        episodes = list(hdf5_episodes(main, order, observation))
    else:
        episodes = list(arrow_episodes(folder, order, observation))
    expected = metadata.get("total_episodes")
    if isinstance(expected, int) and expected != len(episodes):
        raise DataError(
            f"{folder}: expected {expected} episodes, as the metadata say, got {len(episodes)};"
            " the data set is torn: download it again"
        )
    if number_of_actions is None:
        number_of_actions = _number_of_actions(folder, metadata)
    return assemble_episodes(str(folder), episodes, number_of_actions)


def assemble_episodes(
    source: str, episodes: Sequence[Mapping[str, Any]], number_of_actions: int | None
) -> dict[str, Any]:
    """Episodes of arrays as checked fields, in float32 where that loses nothing."""
    warnings: list[str] = []
    try:
        fields, next_missing = flatten_episodes(episodes)
        part = (Part(source, len(fields["actions"])),)
        for names in (("observations", "next_observations"), ("actions",)):
            columns = Columns(part, {name: [fields[name]] for name in names})
            if fields[names[0]].ndim == 1 and fields[names[0]].dtype.kind in "biu":
                continue
            dtype = precision(columns, names, warnings)
            for name in names:
                fields[name] = matrix(columns, [name], dtype)
        given = Given(
            fields=fields,
            next_missing=next_missing,
            number_of_actions=number_of_actions,
            warnings=warnings,
        )
        return assemble(given)
    except DataError as error:
        text = str(error)
        raise DataError(text if text.startswith(source) else f"{source}: {text}") from error


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / METADATA
    with reading(path, "JSON"):
        metadata = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(metadata, dict):
            raise DataError(f"{path}: expected an object, got {type(metadata).__name__}")
        return metadata


def _space(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A space as Minari writes it: JSON inside JSON."""
    text = metadata.get(name)
    try:
        space = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        space = None
    return space if isinstance(space, dict) else {}


def _order(metadata: Mapping[str, Any], name: str) -> list[str]:
    subspaces = _space(metadata, name).get("subspaces")
    return list(subspaces) if isinstance(subspaces, dict) else []


def _number_of_actions(folder: Path, metadata: Mapping[str, Any]) -> int | None:
    space = _space(metadata, "action_space")
    if space.get("type") != "Discrete":
        return None
    start, count = space.get("start", 0), space.get("n")
    if not isinstance(start, int) or start < 0:
        raise DataError(f"{folder}: actions start at {start!r}; expected codes from 0")
    if not isinstance(count, int) or not 1 <= count <= LARGEST_ID:
        raise DataError(f"{folder}: {str(count)[:40]} actions; expected 1 to {LARGEST_ID:,}")
    return start + count


def _refuse_images(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Images are stored as JPEG bytes, which would pass for numbers."""
    if not metadata.get("jpeg_encoding"):
        return
    spaces = [_space(metadata, "observation_space")]
    while spaces:
        space = spaces.pop()
        nested = space.get("subspaces")
        children = list(nested.values()) if isinstance(nested, dict) else nested or []
        spaces += [child for child in children if isinstance(child, dict)]
        shape = space.get("shape")
        if (
            space.get("dtype") == "uint8"
            and isinstance(shape, list)
            and len(shape) in (2, 3)
            and min(shape[:2]) >= IMAGE_SIDE
        ):
            raise DataError(
                f"{folder}: observations are JPEG images of shape {shape}; expected vectors:"
                " compute features of the images and read those"
            )


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
            if name.removeprefix("episode_").isdecimal()
        )
        _refuse_twice(path, {f"episode_{number}": file[f"episode_{number}"] for number in numbers})
        for number in numbers:
            group, source = file[f"episode_{number}"], f"{path}: episode_{number}"
            names = list(dataset_names(group))

            def get(name: str, source: str = source, group: Any = group) -> Array:
                return read_dataset(source, group, name)

            yield _arrays(source, Entries(names, "/", get), order, observation)


def _refuse_twice(path: Path, groups: Mapping[str, Any]) -> None:
    """Links let one stored episode count as any number of them."""
    name_of: dict[int, str] = {}
    for name, group in groups.items():
        first = name_of.setdefault(address(group), name)
        if first != name:
            raise DataError(
                f"{path}: {first} and {name} are links to one group; expected an episode each:"
                " remove one of them"
            )


def arrow_episodes(
    folder: Path, order: Sequence[str], observation: Sequence[str] | None
) -> Iterator[dict[str, Array]]:
    """Every numbered folder of an Arrow storage; its last row is the final observation."""
    dataset = optional_package("pyarrow.dataset", "reading Minari's Arrow storage")
    numbered = [path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()]
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

            def get(name: str, path: Path = path, table: Any = flat) -> Array:
                blocks, nulls = column_blocks(str(path), name, table.column(name))
                if nulls is not None:
                    place = cell(str(path), name, int(np.argmax(nulls)))
                    raise DataError(f"{place} is null; expected a value in every row")
                return np.concatenate(blocks)

            arrays = _arrays(str(path), Entries(flat.column_names, ".", get), order, observation)
            yield {
                name: array if name == "observations" else array[:steps]
                for name, array in arrays.items()
            }


@dataclass(frozen=True)
class Entries:
    """The arrays of one episode by name, where `separator` joins the names of nested ones."""

    names: Sequence[str]
    separator: str
    get: Callable[[str], Array]


def _arrays(
    source: str, entries: Entries, order: Sequence[str], observation: Sequence[str] | None
) -> dict[str, Array]:
    arrays = {name: entries.get(name) for name in ROW_ARRAYS}
    for name in ("observations", "actions"):
        inside = f"{name}{entries.separator}"
        found = {
            entry.removeprefix(name).removeprefix(entries.separator): entries.get(entry)
            for entry in entries.names
            if entry == name or entry.startswith(inside)
        }
        chosen = observation if name == "observations" else None
        arrays[name] = _joined(f"{source}: {name}", found, order, chosen)
    return arrays


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
        raise DataError(f"{source} has no entry {unknown[0]!r}; expected one of {', '.join(plain)}")
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
