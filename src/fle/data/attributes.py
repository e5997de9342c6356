"""How the attributes of a `Dataset` are set, once it is known that they are right."""

import copy
import warnings as python_warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fle.data.assembly import Assembled
from fle.errors import FLEWarning

if TYPE_CHECKING:
    from fle.data.dataset import Dataset

ROW_FIELDS = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminations",
    "truncations",
    "episodes",
    "steps",
    "weights",
    "next_probabilities",
    "source_rows",
)
OTHER_ARRAYS = ("initial_observations", "initial_probabilities")
FACTS = (
    "number_of_observations",
    "number_of_actions",
    "reward_names",
    "probability_names",
    "number_of_source_rows",
    "whole_episodes",
    "warnings",
    "notes",
)


def fill(data: "Dataset", assembled: Assembled) -> None:
    """Set every attribute from what was checked."""
    transitions = assembled.transitions
    values = {name: getattr(transitions, name) for name in ROW_FIELDS}
    values["whole_episodes"] = transitions.episodes is not None
    for name in (*OTHER_ARRAYS, *FACTS):
        if name not in values:
            values[name] = getattr(assembled, name)
    restore(data, values)


def restore(data: "Dataset", values: Mapping[str, Any]) -> None:
    """Set attributes that were checked before."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            # A view, so that the user's own array stays writable.
            value = value.view()
            value.setflags(write=False)
        object.__setattr__(data, name, value)


def changed(data: "Dataset", changes: Mapping[str, Any]) -> "Dataset":
    """A copy with other attributes, without checking and warning a second time."""
    other = copy.copy(data)
    restore(other, changes)
    return other


def emit_warnings(data: "Dataset", stacklevel: int) -> None:
    """Emit the reservations; `stacklevel` counts from the caller of this function."""
    for message in data.warnings:
        python_warnings.warn(message, FLEWarning, stacklevel=stacklevel + 1)
