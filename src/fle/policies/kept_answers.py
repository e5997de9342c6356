"""A policy's answers at the rows of a large log, kept beside the log for the next evaluation."""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np

from fle.data import Dataset
from fle.files import not_through_links
from fle.policies.action_table import ActionSpace, ActionTable
from fle.policies.function_policies import Question
from fle.policies.row_policies import Settled

FOLDER = "answers"
# Rows of a block that are asked again, as one and the same key may be that of two policies.
ASKED_AGAIN = 4


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers by blocks of rows, each in a file of its own, if there is a folder.

    key: of the policy, by its answers at all rows of a plan, and of the data.
    """

    folder: Path | None
    draws: int
    seed: int

    @classmethod
    def of(cls, data: Dataset, fingerprint: str, draws: int, seed: int) -> "Answers":
        """Beside a prepared log; of any other data none is kept.

        fingerprint: of the policy's answers at the rows of the plan.
        """
        if not data.prepared:
            return cls(None, draws, seed)
        told = f"{fingerprint} {data.fingerprint} {draws} {seed}".encode()
        name = hashlib.sha256(told).hexdigest()[:32]
        kept = Path(data.prepared[0]) / FOLDER
        # A link that somebody put there would lead elsewhere: nothing is kept.
        own = not kept.is_symlink() and not (kept / name).is_symlink()
        return cls(kept / name if own else None, draws, seed)

    def at(self, policy: Settled, data: Dataset, spans: list[tuple[int, int]]) -> ActionTable:
        """At the next observations of all rows of the data.

        spans: the rows of the log that the data has, from and to, one block after the other.
        """
        first, tables = 0, []
        for start, stop in spans:
            part = slice(first, first + stop - start)
            tables.append(self._block(policy, data, part, start))
            first = part.stop
        normal = [table.normal for table in tables if table.normal is not None]
        together = None
        if len(normal) == len(tables):
            means, stds = zip(*normal, strict=True)
            together = (np.concatenate(means), np.concatenate(stds))
        probabilities = np.concatenate([table.probabilities for table in tables])
        if all(len(table.listed) == 1 < len(table) for table in tables):
            return ActionTable.of_probabilities(probabilities)
        actions = np.concatenate([table.actions for table in tables])
        return ActionTable(actions, probabilities, together)

    def _block(self, policy: Settled, data: Dataset, part: slice, start: int) -> ActionTable:
        observations = data.next_observations[part]
        path = None if self.folder is None else self.folder / f"{start}.npz"
        known = None if path is None else _read(path, len(observations))
        if known is not None and self._is_right(known, policy, data, part, start):
            return known
        table = self._asked(policy, data, part, start)
        if path is not None:
            _write(path, table)
        return table

    def _asked(self, policy: Settled, data: Dataset, part: slice, start: int) -> ActionTable:
        # Draws depend on the rows, and not on what else is asked.
        generator = np.random.default_rng([self.seed, 4, start])
        space = ActionSpace.of(data)
        question = Question(data.next_observations[part], space, self.draws, generator)
        return policy.policy.table(question)

    def _is_right(
        self, known: ActionTable, policy: Settled, data: Dataset, part: slice, start: int
    ) -> bool:
        """Whether the policy says the same again, at a few rows; of one that draws, none can be."""
        few = slice(part.start, min(part.start + ASKED_AGAIN, part.stop))
        again = self._asked(policy, data, few, start)
        if again.candidates != known.candidates or again.actions.ndim != known.actions.ndim:
            return False
        if (again.normal is None) != (known.normal is None):
            return False
        if known.normal is not None and again.normal is not None:
            pairs = zip(again.normal, known.normal, strict=True)
            return all(np.allclose(here, there[: len(here)]) for here, there in pairs)
        if not np.allclose(again.probabilities, known.probabilities[: len(again)]):
            return False
        drawn = np.ptp(again.probabilities) == 0 and len(again.listed) > 1 < again.candidates
        return drawn or np.array_equal(again.actions, known.actions[: len(again)])


def _write(path: Path, table: ActionTable) -> None:
    """Whole or not at all; what cannot be kept is asked again."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    content: dict[str, Any] = {"probabilities": table.probabilities, "actions": table.listed}
    if table.normal is not None:
        content |= {"mean": table.normal[0], "std": table.normal[1]}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb", opener=not_through_links) as file:
            np.savez(file, **content)
        temporary.replace(path)


def _read(path: Path, rows: int) -> ActionTable | None:
    """None where there is none, or no whole one: its parts have checksums."""
    if not path.is_file() or path.is_symlink():
        return None
    # Whoever passed the folder on may have put any file there, and a parser of damaged bytes may
    # raise anything.
    try:
        with ZipFile(path) as archive:
            # As it was written: what is packed may be of any size.
            if any(entry.compress_type != ZIP_STORED for entry in archive.infolist()):
                return None
        with np.load(path, allow_pickle=False) as content:
            found = dict(content)
        probabilities, actions = found["probabilities"], found["actions"]
        if len(probabilities) != rows or probabilities.dtype.kind != "f":
            return None
        actions = np.broadcast_to(actions, (rows, *actions.shape[1:]))
        normal = (found["mean"], found["std"]) if "mean" in found else None
        if normal is not None and {part.shape for part in normal} != {actions[:, 0].shape}:
            return None
        return ActionTable(actions, probabilities, normal)
    except Exception:
        return None
