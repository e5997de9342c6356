"""What a log wrote in its own way becomes numbers: text, categories, dates and missing values."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fle.data.passes import Array
from fle.data.readers.columns import (
    ELAPSED,
    UNITS,
    Columns,
    arrangement,
    elapsed_time,
    flags,
    is_number,
    number_range,
    refuse_nulls,
)
from fle.data.readers.names import Names, Roles
from fle.data.validation import Faults
from fle.errors import DataError, SettingsError

MISSING = ("refuse", "indicator", "forward")
# One feature each; more texts than that are no categories.
MOST_CATEGORIES, MOST_LABELS = 100, 1_000


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How a user wants the columns to be read; see `read`."""

    number_of_actions: int | None = None
    action_labels: Sequence[str] | None = None
    category: Names | None = None
    missing: str = "refuse"
    elapsed: str | None = None

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise SettingsError(
                f"missing: expected one of {', '.join(MISSING)}, got {self.missing!r}"
            )
        if self.elapsed is not None and self.elapsed not in UNITS:
            raise SettingsError(
                f"elapsed: expected one of {', '.join(UNITS)}, got {self.elapsed!r}"
            )


@dataclass(frozen=True, eq=False)
class Coded:
    """Columns of numbers alone, and the parts they play.

    labels: of the action codes 0, 1, ..., where the log has names for them.
    unusable: (n,), rows without an action or a reward; fillers stand there.
    """

    columns: Columns
    roles: Roles
    labels: tuple[str, ...]
    unusable: Array | None
    notes: tuple[str, ...]


def coded(columns: Columns, roles: Roles, wishes: Wishes, faults: Faults) -> Coded:
    """Categories one-hot, actions by code, missing values as the user wants them."""
    blocks, notes = dict(columns.blocks), list(roles.notes)
    parts, unusable = dict(roles.columns), None
    labels: tuple[str, ...] = ()
    for role, names in roles.columns.items():
        for name in names if role not in ("observation", "next_observation") else ():
            with faults.caught():
                if role in ("action", "reward") and wishes.missing != "refuse":
                    gaps = _gaps(columns, name)
                    if gaps is not None:
                        blocks[name] = [_filled(columns.whole(name), gaps)]
                        unusable = gaps if unusable is None else unusable | gaps
                else:
                    refuse_nulls(columns, [name])
            if role in ("terminated", "truncated"):
                blocks[name] = [flags(block) for block in columns.blocks[name]]
    for group in roles.probabilities.values():
        with faults.caught():
            refuse_nulls(columns, group)
    plain = _without_last_gaps(replace(columns, blocks=blocks), roles)
    blocks |= plain.blocks
    with faults.caught():
        labels, codes = _action_codes(plain, roles, wishes, unusable)
        blocks |= codes
    with faults.caught():
        made, parts = _observations(plain, roles, wishes, faults, notes)
        blocks |= made
    with faults.caught():
        if wishes.elapsed is not None:
            blocks[ELAPSED] = [elapsed_time(plain, roles, wishes.elapsed)]
            parts["observation"] = (*parts["observation"], ELAPSED)
    probabilities = roles.probabilities
    if labels:
        with faults.caught():
            parts, probabilities = _by_label(labels, parts, probabilities)
    used = replace(roles, columns=parts, probabilities=probabilities, notes=tuple(notes))
    return Coded(Columns(columns.parts, blocks), used, labels, unusable, tuple(notes))


def _gaps(columns: Columns, name: str) -> Array | None:
    """Where a column has no value: null, or NaN; None if it has one everywhere."""
    nulls = columns.nulls.get(name)
    if columns.blocks[name][0].dtype.kind != "f":
        return nulls
    values = columns.whole(name)
    unknown = np.asarray(np.isnan(values.reshape(len(values), -1)).any(axis=1))
    gaps: Array = unknown if nulls is None else unknown | nulls
    return gaps if gaps.any() else None


def _filled(values: Array, gaps: Array) -> Array:
    """The column with zeros, or empty texts, where it has no value."""
    result = values.copy()
    result[gaps] = values.dtype.type()
    return result


