"""Arrays and plain facts in one safetensors file that carries its own hash."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from fle.errors import FLEError

Arrays = Mapping[str, np.ndarray]
Tree = TypeVar("Tree")
# One entry of metadata only: safetensors writes several in random order.
METADATA = "fle"
HEADER_LENGTH = 8


class DamagedFileError(FLEError):
    """A file is not what was written: it was cut, or its hash is another."""


class TensorFile(NamedTuple):
    """What a file holds, and the hash of all of it."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    sha256: str


def tensor_bytes(arrays: Arrays, facts: Mapping[str, Any]) -> tuple[bytes, str]:
    """The content of a file, and its hash. Equal arrays and facts give equal bytes."""
    ordered = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    text = json.dumps(facts, sort_keys=True, allow_nan=False)
    sha256 = _digest(ordered, text)
    metadata = {METADATA: json.dumps({"facts": text, "sha256": sha256}, sort_keys=True)}
    return safetensors.numpy.save(ordered, metadata), sha256


def read_tensors(path: Path) -> TensorFile:
    """Arrays and facts, after the hash was compared."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FLEError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        arrays = safetensors.numpy.load(content)
        length = int.from_bytes(content[:HEADER_LENGTH], "little")
        header = json.loads(content[HEADER_LENGTH : HEADER_LENGTH + length])
        stated = json.loads(header["__metadata__"][METADATA])
        text, expected = stated["facts"], stated["sha256"]
        facts = json.loads(text)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{path} is cut or damaged: of its {len(content):,} bytes no hash (sha256) can be read."
        ) from error
    found = _digest(arrays, text)
    if found != expected:
        raise DamagedFileError(
            f"{path} is damaged: its hash (sha256) should be {expected[:12]} and is {found[:12]}."
        )
    return TensorFile(arrays, facts, expected)


def _digest(arrays: Arrays, text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8"))
    for name in sorted(arrays):
        value = arrays[name]
        digest.update(f"\n{name} {value.dtype.str} {value.shape}\n".encode())
        digest.update(np.asarray(value, order="C").data)
    return digest.hexdigest()


def array_leaves(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their path in it, such as `model/network/weights/0`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves if _is_array(leaf)}


def with_arrays(tree: Tree, arrays: Arrays, source: str) -> Tree:
    """The tree with its arrays replaced by those of the same path, shape and type."""

    def replaced(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        name = _name(path)
        value = arrays.get(name)
        if value is None or value.shape != leaf.shape or value.dtype != leaf.dtype:
            found = "nothing" if value is None else f"{value.dtype} {value.shape}"
            raise FLEError(
                f"{source}: expected {name} to be {leaf.dtype} {leaf.shape}, found {found}. It was "
                "written by another model, or by another version of it."
            )
        return jnp.asarray(value) if isinstance(leaf, jax.Array) else value

    return jax.tree_util.tree_map_with_path(replaced, tree)


def stacked(trees: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """The arrays of equal trees, stacked along a new first axis."""
    leaves = [array_leaves(tree) for tree in trees]
    return {name: np.stack([one[name] for one in leaves]) for name in leaves[0]}


def unstacked(tree: Tree, arrays: Arrays, number: int, source: str) -> tuple[Tree, ...]:
    """The trees that were stacked; `tree` is one like them."""
    if any(len(value) != number for value in arrays.values()):
        raise FLEError(f"{source}: expected {number} models, found another number.")
    return tuple(
        with_arrays(tree, {name: value[i] for name, value in arrays.items()}, source)
        for i in range(number)
    )


def prefixed(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """The arrays under longer names."""
    return {f"{prefix}/{name}": value for name, value in arrays.items()}


def without_prefix(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """The arrays whose names begin with the prefix, under the rest of their names."""
    start = f"{prefix}/"
    return {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
