"""Which column plays which part, by names that are known or mapped; the columns of a vector."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from fle.data.schema import WORDS
from fle.data.validation import Faults
from fle.errors import DataError

# Which of several patterns a column matched, and what distinguishes it there.
Key: TypeAlias = tuple[int, str | int]
# Instead of a pattern: the name begins with the role itself.
BY_ROLE = -1
WILD = "*?[]"
Names: TypeAlias = str | Sequence[str]

AMBIGUOUS_ENDS = ("done", "dones")
# Where several columns say that an episode ends, any of them does.
ENDS = ("terminated", "truncated")
# Shorter words have innocent neighbours, such as stop for step.
SHORTEST_MISSPELT = 6


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
        missing = [f"{other_role} has none for {_quoted(lacking)}"] if lacking else []
        missing += [f"{role} has none for {_quoted(surplus)}"] if surplus else []
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
        return _quoted(names)
    return f"{_quoted(names[:3])}, ..., {names[-1]!r}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


@dataclass(frozen=True)
class Roles:
    """The columns of each part; `alone` are the parts mapped to one column by its full name.

    notes: what a user should know of how they were found.
    """

    columns: Mapping[str, tuple[str, ...]]
    probabilities: Mapping[str, tuple[str, ...]]
    alone: frozenset[str]
    notes: tuple[str, ...]

    def all(self) -> list[str]:
        """Every column that is needed, each once."""
        groups = [*self.columns.values(), *self.probabilities.values()]
        return list(dict.fromkeys(name for group in groups for name in group))


def find_roles(
    source: str,
    names: Sequence[str],
    mapped: Mapping[str, Names | None],
    probability: Names | Mapping[str, Names] | None,
    faults: Faults,
) -> Roles:
    """The columns of every part, or an error with the nearest names."""
    vectors: dict[str, Vector] = {}
    notes: list[str] = []
    for role in WORDS:
        pattern = mapped.get(role)
        with faults.caught():
            if pattern is not None:
                vectors[role] = _match(source, role, pattern, names, notes)
            else:
                found = _recognise(source, role, names, notes)
                if found.columns:
                    vectors[role] = found
    columns = {role: vector.columns for role, vector in vectors.items()}
    _check_roles(source, names, columns, mapped, faults)
    faults.require_none()
    policies = _probabilities(source, names, probability, notes)
    if "propensity" in vectors:
        vectors["propensity"] = _by_action(source, "propensity", vectors["propensity"], notes)
    _pair_all(source, vectors, policies, notes)
    columns = {role: vector.columns for role, vector in vectors.items()}
    alone = {
        role
        for role, group in columns.items()
        if group[0] == mapped.get(role)
        or (mapped.get(role) is None and group[0] in WORDS[role].known)
    }
    probabilities = {policy: vector.columns for policy, vector in policies.items()}
    return Roles(columns, probabilities, frozenset(alone), tuple(notes))


def _check_roles(
    source: str,
    names: Sequence[str],
    columns: Mapping[str, tuple[str, ...]],
    mapped: Mapping[str, Names | None],
    faults: Faults,
) -> None:
    """Every part that must be there is, each once, and nothing looks forgotten."""
    for role, words in WORDS.items():
        with faults.caught():
            if words.required and role not in columns:
                raise DataError(
                    f"{source}: no {role} column; expected {role!r} or '{role}.*'"
                    f"{_nearest(role, names)}. Map yours with {role}=..."
                )
            single = not words.several and role not in ENDS
            if single and len(columns.get(role, ())) > 1:
                raise DataError(
                    f"{source}: expected one {role} column, got"
                    f" {', '.join(map(repr, columns[role]))}"
                )
    with faults.caught():
        _refuse_misspelt(source, names, columns, mapped)
    with faults.caught():
        _refuse_ambiguous_end(source, names, columns)
    with faults.caught():
        _refuse_two_parts(source, columns)


def reward_names(roles: Roles) -> tuple[str, ...]:
    """What the report calls each reward: the column without the prefix that says 'reward'."""
    return tuple(name.removeprefix("reward.") for name in roles.columns["reward"])


def _recognise(source: str, role: str, names: Sequence[str], notes: list[str]) -> Vector:
    words = WORDS[role]
    single = [name for name in words.known if name in names]
    group = [name for name in names if words.several and name.startswith(f"{role}.")]
    if len(single) + bool(group) > 1:
        both = [*single, *group]
        raise DataError(
            f"{source}: {both[0]!r} and {both[1]!r} could both be the {role};"
            f" expected one: say which with {role}=..."
        )
    if single:
        return whole(single[0], role)
    return in_order(source, role, 0, _suffixes(group, f"{role}."), notes)


def _match(
    source: str, role: str, pattern: Names, names: Sequence[str], notes: list[str]
) -> Vector:
    """Columns by full name, by a pattern with * or ?, or by a prefix."""
    found: list[Vector] = []
    there = frozenset(names)
    for number, part in enumerate([pattern] if isinstance(pattern, str) else pattern):
        if not isinstance(part, str):
            raise DataError(f"{role}: expected the name of a column, got {part!r}")
        if part in there:
            found.append(whole(part, role))
            continue
        matches = {name: between(name, part) for name in names if fnmatchcase(name, part)}
        matches = matches or _suffixes(names, f"{part}.")
        if not matches and part.endswith((".", "_", "-", "/")):
            matches = _suffixes(names, part)
        if not matches:
            raise DataError(f"{source}: no column {part!r} for {role}{_nearest(part, names)}")
        found.append(in_order(source, role, number, matches, notes))
    vector = joined(found)
    if len(set(vector.columns)) < len(vector.columns) or not vector.columns:
        raise DataError(
            f"{source}: {role}={pattern!r}: expected distinct columns, got one twice, or none"
        )
    return vector


def _suffixes(names: Sequence[str], prefix: str) -> dict[str, str]:
    return {name: name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def _probabilities(
    source: str,
    names: Sequence[str],
    given: Names | Mapping[str, Names] | None,
    notes: list[str],
) -> dict[str, Vector]:
    if given is None:
        found = in_order(source, "probability", 0, _suffixes(names, "probability."), notes)
        return (
            {"probability": _by_action(source, "probability", found, notes)}
            if found.columns
            else {}
        )
    policies = given if isinstance(given, Mapping) else {"probability": given}
    matched = {
        policy: _match(source, "probability", pattern, names, notes)
        for policy, pattern in policies.items()
    }
    return {
        policy: _by_action(source, "probability", found, notes) for policy, found in matched.items()
    }


def _pair_all(
    source: str, vectors: dict[str, Vector], policies: dict[str, Vector], notes: list[str]
) -> None:
    """Bring columns that stand beside others into their order."""
    if "observation" in vectors and "next_observation" in vectors:
        vectors["next_observation"] = paired(
            source,
            ("observation", vectors["observation"]),
            ("next_observation", vectors["next_observation"]),
            notes,
        )
    if not policies:
        return
    first, *others = policies
    if "next_probability" in vectors:
        following = _by_action(source, "next_probability", vectors["next_probability"], notes)
        vectors["next_probability"] = _like_policy(
            source, (first, policies[first]), ("next_probability", following), notes
        )
    for name in others:
        policies[name] = _like_policy(
            source, (first, policies[first]), (name, policies[name]), notes
        )


def _like_policy(
    source: str, first: tuple[str, Vector], other: tuple[str, Vector], notes: list[str]
) -> Vector:
    """Actions in the order of the first policy; a list of the user's own is in order already."""
    if None in first[1].keys or None in other[1].keys:
        return other[1]
    return paired(source, first, other, notes)


