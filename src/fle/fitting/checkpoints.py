"""Checkpoints: the state of a loop between two stages, in safetensors files with their hash."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

import jax
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from fle.data.passes import require_memory
from fle.errors import FLEError
from fle.files import (
    make_directory,
    parsed_json,
    remove_leftovers,
    require_own_directory,
    require_plain_file,
    write_atomically,
)
from fle.fitting.encoding import Fitted
from fle.fitting.loop import LoopState
from fle.fitting.measurement import StageRecord
from fle.fitting.optimiser import initial_state
from fle.manifests import require_form
from fle.models.law import placed

Resume = Literal["latest", "previous"]
# Many short stages are not worth a file each.
SECONDS_BETWEEN = 5.0
KEPT_FILES = 2
CHECKPOINT = "stage-*.safetensors"
REPLICATE = "replicate-*.safetensors"
Arrays = Mapping[str, np.ndarray]
Tree = TypeVar("Tree")
# One entry of metadata only: safetensors writes several in random order.
METADATA = "fle"
HEADER_LENGTH = 8
# A record in a file: JSON has no NaN, so any number may be null.
RECORD = {
    name: list[float | None] if hint is np.ndarray else hint | None
    for name, hint in get_type_hints(StageRecord).items()
}
STATE = {
    "run": str,
    "stage": int,
    "fits": int,
    "weight_decay": float,
    "notes": list[str],
    "warnings": list[str],
    "records": list[RECORD],  # type: ignore[valid-type]
}


class Checkpoints:
    """A file every few seconds, of which the last two are kept, and one a finished replicate."""

    def __init__(self, directory: Path, run: str, resume: Resume):
        require_own_directory(directory)
        self._directory = directory
        self._run = run
        self._resume = resume
        self._pending: LoopState | None = None
        self._written = time.monotonic()

    def files(self) -> list[Path]:
        """From old to new."""
        return sorted(self._directory.glob(CHECKPOINT))

    def restore(self, blank: Fitted) -> LoopState | None:
        """The last state that was written, or the one before it if that was asked for."""
        make_directory(self._directory)
        remove_leftovers(self._directory, r"(stage|replicate)-\d+\.safetensors")
        files = self.files()
        if self._resume == "previous":
            self.forget_refits()
            if files:
                files.pop().unlink()
        if not files:
            return None
        try:
            return self._read(files[-1], blank)
        except DamagedFileError as error:
            before = f"from {files[-2].stem}" if len(files) > 1 else "from the beginning"
            raise DamagedFileError(
                f'{error} With resume="previous" the run goes on {before}.'
            ) from error

    def keep(self, state: LoopState) -> None:
        """Write the state, unless the last file is a few seconds old."""
        self._pending = state
        if time.monotonic() - self._written >= SECONDS_BETWEEN:
            self.flush()

    def flush(self) -> None:
        """Write the last state, then remove all but the last two files.

        Also where there is nothing to write: a run may have been killed in between.
        """
        if self._pending is not None:
            state, self._pending = self._pending, None
            content = tensor_bytes(*_state_contents(state, self._run))
            write_atomically(self._directory / stage_file(state.stage), content)
            self._written = time.monotonic()
        for path in self.files()[:-KEPT_FILES]:
            with suppress(OSError):
                path.unlink()

    def restore_refit(self, replicate: int, like: tuple[Fitted, ...]) -> tuple[Fitted, ...] | None:
        """The fits of a replicate that was finished; a damaged file is as good as none."""
        path = self._of_replicate(replicate)
        if not path.exists():
            return None
        try:
            arrays, facts = read_tensors(path)
        except DamagedFileError:
            return None
        if facts != {"run": self._run}:
            raise FLEError(f"{path} belongs to another run. Remove it and repeat the call.")
        return unstacked(like[0], arrays, len(like), str(path))

    def keep_refit(self, replicate: int, fits: tuple[Fitted, ...]) -> None:
        """Write the fits of a replicate."""
        make_directory(self._directory)
        content = tensor_bytes(stacked(fits), {"run": self._run})
        write_atomically(self._of_replicate(replicate), content)

    def forget_refits(self) -> None:
        """Remove the files of replicates: the result holds them, or they shall be made again."""
        for path in self._directory.glob(REPLICATE):
            path.unlink()

    def _of_replicate(self, replicate: int) -> Path:
        return self._directory / replicate_file(replicate)

    def _read(self, path: Path, blank: Fitted) -> LoopState:
        arrays, facts = read_tensors(path)
        require_form(facts, STATE, str(path))
        if facts["run"] != self._run:
            raise FLEError(f"{path} belongs to another run. Remove it and repeat the call.")
        fits = unstacked(blank, without_prefix("fits", arrays), facts["fits"], str(path))
        optimiser = None
        saved = without_prefix("optimiser", arrays)
        if saved:
            optimiser = with_arrays(initial_state(blank.law), saved, str(path))
        return LoopState(
            stage=facts["stage"],
            fits=fits,
            optimiser=optimiser,
            weight_decay=facts["weight_decay"],
            notes=tuple(facts["notes"]),
            warnings=tuple(facts["warnings"]),
            records=tuple(record_from_plain(record) for record in facts["records"]),
        )


def stage_file(stages: int) -> str:
    """The name of the state after so many stages."""
    return f"stage-{stages:06d}.safetensors"


def replicate_file(replicate: int) -> str:
    """The name of the fits of a replicate."""
    return f"replicate-{replicate:04d}.safetensors"


def _state_contents(state: LoopState, run: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays = prefixed("fits", stacked(state.fits))
    if state.optimiser is not None:
        arrays |= prefixed("optimiser", array_leaves(state.optimiser))
    facts = {
        "run": run,
        "stage": state.stage,
        "fits": len(state.fits),
        "weight_decay": state.weight_decay,
        "notes": list(state.notes),
        "warnings": list(state.warnings),
        "records": [record_as_plain(record) for record in state.records],
    }
    return arrays, facts


def record_as_plain(record: StageRecord) -> dict[str, Any]:
    """A record as plain values; what is not a number becomes null, as JSON has no NaN."""
    plain = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            plain[field.name] = [_or_null(item) for item in value.tolist()]
        else:
            plain[field.name] = _or_null(value)
    return plain


def record_from_plain(plain: dict[str, Any]) -> StageRecord:
    """The record that was written."""
    values = dict(plain)
    for name in ("loss", "held_out_loss"):
        values[name] = np.nan if values[name] is None else values[name]
    for name in ("mean", "std", "cvar"):
        values[name] = np.array([np.nan if v is None else v for v in values[name]])
    return StageRecord(**values)


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


class DamagedFileError(FLEError):
    """A file is not what was written: it was cut, or its hash is another."""


class TensorFile(NamedTuple):
    """What a file holds."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


