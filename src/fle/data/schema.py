"""Every field of a data set, once: its shape, its check, its words, and whether it is hashed.

Whatever checks, moves, hashes, caches or names the fields reads `FIELDS`. A new field that only
goes along with its rows is one line of `Record`, and an argument where users may give it.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from fle.data.passes import Array, row_blocks
from fle.data.validation import (
    Context,
    action_array,
    episode_array,
    flag_array,
    like_observations,
    observation_array,
    propensity_array,
    reward_array,
    step_array,
    weight_array,
)

Check: TypeAlias = Callable[[str, Any, Context], Array]

# The kind of numbers for each number of dimensions that an array may have.
SPACE = {1: "i", 2: "f"}
# Under which the metadata of a dataclass field keep its `Field`.
ENTRY = "entry"
WORD_OF_KIND = {"b": "flags", "i": "integers", "f": "floats"}


class Kind(Enum):
    """What a field holds."""

    ROW = "an array with one entry per row"
    ARRAY = "an array of a length of its own"
    FACT = "a plain value"


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a field is called in tables and files of arrays.

    column: the word in a table, which is also the keyword of `read`.
    known: names that are recognised unasked, as tables, Minari and D4RL write them.
    several: whether more than one column may belong to it, as `column.*`.
    required: whether there is no data set without it.
    """

    column: str
    known: tuple[str, ...] = ()
    several: bool = False
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Field:
    """How one field is treated.

    forms: the kind of numbers, by the number of dimensions.
    check: makes it of what a user gave; None if it is derived, never given by this name.
    identifies: whether two data sets that differ in it have different fingerprints.
    """

    kind: Kind
    forms: Mapping[int, str] = field(default_factory=dict)
    check: Check | None = None
    identifies: bool = True
    words: Words | None = None

    def require_form(self, name: str, array: Array) -> None:
        """Refuse an array that is not what the schema says."""
        if self.forms.get(array.ndim) != array.dtype.kind:
            expected = " or ".join(
                f"{WORD_OF_KIND[kind]} of {dimensions} dimensions"
                for dimensions, kind in self.forms.items()
            )
            raise ValueError(
                f"{name}: expected {expected}, got {array.dtype} of shape {array.shape}"
            )


def _alone(check: Callable[[str, Any], Array]) -> Check:
    """A check that needs to know nothing of the other fields."""
    return lambda name, values, _: check(name, values)


def _row(
    forms: Mapping[int, str], *, check: Check | None = None, words: Words | None = None
) -> dict[str, Field]:
    return {ENTRY: Field(kind=Kind.ROW, forms=forms, check=check, words=words)}


def _array(forms: Mapping[int, str], *, check: Check | None = None) -> dict[str, Field]:
    return {ENTRY: Field(kind=Kind.ARRAY, forms=forms, check=check)}


