"""Which column plays which part, from the names that are known and the ones that are mapped."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from fle.data.readers.vectors import (
    BY_ROLE,
    Vector,
    between,
    by_number,
    in_order,
    joined,
    paired,
    whole,
)
from fle.data.schema import WORDS
from fle.errors import DataError, Faults

Names: TypeAlias = str | Sequence[str]

AMBIGUOUS_ENDS = ("done", "dones")
# Where several columns say that an episode ends, any of them does.
ENDS = ("terminated", "truncated")
# Shorter words have innocent neighbours, such as stop for step.
SHORTEST_MISSPELT = 6


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
