"""`fle.prepare`: Parquet shards of any size become files of columns, in one pass."""

import os
import re
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, final

import numpy as np

from fle.data.assembly import ENDLESS, remarks_on_actions, remarks_on_episodes
from fle.data.dataset import Dataset, emit_warnings
from fle.data.passes import Array, give_back, keep_memory, on_one_core, require_memory
from fle.data.readers.arrow_tables import leaf_names, parquet_schema
from fle.data.readers.coding import Wishes
from fle.data.readers.columns import DATE_NAMES, Columns, Part, precision
from fle.data.readers.formats import PREPARED, find_files, optional_package
from fle.data.readers.names import Names, Roles, find_roles
from fle.data.readers.prepared_log import (
    FORMAT,
    Contents,
    StoredArray,
    as_data,
    file_of,
    mapped,
    read_contents,
)
from fle.data.readers.reading import table_values
from fle.data.readers.streaming import (
    GrowingArray,
    KnownIds,
    LogPart,
    Shard,
    Tally,
    memory_of_parts,
    parts_of,
    shards_of,
)
from fle.data.schema import FACTS, OTHER_ARRAYS, ROW_FIELDS, WORDS
from fle.data.validation import Faults
from fle.errors import DataError, FaultyDataError, FLEError, Remark, added_up
from fle.files import LOCK_NAME, make_directory, remove_leftovers, sole_writer, write_json
from fle.manifests import MANIFEST, write_manifest

# Parts that are checked at the same time.
AT_ONCE = 2
# Of which fields the statistics are kept.
DESCRIBED = ("observations", "actions", "rewards")
# Rows that are converted together.
ROWS = 2**20
# In messages: a number, and not a column called by one.
NUMBER = re.compile(r"(?<![\w'.])-?\d[\d,.]*(?!\w)")
# Of what is written at once.
JSON_FILES = r"(prepared|manifest)\.json"


def prepare(
    source: Any,
    out: str | os.PathLike[str],
    *,
    observation: Names | None = None,
    action: Names | None = None,
    reward: Names | None = None,
    episode: str | None = None,
    step: str | None = None,
    terminated: Names | None = None,
    truncated: Names | None = None,
    next_observation: Names | None = None,
    weight: str | None = None,
    propensity: Names | None = None,
    probability: Names | Mapping[str, Names] | None = None,
    number_of_actions: int | None = None,
    action_labels: Sequence[str] | None = None,
    elapsed: str | None = None,
) -> Dataset:
    """Read Parquet shards of any size once, into a folder that `fle.open` maps into memory.

    >>> data = fle.prepare("s3://bucket/log/*.parquet", "log/", episode="trip")

    The checks are those of `fle.read`, part by part; the rows of an episode must follow each other.
    A preparation that was stopped begins anew when the call is repeated.

    Args:
        source: Parquet files: one, a list, a folder, a pattern; or such an address, as `s3://...`.
        out: the folder, new or empty.
        observation, ..., elapsed: as `fle.read` takes them.
    """
    given = locals()
    asked = {part: given[part] for part in (*WORDS, "probability") if part in given}
    known = [field.name for field in fields(Wishes) if field.name in given]
    wishes = Wishes(**{name: given[name] for name in known})
    shards, schema, roles = _looked_at(source, asked, wishes)
    folder = Path(out)
    make_directory(folder)
    with sole_writer(folder):
        _make_room(folder)
        try:
            _written(folder, shards, schema, roles, wishes)
        except OSError as error:
            raise FLEError(
                f"{folder} cannot be written: {error.strerror}; free some space, or give another"
                " folder, and repeat the call"
            ) from error
    give_back()
    data = as_data(folder, read_contents(folder))
    emit_warnings(data, stacklevel=2)
    return data


def _looked_at(
    source: Any, asked: Mapping[str, Any], wishes: Wishes
) -> tuple[tuple[Shard, ...], Any, Roles]:
    """The shards, their schema, and which column plays which part."""
    files = find_files(source)
    if files.kind != "parquet":
        raise DataError(
            f"{files.paths[0]}: expected Parquet, got {files.kind}; it need not be prepared:"
            " `fle.read` and the commands read it whole"
        )
    for role in ("terminated", "truncated"):
        if isinstance(asked[role], bool):
            raise DataError(
                f"{role}={asked[role]}: a log that is prepared needs columns that say it"
            )
    schema = parquet_schema(files.paths)
    name = str(files.paths[0])
    faults = Faults(collect=True)
    roles = find_roles(name, leaf_names(schema), asked, asked["probability"], faults)
    _refuse_text(name, schema, roles, wishes)
    return shards_of(files.paths), schema, roles