def _fact(*, identifies: bool = True) -> dict[str, Field]:
    return {ENTRY: Field(kind=Kind.FACT, identifies=identifies)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """The content of a data set, field by field; abstract: `Dataset` adds what one does with it.

    Its constructor takes checked values only, and is the one way in. Arrays become read-only.
    """

    observations: Array = field(
        metadata=_row(
            SPACE,
            check=observation_array,
            words=Words(
                column="observation",
                known=("observation", "observations"),
                several=True,
                required=True,
            ),
        )
    )
    actions: Array = field(
        metadata=_row(
            SPACE,
            check=action_array,
            words=Words(column="action", known=("action", "actions"), several=True, required=True),
        )
    )
    rewards: Array = field(
        metadata=_row(
            {2: "f"},
            check=_alone(reward_array),
            words=Words(column="reward", known=("reward", "rewards"), several=True, required=True),
        )
    )
    next_observations: Array = field(
        metadata=_row(
            SPACE,
            check=like_observations,
            words=Words(
                column="next_observation",
                known=("next_observation", "next_observations"),
                several=True,
            ),
        )
    )
    terminations: Array = field(
        metadata=_row(
            {1: "b"},
            check=_alone(flag_array),
            words=Words(column="terminated", known=("terminated", "terminations", "terminals")),
        )
    )
    truncations: Array = field(
        metadata=_row(
            {1: "b"},
            check=_alone(flag_array),
            words=Words(column="truncated", known=("truncated", "truncations", "timeouts")),
        )
    )
    episodes: Array | None = field(
        metadata=_row(
            {1: "i"},
            check=_alone(episode_array),
            words=Words(column="episode", known=("episode", "episodes")),
        )
    )
    steps: Array | None = field(
        metadata=_row(
            {1: "i"}, check=_alone(step_array), words=Words(column="step", known=("step", "steps"))
        )
    )
    # A column called so may mean anything, so it has to be named.
    weights: Array | None = field(
        metadata=_row({1: "f"}, check=_alone(weight_array), words=Words(column="weight"))
    )
    propensities: Array | None = field(
        metadata=_row(
            {1: "f", 2: "f"},
            check=propensity_array,
            words=Words(column="propensity", known=("propensity", "propensities"), several=True),
        )
    )
    next_probabilities: Array | None = field(
        metadata=_row(
            {3: "f"},
            words=Words(column="next_probability", known=("next_probability",), several=True),
        )
    )
    source_rows: Array = field(metadata=_row({1: "i"}))
    initial_observations: Array | None = field(metadata=_array(SPACE, check=like_observations))
    initial_probabilities: Array | None = field(metadata=_array({3: "f"}))
    number_of_observations: int | None = field(metadata=_fact())
    number_of_actions: int | None = field(metadata=_fact())
    reward_names: tuple[str, ...] = field(metadata=_fact())
    probability_names: tuple[str, ...] = field(metadata=_fact())
    number_of_source_rows: int = field(metadata=_fact())
    whole_episodes: bool = field(metadata=_fact())
    # What a column is called changes no number, so a run goes on under other names.
    observation_names: tuple[str, ...] = field(default=(), metadata=_fact(identifies=False))
    action_names: tuple[str, ...] = field(default=(), metadata=_fact(identifies=False))
    action_labels: tuple[str, ...] = field(default=(), metadata=_fact(identifies=False))
    warnings: tuple[str, ...] = field(metadata=_fact(identifies=False))
    notes: tuple[str, ...] = field(metadata=_fact(identifies=False))
    # The folder of a prepared log that it is the whole of, and what identifies it.
    prepared: tuple[str, ...] = field(default=(), metadata=_fact(identifies=False))

    def __post_init__(self) -> None:
        rows = len(self.observations)
        for name in (*ROW_FIELDS, *OTHER_ARRAYS):
            array = getattr(self, name)
            if array is None:
                continue
            FIELDS[name].require_form(name, array)
            if FIELDS[name].kind is Kind.ROW and len(array) != rows:
                raise ValueError(f"{name}: expected {rows} rows, got {len(array)}")
            # A view, so that the user's own array stays writable.
            view = array.view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)


FIELDS: dict[str, Field] = {entry.name: entry.metadata[ENTRY] for entry in fields(Record)}


def _of_kind(kind: Kind) -> tuple[str, ...]:
    return tuple(name for name, entry in FIELDS.items() if entry.kind is kind)


ROW_FIELDS, OTHER_ARRAYS, FACTS = _of_kind(Kind.ROW), _of_kind(Kind.ARRAY), _of_kind(Kind.FACT)
# By the word of the table.
WORDS = {entry.words.column: entry.words for entry in FIELDS.values() if entry.words is not None}
COLUMN_OF = {name: entry.words.column for name, entry in FIELDS.items() if entry.words is not None}


def fingerprint(record: Record) -> str:
    """SHA-256 over all that identifies the data, in hexadecimal."""
    digest = hashlib.sha256()
    for name in FACTS:
        if FIELDS[name].identifies:
            digest.update(f"{name}={getattr(record, name)!r};".encode())
    for name in (*ROW_FIELDS, *OTHER_ARRAYS):
        array = getattr(record, name)
        if array is None:
            digest.update(f"{name}=None;".encode())
            continue
        # Little-endian, so that every machine says the same.
        kind = array.dtype.newbyteorder("<")
        digest.update(f"{name}={kind.str}{array.shape};".encode())
        for block in row_blocks(len(array)):
            digest.update(np.ascontiguousarray(array[block], dtype=kind).data)
    return digest.hexdigest()
