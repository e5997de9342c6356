"""Minari data sets, read without Minari; nothing that their metadata names is ever run."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fle.data.assembly import Assembled, assemble
from fle.data.damage import reading
from fle.data.flatten import flatten_episodes
from fle.data.readers.columns import Columns, Part
from fle.data.readers.minari_episodes import arrow_episodes, hdf5_episodes
from fle.data.readers.numbers import matrix, precision
from fle.errors import DataError

MAIN_FILE = "main_data.hdf5"
IMAGE_SIDE = 32


def minari_root() -> Path:
    """Where Minari keeps its data sets."""
    given = os.environ.get("MINARI_DATASETS_PATH")
    return Path(given) if given else Path.home() / ".minari" / "datasets"


def minari_folder(folder: Path) -> Path | None:
    """The folder with the metadata and the episodes, if this is a Minari data set."""
    for candidate in (folder / "data", folder):
        if (candidate / "metadata.json").is_file():
            return candidate
    return None


def assemble_minari(
    folder: Path, observation: Sequence[str] | None, number_of_actions: int | None
) -> Assembled:
    """All episodes of a data set; `observation` picks entries of a Dict observation."""
    metadata = _metadata(folder)
    _refuse_images(folder, metadata)
    order, main = _order(metadata, "observation_space"), folder / MAIN_FILE
    if main.is_file():
        episodes = list(hdf5_episodes(main, order, observation))
    else:
        episodes = list(arrow_episodes(folder, order, observation))
    expected = metadata.get("total_episodes")
    if isinstance(expected, int) and expected != len(episodes):
        raise DataError(
            f"{folder}: the metadata promise {expected} episodes but {len(episodes)} are there;"
            " the data set is torn: download it again"
        )
    if number_of_actions is None:
        number_of_actions = _number_of_actions(folder, metadata)
    return assemble_episodes(str(folder), episodes, number_of_actions)


def assemble_episodes(
    source: str, episodes: Sequence[Mapping[str, Any]], number_of_actions: int | None
) -> Assembled:
    """Episodes of arrays as a checked table, in float32 where that loses nothing."""
    warnings: list[str] = []
    try:
        flat = flatten_episodes(episodes)
        part = (Part(source, len(flat["actions"])),)
        for names in (("observations", "next_observations"), ("actions",)):
            columns = Columns(part, {name: [flat[name]] for name in names})
            if flat[names[0]].ndim == 1 and flat[names[0]].dtype.kind in "biu":
                continue
            dtype = precision(columns, names, warnings)
            for name in names:
                flat[name] = matrix(columns, [name], dtype)
        return assemble(
            **flat,
            steps=None,
            weights=None,
            initial_observations=None,
            number_of_actions=number_of_actions,
            reward_names=None,
            earlier_warnings=warnings,
        )
    except DataError as error:
        text = str(error)
        raise DataError(text if text.startswith(source) else f"{source}: {text}") from error


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / "metadata.json"
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
    except ValueError:
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
    if not isinstance(start, int) or not isinstance(count, int) or start < 0:
        raise DataError(f"{folder}: actions start at {start!r}; expected codes from 0")
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