def _refuse_text(source: str, schema: Any, roles: Roles, wishes: Wishes) -> None:
    """What texts stand for is known at the end of the log only."""
    pa = optional_package("pyarrow", "reading Parquet")
    kinds = dict(zip(schema.names, schema.types, strict=True))
    parts = ["observation", "next_observation"]
    parts += [] if wishes.action_labels else ["action"]
    for role in parts:
        for name in roles.columns.get(role, ()):
            kind = kinds.get(name)
            texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)
            if kind is not None and any(is_text(kind) for is_text in texts):
                hint = (
                    "name all actions with action_labels=[...]"
                    if role == "action"
                    else "store a column of numbers for each category, or read the log whole"
                )
                raise DataError(
                    f"{source}: column {name!r} is text, whose categories the whole log tells;"
                    f" expected numbers: {hint}"
                )


def _make_room(folder: Path) -> None:
    """Refuse a folder that holds something else, and remove what a stopped preparation left."""
    if (folder / MANIFEST).exists():
        raise FLEError(f"{folder} holds a finished log or run; remove it, or give another folder")
    arrays = {file_of(name) for name in (*ROW_FIELDS, *OTHER_ARRAYS)}
    known = {*arrays, PREPARED, LOCK_NAME}
    remove_leftovers(folder, JSON_FILES)
    others = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if others:
        raise FLEError(
            f"{folder} holds {others[0]!r}, which no preparation wrote; expected a new or empty"
            " folder: give another"
        )
    for name in arrays:
        (folder / name).unlink(missing_ok=True)


def _written(
    folder: Path, shards: Sequence[Shard], schema: Any, roles: Roles, wishes: Wishes
) -> None:
    rows, names = sum(shard.rows for shard in shards), [*roles.all(), *_dates(schema, roles)]
    needed = memory_of_parts(shards, schema, names, AT_ONCE + 2)
    require_memory(needed, f"Preparing {shards[0].path}", rows)
    write_json(folder / PREPARED, {"format": FORMAT, "finished": False})
    log = _Log(folder, rows, follows="next_observation" not in roles.columns)
    parts = parts_of(shards, schema, roles, names)
    faults = Faults(collect=True)
    try:
        with tempfile.TemporaryFile(dir=folder) as scratch, faults.caught():
            ids = KnownIds(scratch)
            for part, values in _checked(parts, roles, wishes):
                # All parts are checked, so that what is wrong is known at once.
                with faults.caught():
                    found = values.result()
                    ids.add(part, roles)
                    if not faults.found:
                        log.append(part, found)
            ids.require_distinct(str(shards[0].path))
        if faults.found:
            raise FaultyDataError(_one_of_a_kind(faults.found))
        write_json(folder / PREPARED, log.contents(shards, roles).as_plain())
    finally:
        log.close()
    write_manifest(folder, [PREPARED])


def _one_of_a_kind(messages: Sequence[str]) -> list[str]:
    """The first of those that differ in file and numbers alone: other parts say the same."""
    first: dict[str, str] = {}
    for message in messages:
        kind = message.partition(": ")[2] or message
        first.setdefault(NUMBER.sub("", kind), message)
    return list(first.values())


def _dates(schema: Any, roles: Roles) -> list[str]:
    """Columns that may contradict the order of the rows."""
    if "step" in roles.columns or "episode" not in roles.columns:
        return []
    used = set(roles.all())
    return [name for name in leaf_names(schema) if name.lower() in DATE_NAMES and name not in used]


def _checked(
    parts: Iterator[LogPart], roles: Roles, wishes: Wishes
) -> "Iterator[tuple[LogPart, Future[dict[str, Any]]]]":
    """Every part with the values of its fields, in order; some are checked at the same time."""

    def values(part: LogPart) -> dict[str, Any]:
        with on_one_core():
            faults = Faults(collect=True)
            return table_values(part.source(), roles, wishes, faults, first=part.first)

    keep_memory()
    waiting: deque[tuple[LogPart, Any]] = deque()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for part in parts:
                waiting.append((part, pool.submit(values, part)))
                if len(waiting) > AT_ONCE:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for _, found in waiting:
                found.cancel()