def _action_codes(
    columns: Columns, roles: Roles, wishes: Wishes, unusable: Array | None
) -> tuple[tuple[str, ...], dict[str, list[Array]]]:
    """The labels of the actions, if they are texts or the user named them, and the codes."""
    names, given = roles.columns["action"], wishes.action_labels
    labels = () if given is None else tuple(str(label) for label in given)
    if len(set(labels)) < len(labels) or (given is not None and len(labels) < 1):
        raise SettingsError(f"action_labels: expected distinct names, got {given!r}")
    texts = [name for name in names if columns.blocks[name][0].dtype.kind == "U"]
    if not texts:
        return labels, {}
    values = columns.whole(texts[0])
    used = values if unusable is None else values[~unusable]
    found = np.unique(used)
    if _are_numbers(found, all_of_them=False):
        number_range(columns, texts[0])
    if len(names) > 1:
        raise DataError(
            f"actions: {texts[0]!r} is text, and one of {len(names)} action columns; expected one"
            " column of text, or numbers: join the columns into one label"
        )
    count = wishes.number_of_actions
    if not labels and count is not None and count != len(found):
        raise DataError(
            f"{columns.source}: column {texts[0]!r} has {len(found)} different actions, but"
            f" number_of_actions is {count}; name them all with action_labels=[...]"
        )
    if len(found) > MOST_LABELS:
        raise DataError(
            f"{columns.source}: column {texts[0]!r} has {len(found):,} different texts; expected"
            f" at most {MOST_LABELS:,} actions: is it another column that says what was done?"
        )
    labels = labels or tuple(found.tolist())
    _require_known(columns, texts[0], found, labels)
    places = {label: code for code, label in enumerate(labels)}
    texts_found, inverse = np.unique(values, return_inverse=True)
    codes = np.array([places.get(text, 0) for text in texts_found.tolist()], dtype=np.int64)
    return labels, {texts[0]: [codes[inverse.reshape(-1)]]}


