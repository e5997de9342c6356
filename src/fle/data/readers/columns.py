"""Named columns on their way from a file to arrays, and where each row came from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.data.transitions import Array
from fle.errors import DataError


@dataclass(frozen=True)
class Part:
    """One file, or one object in memory, with its number of rows."""

    name: str
    rows: int


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns as blocks of NumPy arrays (k, ...) that follow each other, without nulls."""

    parts: tuple[Part, ...]
    blocks: Mapping[str, Sequence[Array]]

    @property
    def source(self) -> str:
        """What an error calls all parts together."""
        first = self.parts[0].name
        if len(self.parts) == 1:
            return first
        return f"{first} and {len(self.parts) - 1} more (rows counted through all of them)"

    @property
    def rows(self) -> int:
        """The rows of all parts together."""
        return sum(part.rows for part in self.parts)

    def whole(self, name: str) -> Array:
        """A column in one piece."""
        blocks = self.blocks[name]
        return blocks[0] if len(blocks) == 1 else np.concatenate(list(blocks))

    def place(self, name: str, row: int) -> str:
        """The file, the column and the row within that file."""
        for part in self.parts[:-1]:
            if row < part.rows:
                return cell(part.name, name, row)
            row -= part.rows
        return cell(self.parts[-1].name, name, row)


@dataclass(frozen=True)
class Source:
    """Something with named columns, of which only the needed ones are loaded."""

    name: str
    names: tuple[str, ...]
    load: Callable[[Sequence[str]], Columns]
    initial_observations: Any | None = None


def cell(source: str, column: str, row: int) -> str:
    """How errors name a place; rows count from 0."""
    return f"{source}: column {column!r}, row {row}"


def require_distinct(source: str, names: Sequence[str]) -> None:
    """Refuse a table in which one name stands for two columns."""
    twice = (
        [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
    )
    if twice:
        raise DataError(
            f"{source}: column {twice[0]!r} appears {names.count(twice[0])} times;"
            " expected each name once: rename or drop one"
        )
