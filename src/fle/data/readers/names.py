"""Which column plays which part, from the names that are known and the ones that are mapped."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from fle.errors import DataError

Names: TypeAlias = str | Sequence[str]

# The table's word first, then what arrays and D4RL call it.
KNOWN = {
    "observation": ("observation", "observations"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "next_observation": ("next_observation", "next_observations"),
    "episode": ("episode", "episodes"),
    "step": ("step", "steps"),
    "terminated": ("terminated", "terminations", "terminals"),
    "truncated": ("truncated", "truncations", "timeouts"),
    "next_probability": ("next_probability",),
    "weight": (),
}
GROUPS = ("observation", "action", "reward", "next_observation", "next_probability")
REQUIRED = ("observation", "action", "reward")
AMBIGUOUS_ENDS = ("done", "dones")
# Shorter words have innocent neighbours, such as stop for step.
SHORTEST_MISSPELT = 6


@dataclass(frozen=True)
class Roles:
    """The columns of each part; `alone` are the parts mapped to one column by its full name."""

    columns: Mapping[str, tuple[str, ...]]
    probabilities: Mapping[str, tuple[str, ...]]
    alone: frozenset[str]

    def all(self) -> list[str]:
        """Every column that is needed, each once."""
        groups = [*self.columns.values(), *self.probabilities.values()]
        return list(dict.fromkeys(name for group in groups for name in group))


def find_roles(
    source: str,
    names: Sequence[str],
    mapped: Mapping[str, Names | None],
    probability: Names | Mapping[str, Names] | None,
) -> Roles:
    """The columns of every part, or an error with the nearest names."""
    columns: dict[str, tuple[str, ...]] = {}
    for role in KNOWN:
        pattern = mapped.get(role)
        if pattern is not None:
            columns[role] = _match(source, role, pattern, names)
        else:
            found = _recognise(source, role, names)
            if found:
                columns[role] = found
        if role in REQUIRED and role not in columns:
            raise DataError(
                f"{source}: no {role} column; expected {role!r} or '{role}.*'"
                f"{_nearest(role, names)}. Map yours with {role}=..."
            )
        if role not in GROUPS and len(columns.get(role, ())) > 1:
            raise DataError(
                f"{source}: {role} must be one column, got {', '.join(map(repr, columns[role]))}"
            )
    _refuse_misspelt(source, names, columns, mapped)
    _refuse_ambiguous_end(source, names, columns)
    _refuse_two_parts(source, columns)
    alone = {
        role
        for role, found in columns.items()
        if found[0] == mapped.get(role) or (mapped.get(role) is None and found[0] in KNOWN[role])
    }
    return Roles(columns, _probabilities(source, names, probability), frozenset(alone))


def reward_names(roles: Roles) -> tuple[str, ...]:
    """What the report calls each reward: the column without the prefix that says 'reward'."""
    return tuple(name.removeprefix("reward.") for name in roles.columns["reward"])


def _recognise(source: str, role: str, names: Sequence[str]) -> tuple[str, ...]:
    single = [name for name in KNOWN[role] if name in names]
    group = [name for name in names if role in GROUPS and name.startswith(f"{role}.")]
    if len(single) + bool(group) > 1:
        both = [*single, *group]
        raise DataError(
            f"{source}: {both[0]!r} and {both[1]!r} could both be the {role};"
            f" say which with {role}=..."
        )
    return tuple(single or group)


def _match(source: str, role: str, pattern: Names, names: Sequence[str]) -> tuple[str, ...]:
    """Columns by full name, by a pattern with * or ?, or by a prefix."""
    found: list[str] = []
    for part in [pattern] if isinstance(pattern, str) else list(pattern):
        if not isinstance(part, str):
            raise DataError(f"{role}: expected the name of a column, got {part!r}")
        matches = [name for name in names if name == part]
        matches = matches or [name for name in names if fnmatchcase(name, part)]
        matches = matches or [name for name in names if name.startswith(f"{part}.")]
        if not matches and part.endswith((".", "_", "-", "/")):
            matches = [name for name in names if name.startswith(part)]
        if not matches:
            raise DataError(
                f"{source}: no column {part!r} for {role}{_nearest(part, names)}."
                f" It has {_listed(names)}"
            )
        found += matches
    if len(set(found)) < len(found) or not found:
        raise DataError(f"{source}: {role}={pattern!r} names a column twice, or none")
    return tuple(found)


def _probabilities(
    source: str, names: Sequence[str], given: Names | Mapping[str, Names] | None
) -> dict[str, tuple[str, ...]]:
    if given is None:
        found = tuple(name for name in names if name.startswith("probability."))
        return {"probability": _by_action(source, found)} if found else {}
    policies = given if isinstance(given, Mapping) else {"probability": given}
    return {
        policy: _by_action(source, _match(source, "probability", pattern, names))
        for policy, pattern in policies.items()
    }


def _by_action(source: str, found: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that end in the code of an action, in the order of the codes."""
    codes = [name.rpartition(".")[2].rpartition("_")[2] for name in found]
    if len(found) == 1 or not all(code.isascii() and code.isdigit() for code in codes):
        return found
    by_code = {int(code): name for code, name in zip(codes, found, strict=True)}
    if sorted(by_code) != list(range(len(found))):
        raise DataError(
            f"{source}: the probability columns end in {', '.join(codes)};"
            f" expected the actions 0 to {len(found) - 1}, one column each"
        )
    return tuple(by_code[code] for code in range(len(found)))


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
        for role, words in KNOWN.items():
            for word in words:
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
    close = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.4)
    close += [low for low in lowered if low.startswith(name.lower()[:3]) and low not in close]
    found = ", ".join(repr(lowered[low]) for low in close[:3])
    return f"; nearest: {found}" if found else f"; it has {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > 12 else ""
    return (", ".join(map(repr, names[:12])) or "no columns") + more