def _by_action(source: str, role: str, found: Vector, notes: list[str]) -> Vector:
    """Columns that end in the code of an action, in the order of the codes."""
    columns = found.columns
    codes = [name.rpartition(".")[2].rpartition("_")[2] for name in columns]
    if len(columns) == 1 or not all(code.isascii() and code.isdigit() for code in codes):
        return found
    place_of = {int(code): place for place, code in enumerate(codes)}
    if sorted(place_of) != list(range(len(columns))):
        raise DataError(
            f"{source}: the {role} columns end in {', '.join(codes)};"
            f" expected the actions 0 to {len(columns) - 1}, one column each"
        )
    ordered = tuple(columns[place_of[code]] for code in range(len(columns)))
    if ordered != columns:
        notes.append(by_number(role, ordered))
    return Vector(ordered, tuple((BY_ROLE, code) for code in range(len(columns))))


def _refuse_misspelt(
    source: str,
    names: Sequence[str],
    columns: Mapping[str, tuple[str, ...]],
    mapped: Mapping[str, Names | None],
) -> None:
    """A `terminatd` that nobody reads would give wrong numbers without a word."""
    used = {name for group in columns.values() for name in group}
    for name in names:
        head, separator = [*re.split("([./:])", name, maxsplit=1), ""][:2]
        for role, words in WORDS.items():
            for word in words.known:
                slip = _one_slip(head, word) or (head == word and separator != "")
                if slip and mapped.get(role) is None and name not in used:
                    raise DataError(
                        f"{source}: column {name!r} is almost {word!r} and would not be used;"
                        f" rename it, or say which columns are meant with {role}=..."
                    )


def _one_slip(found: str, word: str) -> bool:
    """Other case, one letter replaced or left out, or two neighbours swapped."""
    if found == word or len(word) < SHORTEST_MISSPELT:
        return False
    low = found.lower()
    if len(low) == len(word) - 1:
        return any(low == word[:gap] + word[gap + 1 :] for gap in range(len(word)))
    if len(low) != len(word):
        return False
    wrong = [place for place in range(len(word)) if low[place] != word[place]]
    swapped = len(wrong) == 2 and wrong[1] == wrong[0] + 1 and sorted(low) == sorted(word)
    return len(wrong) <= 1 or swapped


def _refuse_ambiguous_end(
    source: str, names: Sequence[str], columns: Mapping[str, tuple[str, ...]]
) -> None:
    if "terminated" in columns or "truncated" in columns:
        return
    for name in AMBIGUOUS_ENDS:
        if name in names and (name,) not in columns.values():
            raise DataError(
                f"{source}: column {name!r} does not say whether an episode terminated or was cut"
                f" off; map it with terminated={name!r} or truncated={name!r}"
            )


def _refuse_two_parts(source: str, columns: Mapping[str, tuple[str, ...]]) -> None:
    part_of: dict[str, str] = {}
    for role, group in columns.items():
        # Time may well be something that the policy observes.
        if role == "step":
            continue
        for name in group:
            if name in part_of:
                raise DataError(
                    f"{source}: column {name!r} is both {part_of[name]} and {role};"
                    " expected one part for each column"
                )
            part_of[name] = role


def _nearest(name: str, names: Sequence[str]) -> str:
    lowered = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=3)
    close += [low for low in lowered if low.startswith(name.lower()[:3]) and low not in close]
    found = ", ".join(repr(lowered[low]) for low in close[:3])
    return (f"; nearest: {found}" if found else "") + f"; it has {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > 12 else ""
    return (", ".join(map(repr, names[:12])) or "no columns") + more
