"""The register of models: the files of `fle/models/families`, one model each.

A model is found by the name of its file, with dashes for underscores. Nothing is imported before a
model is asked for, so that the command line can list them at once. `register` adds a model of one's
own to this process.
"""

import difflib
import importlib
import inspect
import pkgutil
from typing import Any

import fle.models.families
from fle.errors import ModelError, SettingsError
from fle.models.specs import ModelSpec

_OWN: dict[str, type[ModelSpec]] = {}


def names() -> tuple[str, ...]:
    """The names of all models, in alphabetical order."""
    files = [found.name for found in pkgutil.iter_modules(fle.models.families.__path__)]
    return tuple(sorted({*(name.replace("_", "-") for name in files), *_OWN}))


def family(name: str) -> type[ModelSpec]:
    """The hyperparameters of the model of this name."""
    if name in _OWN:
        return _OWN[name]
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingsError(f"model must be one of auto, {', '.join(names())}; got {name!r}.{hint}")
    module = importlib.import_module(f"fle.models.families.{name.replace('-', '_')}")
    for found in vars(module).values():
        own = inspect.isclass(found) and found.__module__ == module.__name__
        if own and issubclass(found, ModelSpec) and found.name == name:
            return found
    raise ModelError(f"{module.__file__}: expected a ModelSpec with name = {name!r}, found none.")


def register(spec: type[ModelSpec]) -> type[ModelSpec]:
    """Make a model of one's own known by its name, in this process; may be used as a decorator."""
    _OWN[spec.name] = spec
    return spec


def spec_from_plain(plain: dict[str, Any], given: ModelSpec | None, source: str) -> ModelSpec:
    """The hyperparameters that were written; `given` where the register does not know the model."""
    if given is not None:
        if given.as_plain() != plain:
            raise SettingsError(f"{source} was fitted with {plain}, not with {given}.")
        return given
    name = str(plain.get("name"))
    if name not in names():
        raise SettingsError(
            f"{source} was fitted with a model {name!r} that is not part of fle. Give its "
            "hyperparameters, fle.load(directory, model=...), or register it before, "
            "fle.models.register(...)."
        )
    spec: Any = family(name)
    values = {key: _tuples(value) for key, value in plain.items() if key != "name"}
    expected = set(spec.__dataclass_fields__)
    if set(values) - expected:
        raise SettingsError(
            f"{source}: a {name} has no {', '.join(sorted(set(values) - expected))}; expected "
            f"{', '.join(sorted(expected))}."
        )
    built: ModelSpec = spec(**values)
    return built


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