def _require_known(columns: Columns, name: str, found: Array, labels: Sequence[str]) -> None:
    for text in found.tolist():
        if text not in labels:
            row = int(np.argmax(columns.whole(name) == text))
            near = difflib.get_close_matches(text, labels, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DataError(
                f"{columns.place(name, row)} is {text!r}; expected one of"
                f" {', '.join(map(repr, labels))} (`action_labels`){hint}"
            )


def _are_numbers(texts: Array, *, all_of_them: bool) -> bool:
    """Whether texts are numbers, at least half of them; without `all_of_them`, not all."""
    numbers = sum(is_number(text) for text in texts.tolist())
    return 2 * numbers >= len(texts) > 0 and (all_of_them or numbers < len(texts))


def _observations(
    columns: Columns, roles: Roles, wishes: Wishes, faults: Faults, notes: list[str]
) -> tuple[dict[str, list[Array]], dict[str, tuple[str, ...]]]:
    """What replaces columns, by name, and the new columns of both parts."""
    categories = _category_columns(roles, wishes)
    made: dict[str, list[Array]] = {}
    parts = {**roles.columns}
    features: dict[str, list[str]] = {"observation": [], "next_observation": []}
    for here, after in _pairs(columns, roles):
        found: dict[str, dict[str, Array]] = {}
        with faults.caught():
            found = _features(columns, roles, (here, after), wishes, here in categories)
        for role, name in (("observation", here), ("next_observation", after)):
            if name is not None:
                coded_columns = found.get(role, {})
                made |= {column: [values] for column, values in coded_columns.items()}
                features[role] += list(coded_columns) or [name]
    indicators = sum(name.endswith(" missing") for name in features["observation"])
    if indicators:
        notes.append(
            f"missing observations: the median stands for them, and {indicators} features say"
            " where (`missing`)"
        )
    for role, names in features.items():
        if names:
            parts[role] = tuple(names)
    return made, parts


def _category_columns(roles: Roles, wishes: Wishes) -> frozenset[str]:
    given = wishes.category or ()
    wanted = [given] if isinstance(given, str) else list(given)
    names = roles.columns["observation"]
    for name in wanted:
        if name not in names and f"observation.{name}" not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DataError(f"category: {name!r} is none of the observation columns{hint}")
    return frozenset(
        name for name in names if {name, name.removeprefix("observation.")} & {*wanted}
    )


def _pairs(columns: Columns, roles: Roles) -> Iterator[tuple[str, str | None]]:
    """Each observation column with its next one; alone where lists stand beside single columns."""
    here, after = roles.columns["observation"], roles.columns.get("next_observation", ())
    if len(here) != len(after):
        refuse_nulls(columns, after)
        yield from ((name, None) for name in here)
    else:
        yield from zip(here, after, strict=True)


def _features(
    columns: Columns,
    roles: Roles,
    pair: tuple[str, str | None],
    wishes: Wishes,
    category: bool,
) -> dict[str, dict[str, Array]]:
    """By part, what stands for a pair of columns; nothing where they stay as they are."""
    named = {"observation": pair[0]} | ({} if pair[1] is None else {"next_observation": pair[1]})
    kinds = [columns.blocks[name][0] for name in named.values()]
    text = any(block.dtype.kind == "U" for block in kinds)
    values = {role: columns.whole(name) for role, name in named.items()} if text or category else {}
    gaps: dict[str, Array | None] = dict.fromkeys(named)
    if wishes.missing == "refuse":
        refuse_nulls(columns, list(named.values()))
    else:
        gaps = {role: _gaps(columns, name) for role, name in named.items()}
    unknown = any(rows is not None for rows in gaps.values())
    state = "observation" in roles.alone and not text and not unknown
    if not (text or unknown or (category and not state)):
        return {}
    values = values or {role: columns.whole(name) for role, name in named.items()}
    if unknown and kinds[0].ndim > 1:
        raise DataError(
            f"column {pair[0]!r} has lists with missing values; expected one column for each entry"
        )
    if wishes.missing == "forward":
        values, gaps = _carried(columns, roles, pair[0], values, gaps)
    kinds_of = _categories(columns, pair[0], values, gaps) if text or category else None
    indicated = wishes.missing == "indicator" and unknown
    return {
        role: _one_feature(named[role], values[role], gaps[role], kinds_of, indicated)
        for role in named
    }


def _without_last_gaps(columns: Columns, roles: Roles) -> Columns:
    """Next observations of terminated rows are never used; the row's own stand where none is."""
    here, after = roles.columns["observation"], roles.columns.get("next_observation", ())
    ends = roles.columns.get("terminated", ())
    if not ends or len(here) != len(after):
        return columns
    over = columns.whole(ends[0])
    blocks, nulls = dict(columns.blocks), dict(columns.nulls)
    for own, name in zip(here, after, strict=True):
        gaps = _gaps(columns, name) if over.dtype.kind in "biuf" else None
        if gaps is None or not (gaps & (over != 0)).any():
            continue
        values = columns.whole(name).copy()
        filled = gaps & (over != 0)
        values[filled] = columns.whole(own)[filled]
        blocks[name] = [values]
        left = nulls.pop(name, gaps) & ~filled
        if left.any():
            nulls[name] = left
    return replace(columns, blocks=blocks, nulls=nulls)


def _categories(
    columns: Columns, name: str, values: Mapping[str, Array], gaps: Mapping[str, Array | None]
) -> Array:
    """All values that occur, sorted."""
    masks = {
        role: np.zeros(len(v), bool) if gaps[role] is None else gaps[role]
        for role, v in values.items()
    }
    known = [v[~np.asarray(masks[role])] for role, v in values.items()]
    found = np.unique(np.concatenate(known))
    if values["observation"].dtype.kind == "U" and _are_numbers(found, all_of_them=True):
        number_range(columns, name)
    if len(found) > MOST_CATEGORIES:
        raise DataError(
            f"{columns.source}: column {name!r} has {len(found):,} different values; expected at"
            f" most {MOST_CATEGORIES} categories: leave the column out, or merge rare ones"
        )
    return found


def _one_feature(
    name: str, values: Array, gaps: Array | None, categories: Array | None, indicated: bool
) -> dict[str, Array]:
    """The columns of one: a category each, or the numbers; then where it was missing."""
    none = np.zeros(len(values), dtype=bool) if gaps is None else gaps
    made: dict[str, Array] = {}
    if categories is None:
        numbers = values.astype(np.float64)
        if none.any():
            if none.all():
                raise DataError(f"column {name!r} has no value in any row; leave it out")
            numbers[none] = np.median(numbers[~none])
        made[name] = numbers
    else:
        for category in categories:
            made[f"{name}={category}"] = ((values == category) & ~none).astype(np.float32)
    if indicated:
        made[f"{name} missing"] = none.astype(np.float32)
    return made


def _carried(
    columns: Columns,
    roles: Roles,
    name: str,
    values: Mapping[str, Array],
    gaps: Mapping[str, Array | None],
) -> tuple[dict[str, Array], dict[str, Array | None]]:
    """Missing values take the last known one of their episode."""
    result = dict(values)
    here = gaps["observation"]
    if here is not None:
        order, starts = arrangement(columns, roles)
        places = np.arange(len(order))
        last = np.maximum.accumulate(np.where(here[order], -1, places))
        begin = np.maximum.accumulate(np.where(starts, places, 0))
        if (last < begin).any():
            row = int(order[np.argmax(last < begin)])
            raise DataError(
                f"{columns.place(name, row)} is missing, and nothing before it in its episode can"
                " be carried forward; expected a value in the first row, or missing='indicator'"
            )
        rows = np.empty_like(order)
        rows[order] = order[last]
        result["observation"] = values["observation"][rows]
    after = gaps.get("next_observation")
    if after is not None:
        following = values["next_observation"].copy()
        following[after] = result["observation"][after]
        result["next_observation"] = following
    return result, dict.fromkeys(values)


def _by_label(
    labels: Sequence[str],
    parts: Mapping[str, tuple[str, ...]],
    probabilities: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Columns with a number for every action, in the order of the labels they end in."""
    ordered = {
        role: _in_label_order(role, names, labels)
        if role in ("propensity", "next_probability") and len(names) > 1
        else names
        for role, names in parts.items()
    }
    return ordered, {
        policy: _in_label_order(policy, names, labels) for policy, names in probabilities.items()
    }


def _in_label_order(what: str, names: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    found = {
        label: [n for n in names if n == label or n.endswith((f".{label}", f"_{label}"))]
        for label in labels
    }
    if len(names) != len(labels) or any(len(columns) != 1 for columns in found.values()):
        raise DataError(
            f"{what}: the columns are {', '.join(map(repr, names))}; expected one for each action,"
            f" ending in {', '.join(map(repr, labels))}: rename them, or name all actions with"
            " action_labels=[...]"
        )
    return tuple(columns[0] for columns in found.values())


def recoded(columns: Columns, names: Sequence[str]) -> Columns:
    """Categories that are given as they were logged, as the features `ward=A` of these names.

    What is given is not missing, unless a feature says so.
    """
    blocks: dict[str, Sequence[Array]] = {}
    for name, given in columns.blocks.items():
        features = [feature for feature in names if feature.startswith(f"{name}=")]
        unsaid = [f"{name} missing"] if f"{name} missing" in names else []
        unsaid = [feature for feature in unsaid if feature not in columns.blocks]
        known = {feature: [np.zeros(columns.rows)] for feature in unsaid}
        if name in names or not features:
            blocks |= {name: given} | known
            continue
        values = columns.whole(name).astype(np.str_)
        categories = [feature.removeprefix(f"{name}=") for feature in features]
        unknown = ~np.isin(values, categories)
        if unknown.any():
            row = int(np.argmax(unknown))
            raise DataError(
                f"{name}: row {row} is {str(values[row])!r}; expected one of"
                f" {', '.join(map(repr, categories))}"
            )
        blocks |= {
            feature: [(values == category).astype(np.float64)]
            for feature, category in zip(features, categories, strict=True)
        } | known
    return Columns(columns.parts, blocks)


def label_codes(actions: Any, labels: Sequence[str]) -> Any:
    """Codes for actions that are given by their labels; anything else comes back as it is."""
    array = np.asarray(actions)
    texts = array.dtype.kind in "UO" and all(isinstance(item, str) for item in array.flat)
    if not labels or not texts:
        return actions
    unknown = [str(text) for text in array.flat if text not in labels]
    if unknown:
        raise DataError(
            f"action: expected one of {', '.join(map(repr, labels))}, got {unknown[0]!r}"
        )
    places = {label: code for code, label in enumerate(labels)}
    return np.asarray([places[text] for text in array.flat]).reshape(array.shape)
