"""Checks that all hyperparameters have in common."""

import dataclasses
import math
from typing import Any

from fle.errors import ModelError, SettingsError

# Where one is not enough.
LEAST = {"atoms": 2, "knots": 2}


class Hyperparameters:
    """Base of the models' frozen dataclasses: counts and widths from 1 up, shares from 0 up."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            for number in value if isinstance(value, tuple | list) else (value,):
                self._check(field.name, number)

    def _check(self, name: str, number: Any) -> None:
        least = LEAST.get(name, 1) if isinstance(number, int) else 0
        wrong = isinstance(number, int | float) and not least <= number < math.inf
        if wrong or isinstance(number, bool):
            kind = "a whole number" if isinstance(number, int) else "a number"
            raise SettingsError(
                f"{type(self).__name__}: {name} must be {kind} of at least {least}, got {number}."
            )


def require_scalar(model: str, returns: int) -> None:
    """Refuse vector returns where a model has no meaning for them."""
    if returns != 1:
        raise ModelError(
            f"{model} models scalar returns only, and these returns have {returns} coordinates. "
            "Use GMM, Histogram or Categorical, or evaluate one reward at a time."
        )
