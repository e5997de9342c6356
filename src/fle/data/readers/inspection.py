"""A log as it is, before anything is asked of it: its columns one by one, and every fault."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.data.dataset import Dataset
from fle.data.passes import Array
from fle.data.readers.coding import MOST_CATEGORIES, Wishes
from fle.data.readers.columns import Columns, Source, is_number, with_every_row
from fle.data.readers.names import find_roles
from fle.data.readers.reading import open_table, read_mapped
from fle.data.validation import Faults
from fle.errors import DataError, FaultyDataError

# The middle of a column, and how many of its widths away a value is suspicious.
CENTRAL = (0.01, 0.99)
FAR, FAR_BELOW_ZERO = 2.0, 0.5
# Whole numbers of so few values may be categories.
FEW_VALUES = 12
SHOWN_VALUES = 5
# Looked at for texts that are numbers.
MOST_TEXTS = 1_000


@dataclass(frozen=True)
class ColumnFacts:
    """One column of a table.

    role: the part it plays; empty if it is not used. kind: number, whole number, text, date, flag
    or list. span: its range or its values, in words. missing: rows without a value. suspicions:
    what a reader should look at.
    """

    name: str
    role: str
    kind: str
    span: str
    missing: int
    suspicions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Inspection:
    """All that is known of a log.

    columns: suspicious ones first; empty for sources that are no tables.
    data: None if there are faults. roles: the columns of each part, as far as they were found.
    """

    columns: tuple[ColumnFacts, ...]
    faults: tuple[str, ...]
    roles: Mapping[str, tuple[str, ...]]
    data: Dataset | None


def inspect(source: Any, mapped: Mapping[str, Any], wishes: Wishes) -> Inspection:
    """Read a log as `read` does, but tell all faults, and look at every column.

    mapped: columns, or None, by part, as `read` takes them. What keeps a file from being opened is
    raised, as `read` raises it.
    """
    table = open_table(source)
    faults = Faults(collect=True)
    data, found = None, []
    roles: Mapping[str, tuple[str, ...]] = {}
    facts: tuple[ColumnFacts, ...] = ()
    if table is not None:
        whole, parts = with_every_row(table, mapped)
        roles = _roles(whole, parts)
        facts = _columns(whole, roles)
    try:
        data = read_mapped(source, mapped, wishes, faults)
    except FaultyDataError as error:
        found = list(error.found)
    except DataError as error:
        found = [*faults.found, str(error)]
    return Inspection(facts, tuple(dict.fromkeys(found)), roles, data)


def _roles(table: Source, mapped: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    """Those that can be found, each for itself."""
    try:
        whole = find_roles(table.name, table.names, mapped, mapped["probability"], Faults())
        policies = {
            name if name == "probability" else f"policy {name}": columns
            for name, columns in whole.probabilities.items()
        }
        return {**whole.columns, **policies}
    except DataError:
        return _single_roles(table, mapped)


def _single_roles(table: Source, mapped: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for role, words in mapped.items():
        given = [words] if isinstance(words, str) else words
        if isinstance(given, list | tuple):
            known = tuple(name for name in given if name in table.names)
        else:
            known = tuple(n for n in table.names if n == role or n.startswith(f"{role}."))
        if known:
            found[role] = known
    return found


def _columns(table: Source, roles: Mapping[str, tuple[str, ...]]) -> tuple[ColumnFacts, ...]:
    part_of = {name: role for role, names in roles.items() for name in names}
    facts = []
    for name in table.names:
        try:
            facts.append(_facts(table.load([name]), name, part_of.get(name, "")))
        except DataError as error:
            # What reading says of it; a column that nobody uses may hold anything.
            said = (str(error).removeprefix(f"{table.name}: "),) if name in part_of else ()
            facts.append(ColumnFacts(name, part_of.get(name, ""), "other", "", 0, said))
    return tuple(sorted(facts, key=lambda column: not column.suspicions))


def _facts(columns: Columns, name: str, role: str) -> ColumnFacts:
    values, nulls = columns.whole(name), columns.nulls.get(name)
    gaps = np.zeros(len(values), dtype=bool) if nulls is None else nulls
    if values.dtype.kind == "f":
        gaps = gaps | np.isnan(values.reshape(len(values), -1)).any(axis=1)
    known, missing = values[~gaps], int(gaps.sum())
    suspicions = [f"{missing} of {len(values)} rows have no value"] if missing else []
    if len(known) == 0:
        return ColumnFacts(name, role, "empty", "", missing, tuple(suspicions))
    kind = {"U": "text", "M": "date", "b": "flag", "f": "number"}.get(
        values.dtype.kind, "whole number"
    )
    kind = "list" if values.ndim > 1 else kind
    if kind == "text":
        span, more = _text_facts(known, role)
    elif kind in ("date", "list", "flag"):
        span, more = f"{known.min()} to {known.max()}", []
    else:
        span, more = _number_facts(columns, name, values, gaps, role)
    return ColumnFacts(name, role, kind, span, missing, (*suspicions, *more))


def _text_facts(known: Array, role: str) -> tuple[str, list[str]]:
    texts, counts = np.unique(known, return_counts=True)
    common = texts[np.argsort(-counts, kind="stable")][:SHOWN_VALUES].tolist()
    shown = ", ".join(text[:20] for text in common)
    span = f"{len(texts):,} values: {shown}{', ...' if len(texts) > SHOWN_VALUES else ''}"
    said = []
    numbers = [is_number(text) for text in texts[:MOST_TEXTS].tolist()]
    if 2 * sum(numbers) >= len(numbers) and role != "episode":
        odd = [text for text, right in zip(texts.tolist(), numbers, strict=False) if not right]
        said.append(f"numbers stored as text{f', and {odd[0]!r}' if odd else ''}")
    plain = {" ".join(text.split()).lower() for text in texts.tolist()}
    if len(plain) < len(texts):
        said.append("some values differ in blanks or capitals only")
    if role == "observation" and len(texts) > MOST_CATEGORIES:
        said.append("too many values for categories")
    return span, said


def _number_facts(
    columns: Columns, name: str, values: Array, gaps: Array, role: str
) -> tuple[str, list[str]]:
    finite = ~gaps & np.isfinite(values.astype(np.float64))
    known, said = values[finite].astype(np.float64), []
    if not finite[~gaps].all():
        said.append("has infinite values")
    if len(known) == 0:
        return "", said
    low, high = known.min(), known.max()
    # No -0: what is added makes it a plain one.
    span = f"{low + 0.0:.6g} to {high + 0.0:.6g}"
    if role not in ("", "observation", "next_observation", "action", "reward"):
        return span, said
    said += _far_values(columns, name, values, finite)
    if low == high and role:
        said.append("always the same")
    distinct = np.unique(known)
    whole = role == "observation" and values.dtype.kind in "iu" and "." in name
    if whole and 2 < len(distinct) <= FEW_VALUES and low >= 0:
        said.append(f"{len(distinct)} whole numbers: if they are codes, name it with category=...")
    return span, said


def _far_values(columns: Columns, name: str, values: Array, finite: Array) -> list[str]:
    """The least and the greatest value, where they are far from all others."""
    known = values[finite].astype(np.float64)
    start, end = np.quantile(known, CENTRAL)
    width, rows = end - start, np.flatnonzero(finite)
    if width <= 0:
        return []
    said = []
    low, high = known.min(), known.max()
    lonely = start > 0 > low and start - low > FAR_BELOW_ZERO * width
    where = f"98% lie from {start:.4g} to {end:.4g}"
    if start - low > FAR * width or lonely:
        said.append(f"row {rows[known.argmin()]} is {low:.6g}; {where}")
    if high - end > FAR * width:
        said.append(f"row {rows[known.argmax()]} is {high:.6g}; {where}")
    return said
