"""Checkpoints: the state of a Bellman loop between two stages, as files."""

import dataclasses
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fle.errors import FLEError
from fle.files import make_directory, remove_leftovers, write_atomically
from fle.fitting.encoding import Fitted
from fle.fitting.loop import LoopState
from fle.fitting.measurement import StageRecord
from fle.fitting.optimiser import initial_state
from fle.fitting.tensor_files import (
    DamagedFileError,
    array_leaves,
    prefixed,
    read_tensors,
    stacked,
    tensor_bytes,
    unstacked,
    with_arrays,
    without_prefix,
)

Resume = Literal["latest", "previous"]
# Many short stages are not worth a file each.
SECONDS_BETWEEN = 5.0
KEPT_FILES = 2


class Checkpoints:
    """A file every few seconds, of which the last two are kept."""

    def __init__(self, directory: Path, run: str, resume: Resume):
        self._directory = directory
        self._run = run
        self._resume = resume
        self._pending: LoopState | None = None
        self._written = time.monotonic()

    def files(self) -> list[Path]:
        """From old to new."""
        return sorted(self._directory.glob("stage-*.safetensors"))

    def restore(self, blank: Fitted) -> LoopState | None:
        """The last state that was written, or the one before it if that was asked for."""
        make_directory(self._directory)
        remove_leftovers(self._directory)
        files = self.files()
        if self._resume == "previous" and files:
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
        """Write the last state, then remove all but the last two files."""
        if self._pending is None:
            return
        state, self._pending = self._pending, None
        content, _ = tensor_bytes(*_state_contents(state, self._run))
        write_atomically(self._directory / f"stage-{state.stage:06d}.safetensors", content)
        for path in self.files()[:-KEPT_FILES]:
            with suppress(OSError):
                path.unlink()
        self._written = time.monotonic()

    def _read(self, path: Path, blank: Fitted) -> LoopState:
        arrays, facts, _ = read_tensors(path)
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
            records=tuple(record_from_plain(record) for record in facts["records"]),
        )


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