@final
class _Log:
    """The files as they grow, and what is known of all rows so far."""

    def __init__(self, folder: Path, rows: int, *, follows: bool) -> None:
        self._folder, self._room = folder, rows + 1
        # Given by no column, so those of the row after.
        self._derived = self._follows = follows
        self._arrays: dict[str, GrowingArray] = {}
        self._facts: dict[str, Any] = {}
        self._remarks: list[tuple[int, Sequence[str]]] = []
        self._notes: list[tuple[int, Sequence[str]]] = []
        self._episodes: int | None = 0
        self._terminated = self._open = False
        self._tallies = {name: Tally() for name in DESCRIBED}
        self._last: Array | None = None

    def append(self, part: LogPart, values: dict[str, Any]) -> None:
        """The rows of one more part."""
        self._count(part, values)
        own, following = values["observations"], values["next_observations"]
        if self._follows and len(own) < part.rows:
            self._store_next(len(self._array("observations")), values)
        elif self._derived and self._open:
            # A terminated row, as if the part had not ended there.
            self._array("next_observations").replace_last(values["initial_observations"][:1])
        left_out = {"next_observations"} if self._follows else set()
        for name in (*ROW_FIELDS, *OTHER_ARRAYS):
            if values[name] is not None and name not in left_out:
                self._array(name).append(values[name])
        self._last = own[-1:]
        self._terminated = self._terminated or bool(values["terminations"].any())
        ends = bool(values["terminations"][-1] and (following[-1:] == own[-1:]).all())
        self._open = ends and not self._follows

    def _store_next(self, at: int, values: dict[str, Any]) -> None:
        """From here on next observations have a file of their own; those before are copied."""
        self._follows = False
        if at == 0:
            return
        first, here = values["initial_observations"][:1], self._array("observations").read()
        target = self._array("next_observations")
        for start in range(1, at, ROWS):
            target.append(here[start : min(start + ROWS, at)])
        target.append(first)

    def _count(self, part: LogPart, values: dict[str, Any]) -> None:
        """Facts of the whole from those of a part; numbers of rows and episodes go on."""
        for name in FACTS:
            value, known = values.get(name, ()), self._facts.get(name)
            if name in ("number_of_observations", "number_of_actions") and known is not None:
                value = max(known, value)
            self._facts[name] = value
        self._remarks.append((part.first, values["warnings"]))
        self._notes.append((part.first, values["notes"]))
        values["source_rows"] = values["source_rows"] + part.first
        if part.first and (values["episodes"] is None) != (self._episodes is None):
            raise DataError(
                f"{part.pieces[0].name}: from row {part.pieces[0].first} on, rows do and do not"
                " follow each other, and no column says what belongs together; give episode=..."
            )
        if values["episodes"] is None:
            self._episodes = None
        else:
            values["episodes"] = values["episodes"] + (self._episodes or 0)
            self._episodes = (self._episodes or 0) + len(values["initial_observations"])

    def close(self) -> None:
        """Give the files back."""
        for array in self._arrays.values():
            array.close()

    def _array(self, name: str) -> GrowingArray:
        if name not in self._arrays:
            path, tally = self._folder / file_of(name), self._tallies.get(name)
            self._arrays[name] = GrowingArray(path, self._room, tally)
        return self._arrays[name]

    def contents(self, shards: Sequence[Shard], roles: Roles) -> Contents:
        """All that is to be known of the files, which are complete."""
        more = {"observations": self._last} if self._follows else {}
        arrays = {name: array.finish(more.get(name)) for name, array in self._arrays.items()}
        rows = sum(shard.rows for shard in shards)
        warnings, notes = self._said(arrays, rows, roles)
        facts = self._facts | {
            "number_of_source_rows": rows,
            "warnings": warnings,
            "notes": notes,
        }
        facts.pop("prepared")
        return Contents(
            format=FORMAT,
            arrays=arrays,
            follows=self._follows,
            facts=facts,
            statistics={name: tally.figures() for name, tally in self._tallies.items()},
            sources={str(shard.path): shard.rows for shard in shards},
        )

    def _said(
        self, entries: Mapping[str, StoredArray], rows: int, roles: Roles
    ) -> tuple[list[str], list[str]]:
        """Warnings and notes on all rows."""
        warnings: list[str] = []
        for role, name in (("observation", "observations"), ("action", "actions")):
            found = mapped(self._folder / file_of(name), entries[name])
            if found.dtype == np.float64 and found.ndim == 2:
                warnings += _roundings(found, roles.columns[role])
        if "truncated" not in roles.columns and not self._terminated:
            warnings.append(ENDLESS)
        warnings += added_up(self._remarks)
        every = [note for _, notes in self._notes for note in notes]
        notes = [note for note in dict.fromkeys(every) if not isinstance(note, Remark)]
        notes += added_up(self._notes)
        notes += remarks_on_episodes(self._episodes, rows, warnings)
        actions = mapped(self._folder / file_of("actions"), entries["actions"])
        if actions.ndim == 2:
            notes += remarks_on_actions(actions, self._facts["number_of_actions"])
        return warnings, notes


def _roundings(found: Array, names: Sequence[str]) -> list[str]:
    """What float32 would lose of columns that are kept in float64."""
    warnings: list[str] = []
    if len(names) != found.shape[1]:
        names = [f"{names[0]}[{number}]" for number in range(found.shape[1])]
    blocks = {
        name: [column[start : start + ROWS] for start in range(0, len(column), ROWS)]
        for name, column in zip(names, found.T, strict=True)
    }
    precision(Columns((Part("", len(found)),), blocks), names, warnings)
    return warnings
