"""A plan as files: plain values in JSON, and arrays named by their hash, which plans share."""

import dataclasses
import hashlib
import math
import types
import typing
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fle.errors import FLEError, SettingsError
from fle.executors import HASH
from fle.files import (
    MOST_JSON,
    make_directory,
    parsed_json,
    plain_json,
    require_plain_file,
    write_atomically,
    written_whole,
)
from fle.fitting.checkpoints import DamagedFileError, stacked, unstacked
from fle.fitting.loop import blank_fit
from fle.fitting.plans import Plan
from fle.models.specs import ModelSpec, spec_from_plain

ARRAYS, PLANS = "arrays", "plans"
# Rows that are hashed together; arrays that a process has at hand; and smaller arrays are read
# at once.
BLOCK_BYTES, MOST_AT_HAND, SMALL = 2**24, 256, 2**16
Plain = Any
# By annotation, what a number may be.
NUMBERS = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (int, float, np.number),
}


class PlanWriter:
    """Writes plans to a folder, and each array once, however many plans have it."""

    def __init__(self, folder: Path):
        self._folder = folder
        # With the arrays themselves, so that no other takes the place of one in memory.
        self._known: dict[int, tuple[np.ndarray, str]] = {}

    def write(self, plan: Plan) -> str:
        """The hash that the plan is found by."""
        for name in (ARRAYS, PLANS):
            make_directory(self._folder / name)
        # Networks that estimated the logging policy have said all that is asked of them.
        logging = plan.logging and dataclasses.replace(plan.logging, model=None)
        visited = plan.occupancy
        visited = visited and dataclasses.replace(visited, told_by=None, visits=())
        if plan.large is not None:
            raise SettingsError(
                f"The log has {len(plan.large.data):,} rows, which are not written anew for every"
                " plan; leave out the executor."
            )
        fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        fields |= {
            "logging": logging,
            "occupancy": visited,
            "warm": stacked(plan.warm) if plan.warm else {},
        }
        content = plain_json(self._plain(fields)).encode()
        name = hashlib.sha256(content).hexdigest()
        path = self._folder / PLANS / f"{name}.json"
        if not path.exists():
            write_atomically(path, content)
        return name

    def _plain(self, value: Any) -> Plain:
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if isinstance(value, np.ndarray):
            # Rows that are all the same are stored once in memory, and so they are here.
            repeated = value.ndim > 0 and len(value) > 1 and value.strides[0] == 0
            kept = value[:1] if repeated else value
            return {"array": self._written(kept), "rows": len(value) if repeated else None}
        if isinstance(value, float | np.generic):
            return _plain_number(value)
        if isinstance(value, ModelSpec):
            return {"model": value.as_plain()}
        if isinstance(value, dict):
            return {"dict": [[key, self._plain(item)] for key, item in value.items()]}
        named = _fields_of(type(value))
        if named is not None:
            fields = {name: self._plain(getattr(value, name)) for name in named}
            return {"class": _name_of(type(value)), "fields": fields}
        if isinstance(value, tuple | list):
            return {type(value).__name__: [self._plain(item) for item in value]}
        raise SettingsError(
            f"A {type(value).__name__} cannot be written to a file, and so this plan cannot be "
            "carried out elsewhere; leave out the executor."
        )

    def _written(self, array: np.ndarray) -> str:
        known = self._known.get(id(array))
        if known is not None:
            return known[1]
        name = _hash_of(array)
        path = self._folder / ARRAYS / f"{name}.npy"
        if not path.exists():
            with written_whole(path, array.nbytes) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
        self._known[id(array)] = array, name
        return name


