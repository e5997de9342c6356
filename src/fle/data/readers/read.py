"""`fle.read`: files and frames in, a checked `Dataset` out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fle.data.assembly import Assembled
from fle.data.attributes import emit_warnings, fill
from fle.data.cache import is_cache, read_cache
from fle.data.dataset import Dataset
from fle.data.readers.array_sources import hdf5_source, mapping_source, npz_source
from fle.data.readers.arrow_files import arrow_source
from fle.data.readers.columns import Source
from fle.data.readers.csv_files import csv_source
from fle.data.readers.fields import assemble_table
from fle.data.readers.files import Files, find_files
from fle.data.readers.frames import frame_source
from fle.data.readers.minari import assemble_episodes, assemble_minari
from fle.data.readers.minari_episodes import hdf5_episodes, holds_episodes
from fle.data.readers.names import Names, find_roles
from fle.data.readers.parquet_files import parquet_source
from fle.errors import DataError, SettingsError


def read(
    source: Any,
    *,
    observation: Names | None = None,
    action: Names | None = None,
    reward: Names | None = None,
    episode: str | None = None,
    step: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    next_observation: Names | None = None,
    weight: str | None = None,
    probability: Names | Mapping[str, Names] | None = None,
    number_of_actions: int | None = None,
) -> Dataset:
    """Read logged transitions, one row each, into a `Dataset`.

    Args:
        source: a Parquet, CSV, Arrow, npz or (D4RL's) HDF5 file; a list, folder or pattern of
            Parquet or CSV shards; a Minari data set by id or folder; a pandas or polars frame, an
            Arrow table, or a mapping of arrays.
        observation, action, reward, next_observation: the columns, if they are not called so. One
            name, several, a pattern such as `obs_*`, or a prefix. Numbered columns are put in the
            order of their numbers, unless they are listed by full names, and next observations
            are paired with observations by name. Several rewards make a vector return. An integer
            column alone is a discrete observation or action. For Minari, `observation` picks
            entries of a Dict observation.
        episode, step, terminated, truncated: one column each. `step` only puts the rows of an
            episode in order; if the problem depends on time, use `with_steps()` of the result.
        weight: the column of row weights; none is looked for unless it is named here.
        probability: columns with a target policy's probabilities at each row's observation, one
            column per action; or a mapping from names to such columns, for several policies.
            Default: `probability.*`. See `Dataset.recorded_probabilities`.
        number_of_actions: makes whole numbers discrete actions, and says how many there are.
    """
    mapped = {
        "observation": observation,
        "action": action,
        "reward": reward,
        "episode": episode,
        "step": step,
        "terminated": terminated,
        "truncated": truncated,
        "next_observation": next_observation,
        "weight": weight,
    }
    table = _in_memory(source)
    if table is None:
        files = find_files(source)
        path = files.paths[0]
        episodes_file = files.kind == "hdf5" and holds_episodes(path)
        if files.kind == "minari" or episodes_file:
            _refuse_mapping(mapped, probability)
            chosen = [observation] if isinstance(observation, str) else observation
            if episodes_file:
                episodes = list(hdf5_episodes(path, (), chosen))
                assembled = assemble_episodes(str(path), episodes, number_of_actions)
            else:
                assembled = assemble_minari(path, chosen, number_of_actions)
            return _dataset(assembled)
        if files.kind == "arrow" and is_cache(path):
            _refuse_mapping({**mapped, "observation": None}, probability)
            data = read_cache(path)
            emit_warnings(data, stacklevel=2)
            return data
        table = _on_disk(files)
    roles = find_roles(table.name, table.names, mapped, probability)
    return _dataset(assemble_table(table, roles, number_of_actions))


def _dataset(assembled: Assembled) -> Dataset:
    data = Dataset.__new__(Dataset)
    fill(data, assembled)
    # As seen from the line that called `read`.
    emit_warnings(data, stacklevel=3)
    return data


def _in_memory(given: Any) -> Source | None:
    table = frame_source(given)
    if table is not None:
        return table
    if isinstance(given, Mapping):
        return mapping_source(given)
    if isinstance(given, str | Path):
        return None
    if isinstance(given, Sequence) and all(isinstance(part, str | Path) for part in given):
        return None
    raise DataError(
        "source: expected a path, a list of paths, a frame or a mapping of arrays, got"
        f" {type(given).__name__}"
    )


def _on_disk(files: Files) -> Source:
    if files.kind == "parquet":
        return parquet_source(files.paths)
    if files.kind == "csv":
        return csv_source(files.paths)
    if files.kind == "arrow":
        return arrow_source(files.paths)
    if files.kind == "npz":
        return npz_source(files.paths[0])
    return hdf5_source(files.paths[0])


def _refuse_mapping(mapped: Mapping[str, Any], probability: Any) -> None:
    given = [name for name, value in mapped.items() if value is not None and name != "observation"]
    if probability is not None:
        given.append("probability")
    if given:
        raise SettingsError(
            f"{given[0]}=... maps the columns of a table, but this source has fixed names;"
            " leave it out"
        )
