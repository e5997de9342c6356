"""A model's hyperparameters as plain values, for files."""

import dataclasses
from typing import Any

import numpy as np

import fle.models
from fle.errors import SettingsError
from fle.models.base import ModelSpec

PLAIN = (bool, int, float, str, type(None))


def spec_as_plain(spec: ModelSpec) -> dict[str, Any]:
    """The family's name and its hyperparameters; what is no plain value is named by its type."""
    return {"name": spec.name, **{name: as_plain(value) for name, value in _values(spec).items()}}


def require_plain(spec: ModelSpec) -> None:
    """Refuse a model whose hyperparameters cannot be written to a file."""
    if not dataclasses.is_dataclass(spec):
        raise SettingsError(
            f"A {type(spec).__name__} cannot be saved: expected hyperparameters in a dataclass."
        )
    for name, value in _values(spec).items():
        if not _is_plain(value):
            raise SettingsError(
                f"A {type(spec).__name__} cannot be saved: its {name} is a {type(value).__name__}, "
                "expected numbers, strings and tuples of them. Evaluate it without `out`."
            )


def spec_from_plain(plain: dict[str, Any], given: ModelSpec | None, source: str) -> ModelSpec:
    """The hyperparameters that were written; `given` where the package does not know the family."""
    if given is not None:
        if spec_as_plain(given) != plain:
            raise SettingsError(f"{source} was fitted with {plain}, not with {given}.")
        return given
    name = plain.get("name")
    family = known_specs().get(str(name))
    if family is None:
        raise SettingsError(
            f"{source} was fitted with a model {name!r} that is not part of fle. Give its "
            "hyperparameters: fle.load(directory, model=...)."
        )
    values = {key: _tuples(value) for key, value in plain.items() if key != "name"}
    expected = {field.name for field in dataclasses.fields(family)}
    if set(values) - expected:
        raise SettingsError(
            f"{source}: a {name} has no {', '.join(sorted(set(values) - expected))}; expected "
            f"{', '.join(sorted(expected))}."
        )
    return family(**values)


def known_specs() -> dict[str, type]:
    """The model families of the package, by name."""
    members: list[Any] = [getattr(fle.models, name) for name in fle.models.__all__]
    families = [member for member in members if isinstance(getattr(member, "name", None), str)]
    return {family.name: family for family in families}


def _values(spec: ModelSpec) -> dict[str, Any]:
    if not dataclasses.is_dataclass(spec):
        return {}
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, float | np.floating):
        return bool(np.isfinite(value))
    return isinstance(value, (*PLAIN, np.integer, np.bool_))


def as_plain(value: Any) -> Any:
    """Numbers, strings and lists of them, as JSON has them."""
    if isinstance(value, tuple | list):
        return [as_plain(item) for item in value]
    if not _is_plain(value):
        return f"a {type(value).__name__}"
    return value.item() if isinstance(value, np.generic) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
