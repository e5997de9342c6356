"""Several files that are one table: the same columns in each, and no episode in two of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fle.data.readers.columns import Columns
from fle.data.transitions import Array
from fle.errors import DataError


def same_schema(schemas: Sequence[tuple[str, Any]]) -> None:
    """Refuse shards whose columns or types differ; the order of the columns may."""
    first_path, first = schemas[0]
    expected = dict(zip(first.names, first.types, strict=True))
    for path, schema in schemas[1:]:
        found = dict(zip(schema.names, schema.types, strict=True))
        for name in [*expected, *found]:
            if expected.get(name) != found.get(name):
                raise DataError(
                    f"{first_path} and {path} have different schemas: column {name!r} is"
                    f" {expected.get(name, 'missing')} in the first and"
                    f" {found.get(name, 'missing')} in the second; expected the same in all files"
                )


def top_level(schema: Any, names: Sequence[str]) -> list[str]:
    """The stored columns that hold `names`, some of which may be fields of a struct."""
    return [
        name
        for name in schema.names
        if any(wanted == name or wanted.startswith(f"{name}.") for wanted in names)
    ]


def refuse_reused_episodes(columns: Columns, ids: Array, steps: Array | None) -> None:
    """An id may come back in another file only to go on, which the steps must show."""
    if len(columns.parts) == 1:
        return
    bounds = np.cumsum([part.rows for part in columns.parts])
    files = np.searchsorted(bounds, np.arange(len(ids)), side="right")
    _, numbers = np.unique(ids, return_inverse=True)
    keys = (
        numbers
        if steps is None
        else np.unique(
            np.stack([numbers, np.unique(steps, return_inverse=True)[1]], axis=1),
            axis=0,
            return_inverse=True,
        )[1].reshape(-1)
    )
    lowest = np.full(keys.max() + 1, len(bounds))
    np.minimum.at(lowest, keys, files)
    reused = files != lowest[keys]
    if reused.any():
        row = int(np.argmax(reused))
        there, here = columns.parts[lowest[keys[row]]].name, columns.parts[files[row]].name
        which = "" if steps is None else f" with step {steps[row]}"
        raise DataError(
            f"episode {ids[row]}{which} is in {there} and again in {here}; expected each id in one"
            " file: make the ids distinct, or give a step column if the episode goes on"
        )
