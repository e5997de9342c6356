"""A policy's answers at the rows of a large log, kept beside the log for the next evaluation."""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fle.data import Dataset
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
        return cls(Path(data.prepared[0]) / FOLDER / name, draws, seed)

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
        if again.candidates != known.candidates:
            return False
        if known.normal is not None and again.normal is not None:
            pairs = zip(again.normal, known.normal, strict=True)
            return all(np.allclose(here, there[: len(here)]) for here, there in pairs)
        if np.ptp(known.probabilities) == 0 and known.candidates > 1:
            return True
        same = np.array_equal(again.actions, known.actions[: len(again)])
        return same and np.allclose(again.probabilities, known.probabilities[: len(again)])


def _write(path: Path, table: ActionTable) -> None:
    """Whole or not at all; what cannot be kept is asked again."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    content: dict[str, Any] = {"probabilities": table.probabilities, "actions": table.listed}
    if table.normal is not None:
        content |= {"mean": table.normal[0], "std": table.normal[1]}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, **content)
        temporary.replace(path)


def _read(path: Path, rows: int) -> ActionTable | None:
    """None where there is none, or no whole one: its parts have checksums."""
    try:
        with np.load(path, allow_pickle=False) as content:
            found = dict(content)
        probabilities, actions = found["probabilities"], found["actions"]
    except (OSError, ValueError, KeyError, BadZipFile):
        return None
    if len(probabilities) != rows:
        return None
    actions = np.broadcast_to(actions, (rows, *actions.shape[1:]))
    normal = (found["mean"], found["std"]) if "mean" in found else None
    return ActionTable(actions, probabilities, normal)