def tensor_bytes(arrays: Arrays, facts: Mapping[str, Any]) -> bytes:
    """The content of a file, with its hash. Equal arrays and facts give equal bytes."""
    ordered = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    text = json.dumps(facts, sort_keys=True, allow_nan=False)
    sha256 = _digest(ordered, text)
    metadata = {METADATA: json.dumps({"facts": text, "sha256": sha256}, sort_keys=True)}
    return safetensors.numpy.save(ordered, metadata)


def read_tensors(path: Path) -> TensorFile:
    """Arrays and facts, after the hash was compared."""
    require_plain_file(path)
    try:
        # As bytes, as arrays, and as parameters.
        require_memory(3 * path.stat().st_size, str(path), 1)
        content = path.read_bytes()
    except OSError as error:
        raise FLEError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        arrays = safetensors.numpy.load(content)
        length = int.from_bytes(content[:HEADER_LENGTH], "little")
        header = json.loads(content[HEADER_LENGTH : HEADER_LENGTH + length])
        stated = parsed_json(header["__metadata__"][METADATA])
        text, expected = str(stated["facts"]), str(stated["sha256"])
        facts = dict(parsed_json(text))
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFileError(
            f"{path} is cut or damaged: of its {len(content):,} bytes no hash (sha256) can be read."
        ) from error
    found = _digest(arrays, text)
    if found != expected:
        raise DamagedFileError(
            f"{path} is damaged: its hash (sha256) should be {expected[:12]} and is {found[:12]}."
        )
    return TensorFile(arrays, facts)


def _digest(arrays: Arrays, text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8"))
    for name in sorted(arrays):
        value = arrays[name]
        digest.update(f"\n{name} {value.dtype.str} {value.shape}\n".encode())
        digest.update(np.asarray(value, order="C").data)
    return digest.hexdigest()


def array_leaves(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their path in it, such as `model/network/weights/0`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves if _is_array(leaf)}


def with_arrays(tree: Tree, arrays: Arrays, source: str) -> Tree:
    """The tree with its arrays replaced by those of the same path, shape and type."""

    def replaced(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        name = _name(path)
        value = arrays.get(name)
        if value is None or value.shape != leaf.shape or value.dtype != leaf.dtype:
            found = "nothing" if value is None else f"{value.dtype} {value.shape}"
            raise FLEError(
                f"{source}: expected {name} to be {leaf.dtype} {leaf.shape}, found {found}. It was "
                "written by another model, or by another version of it."
            )
        return placed(value) if isinstance(leaf, jax.Array) else value

    return jax.tree_util.tree_map_with_path(replaced, tree)


def stacked(trees: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """The arrays of equal trees, stacked along a new first axis."""
    leaves = [array_leaves(tree) for tree in trees]
    return {name: np.stack([one[name] for one in leaves]) for name in leaves[0]}


def unstacked(tree: Tree, arrays: Arrays, number: int, source: str) -> tuple[Tree, ...]:
    """The trees that were stacked; `tree` is one like them."""
    if any(len(value) != number for value in arrays.values()):
        raise FLEError(f"{source}: expected {number} models, found another number.")
    return tuple(
        with_arrays(tree, {name: value[i] for name, value in arrays.items()}, source)
        for i in range(number)
    )


def prefixed(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """The arrays under longer names."""
    return {f"{prefix}/{name}": value for name, value in arrays.items()}


def without_prefix(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """The arrays whose names begin with the prefix, under the rest of their names."""
    start = f"{prefix}/"
    return {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
