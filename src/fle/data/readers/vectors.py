"""The columns of a vector, in the order of their numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fle.errors import DataError

# Which of several patterns a column matched, and what distinguishes it there.
Key: TypeAlias = tuple[int, str | int]
WILD = "*?[]"


@dataclass(frozen=True)
class Vector:
    """Columns in order; a key of None belongs to a column that the user named in full."""

    columns: tuple[str, ...]
    keys: tuple[Key | None, ...]


def whole(name: str, role: str) -> Vector:
    """One column by its full name, which may show what it is called within its role."""
    inside = name.startswith(f"{role}.")
    return Vector((name,), (key_of(0, name[len(role) + 1 :]) if inside else None,))


def key_of(part: int, suffix: str) -> Key:
    """Numbers are compared as numbers."""
    is_number = suffix.isascii() and suffix.isdigit()
    return part, int(suffix) if is_number else suffix


def between(name: str, pattern: str) -> str:
    """What a name has in place of the wildcards of a pattern."""
    wild = [place for place, letter in enumerate(pattern) if letter in WILD]
    return name[wild[0] : len(name) - (len(pattern) - wild[-1] - 1)]


def in_order(
    source: str, role: str, part: int, suffix_of: Mapping[str, str], notes: list[str]
) -> Vector:
    """Columns that end in numbers by these numbers, others as in the file.

    suffix_of: by the name of a column, what distinguishes it.
    """
    keys = {name: key_of(part, suffix) for name, suffix in suffix_of.items()}
    name_of: dict[int, str] = {}
    for name, (_, number) in keys.items():
        if not isinstance(number, int):
            continue
        if number in name_of:
            raise DataError(
                f"{source}: {name_of[number]!r} and {name!r} are both number {number} of the"
                f" {role}; expected each number once: rename or drop one"
            )
        name_of[number] = name
    ordered = list(keys)
    if len(name_of) == len(keys):
        ordered = [name_of[number] for number in sorted(name_of)]
    if ordered != list(keys):
        notes.append(by_number(role, ordered))
    return Vector(tuple(ordered), tuple(keys[name] for name in ordered))


def by_number(role: str, names: Sequence[str]) -> str:
    """What a user is told of columns that were moved."""
    return f"the {role} columns are taken in the order of their numbers: {_shown(names)}"


def joined(parts: Sequence[Vector]) -> Vector:
    """Several vectors as one."""
    return Vector(
        tuple(name for part in parts for name in part.columns),
        tuple(key for part in parts for key in part.keys),
    )


def _shown(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return _listed(names)
    return f"{_listed(names[:3])}, ..., {names[-1]!r}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
