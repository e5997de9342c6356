"""The columns of a vector: in the order of their numbers, and paired with others by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fle.errors import DataError

# Which of several patterns a column matched, and what distinguishes it there.
Key: TypeAlias = tuple[int, str | int]
# Instead of a pattern: the name begins with the role itself.
BY_ROLE = -1
WILD = "*?[]"


@dataclass(frozen=True)
class Vector:
    """Columns in order; a key of None belongs to a column that the user named in full."""

    columns: tuple[str, ...]
    keys: tuple[Key | None, ...]


def whole(name: str, role: str) -> Vector:
    """One column by its full name, which may show what it is called within its role."""
    inside = name.startswith(f"{role}.")
    return Vector((name,), (key_of(BY_ROLE, name[len(role) + 1 :]) if inside else None,))


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
    if all(name.startswith(f"{role}.") for name in keys):
        keys = {name: key_of(BY_ROLE, name[len(role) + 1 :]) for name in keys}
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


def paired(
    source: str, first: tuple[str, Vector], other: tuple[str, Vector], notes: list[str]
) -> Vector:
    """The other vector in the order of the first, or an error that says what one of them lacks.

    Each comes with what to call it.
    """
    role, other_role = first[0], other[0]
    keys, other_keys = _names_in(first[1]), _names_in(other[1])
    if keys is None and other_keys is None:
        # Lists of the user's own, or one column each.
        return other[1]
    if keys is None or other_keys is None:
        _require_one_column(source, *((other, first) if keys is None else (first, other)))
        return other[1]
    column_of = dict(zip(other_keys, other[1].columns, strict=True))
    column_of_first = dict(zip(keys, first[1].columns, strict=True))
    lacking = [name for key, name in column_of_first.items() if key not in column_of]
    surplus = [name for key, name in column_of.items() if key not in column_of_first]
    if lacking or surplus:
        missing = [f"{other_role} has none for {_listed(lacking)}"] if lacking else []
        missing += [f"{role} has none for {_listed(surplus)}"] if surplus else []
        raise DataError(
            f"{source}: the columns of {role} and {other_role} are paired by their names, and"
            f" {', and '.join(missing)}; expected the same names in both: add, drop or rename them"
        )
    ordered = tuple(column_of[key] for key in keys)
    if ordered != other[1].columns:
        notes.append(
            f"the {other_role} columns are taken in the order of the {role} columns:"
            f" {_shown(ordered)}"
        )
    return Vector(ordered, first[1].keys)


def _names_in(vector: Vector) -> list[Key | str | int] | None:
    """What tells the columns apart; None where that is unknown."""
    keys = [key for key in vector.keys if key is not None]
    if len(keys) < len(vector.keys) or len(set(keys)) < len(keys):
        return None
    # One pattern is one pattern, however it is written.
    parts = {part for part, _ in keys}
    return [name for _, name in keys] if len(parts) == 1 else list(keys)


def _require_one_column(
    source: str, named: tuple[str, Vector], unnamed: tuple[str, Vector]
) -> None:
    """Without names there must be no choice: one column, beside one or beside numbers."""
    names = _names_in(named[1]) or []
    numbered = all(isinstance(name, int) for name in names)
    if len(unnamed[1].columns) > 1 or not (numbered or len(names) == 1):
        raise DataError(
            f"{source}: {_shown(unnamed[1].columns)} as {unnamed[0]} and {_shown(named[1].columns)}"
            f" as {named[0]} cannot be paired by their names; expected the same names in both:"
            f" list all columns of both in one order, with {unnamed[0]}=[...] and {named[0]}=[...]"
        )


def _shown(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return _listed(names)
    return f"{_listed(names[:3])}, ..., {names[-1]!r}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