def read_plan(folder: Path, name: str) -> Plan:
    """The plan of a hash; its large arrays are mapped into memory, not read."""
    path = folder / PLANS / f"{name}.json"
    require_plain_file(path)
    if path.stat().st_size > MOST_JSON:
        raise DamagedFileError(f"{path} is too large for a plan. Repeat the call.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != name:
        raise DamagedFileError(f"{path} is damaged: its hash is another. Repeat the call.")
    try:
        fields = _value(parsed_json(content.decode()), folder)
        warm = fields.pop("warm")
        plan = Plan(**_checked(Plan, fields))
        if plan.large is not None:
            raise ValueError("it names a log of its own")
        if not isinstance(warm, dict):
            raise ValueError("warm is no dictionary of arrays")
        if not warm:
            return plan
        blank = blank_fit(plan.model, plan.recipe, plan.encoder.sizes, plan.provenance.seed)
        number = len(next(iter(warm.values())))
        return dataclasses.replace(plan, warm=unstacked(blank, warm, number, str(path)))
    except FLEError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DamagedFileError(
            f"{path} was written by another version of fle ({error}). Repeat the call."
        ) from error


def _value(plain: Plain, folder: Path) -> Any:
    if not isinstance(plain, dict):
        return plain
    if "array" in plain:
        array = _array(folder, plain["array"])
        rows = plain["rows"]
        return array if rows is None else np.broadcast_to(array, (rows, *array.shape[1:]))
    if "number" in plain:
        return _number(plain)
    if "model" in plain:
        return spec_from_plain(plain["model"], None, "The plan")
    if "dict" in plain:
        return {key: _value(item, folder) for key, item in plain["dict"]}
    if "class" in plain:
        values = {name: _value(item, folder) for name, item in plain["fields"].items()}
        return _object(plain["class"], values)
    kind = tuple if "tuple" in plain else list
    return kind(_value(item, folder) for item in plain[kind.__name__])


def _plain_number(value: Any) -> Plain:
    """JSON has neither the kinds of numbers that NumPy has, nor those that are not finite."""
    kind = value.dtype.str if isinstance(value, np.generic) else None
    item = value.item() if isinstance(value, np.generic) else value
    if kind is None and math.isfinite(item):
        return item
    return {"number": repr(item) if isinstance(item, float) else item, "kind": kind}


def _number(plain: Plain) -> Any:
    value, kind = plain["number"], plain["kind"]
    if kind is None:
        return float(value)
    return np.dtype(kind).type(value)


def _fields_of(kind: type) -> tuple[str, ...] | None:
    """Of a dataclass or a named tuple of ours."""
    if kind.__module__.partition(".")[0] != "fle":
        return None
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", None)


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _object(name: str, values: dict[str, Any]) -> Any:
    """A value of ours, as it was: what its constructor checks and changes was done before."""
    kind = _kinds().get(name)
    if kind is None or set(_fields_of(kind) or ()) != set(values):
        raise ValueError(f"{name} is no part of a plan, or has other fields")
    _checked(kind, values)
    if issubclass(kind, tuple):
        return kind(**values)
    made = object.__new__(kind)
    for field, value in values.items():
        object.__setattr__(made, field, value)
    return made


def _checked(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Each of the type that its field has: what is made from a file is asked as any other."""
    for name, value in values.items():
        if not _fits(value, _hints(kind)[name]):
            raise ValueError(f"{name} of {kind.__name__} cannot be a {type(value).__name__}")
    return values


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value may stand where an annotation is; what it does not tell is let through."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple and isinstance(value, tuple):
        each = (parts[0],) * len(value) if parts[-1:] == (...,) else parts
        return len(each) == len(value) and all(map(_fits, value, each))
    if origin is dict and isinstance(value, dict):
        return all(isinstance(key, str) and _fits(item, parts[1]) for key, item in value.items())
    kind = origin or hint
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and (kind is bool or not isinstance(value, bool))
    if getattr(kind, "_is_protocol", False):
        # Whatever it is, it is not written.
        return False
    told = kind in _kinds().values() or kind in (str, tuple, dict, np.ndarray, types.NoneType)
    return isinstance(value, kind) if told else True


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def _kinds() -> dict[str, type]:
    """The classes that a plan may be made of, by name: what its annotations lead to.

    A file could name any other class or module of ours, and importing is running.
    """
    found: dict[str, type] = {}
    waiting: list[Any] = [Plan]
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint)
        if not isinstance(hint, type) or _fields_of(hint) is None or _name_of(hint) in found:
            continue
        found[_name_of(hint)] = hint
        waiting += _hints(hint).values()
    return found


def _hash_of(array: np.ndarray) -> str:
    """Of kind, shape, order and content."""
    flipped = array.T if array.flags.f_contiguous and not array.flags.c_contiguous else array
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}{flipped is array}".encode())
    if flipped.ndim == 0:
        digest.update(flipped.tobytes())
        return digest.hexdigest()
    rows = max(1, BLOCK_BYTES // max(1, flipped[:1].nbytes))
    for start in range(0, len(flipped), rows):
        digest.update(np.ascontiguousarray(flipped[start : start + rows]).data)
    return digest.hexdigest()


def _array(folder: Path, name: str) -> np.ndarray:
    if not isinstance(name, str) or HASH.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no hash")
    return _loaded(folder / ARRAYS / f"{name}.npy", name)


@lru_cache(MOST_AT_HAND)
def _loaded(path: Path, name: str) -> np.ndarray:
    """One object for one array, as in the plan that was written."""
    require_plain_file(path)
    array = stored_array(path)
    if _hash_of(array) != name:
        raise DamagedFileError(f"{path} is damaged: its hash is another. Repeat the call.")
    array.setflags(write=False)
    return array


def stored_array(path: Path) -> np.ndarray:
    """The numbers of an npy file, mapped into memory where there are many.

    What its header says is held against the size of the file before anything is allocated.
    """
    with path.open("rb") as file:
        shape, order, dtype = _npy_header(file)
        start, size = file.tell(), math.prod(shape) * dtype.itemsize
        if dtype.hasobject or path.stat().st_size != start + size:
            raise ValueError(f"{path.name} is of another size, {shape}, or type than it says")
        if size <= SMALL:
            flat = np.frombuffer(file.read(), dtype)
            return flat.reshape(shape, order=order).copy(order=order)
    return np.asarray(np.memmap(path, dtype, "r", start, shape, order))


def _npy_header(file: Any) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"a file of version {version}")
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, "F" if by_column else "C", dtype
