"""What files must hold: plain values of a stated form, and the hashes of a manifest."""

import dataclasses
import hashlib
import hmac
import os
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from fle.errors import FLEError
from fle.files import (
    MOST_JSON,
    OWN_NAME,
    not_through_links,
    plain_json,
    read_json,
    require_plain_file,
    write_json,
)

# The hash of every other file of a directory; written last.
MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
# As many bytes cannot be guessed.
LEAST_KEY = 16
# By annotation, what may stand in a file: a whole number is a number too.
PLAIN_TYPES: dict[Any, Any] = {
    bool: bool,
    float: (int, float),
    int: int,
    str: str,
    type(None): type(None),
}
Key = bytes | str | os.PathLike[str]


def misfit(value: Any, hint: Any, where: str) -> str | None:
    """What keeps a plain value from being of an annotated type, in words; None if nothing does.

    A dataclass or a named tuple is an object with its fields, as is a mapping of names to types.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    fields = _fields(hint)
    if hint is Any:
        return None
    if fields is not None:
        return _object_misfit(value, fields, where)
    if origin in (types.UnionType, typing.Union):
        problems = [misfit(value, part, where) for part in parts]
        return None if None in problems else (problems[0] if len(parts) == 2 else problems[-1])
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            return _words(where, "a list", value)
        return _first(misfit(item, parts[0], f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            return _words(where, "an object", value)
        return _first(misfit(item, parts[1], f"{where}.{name}") for name, item in value.items())
    if origin is typing.Literal:
        allowed = " or ".join(map(repr, parts))
        return None if value in parts else _words(where, allowed, value)
    right = hint in PLAIN_TYPES and isinstance(value, PLAIN_TYPES[hint])
    if isinstance(value, bool) and hint is not bool:
        right = False
    return None if right else _words(where, getattr(hint, "__name__", str(hint)), value)


def require_form(value: Any, hint: Any, source: str) -> None:
    """Refuse a plain value that is not of an annotated type."""
    problem = misfit(value, hint, "")
    if problem is not None:
        raise FLEError(f"{source} is damaged: {problem.lstrip('.')}.")


def _fields(hint: Any) -> dict[str, tuple[Any, bool]] | None:
    """By the name of a field, its type, and whether it must be there."""
    if isinstance(hint, Mapping):
        return {name: (part, True) for name, part in hint.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        return {
            field.name: (
                hints[field.name],
                field.default is field.default_factory is dataclasses.MISSING,
            )
            for field in dataclasses.fields(hint)
        }
    named = getattr(hint, "_fields", None)
    hints = {} if named is None else typing.get_type_hints(hint)
    defaults = getattr(hint, "_field_defaults", {})
    return None if named is None else {name: (hints[name], name not in defaults) for name in named}


def _object_misfit(value: Any, fields: Mapping[str, tuple[Any, bool]], where: str) -> str | None:
    if not isinstance(value, dict):
        return _words(where, "an object", value)
    lacking = [name for name, (_, needed) in fields.items() if needed and name not in value]
    if lacking:
        return f"{where or 'it'} lacks {', '.join(lacking)}"
    unknown = [name for name in value if name not in fields]
    if unknown:
        return f"{where or 'it'} has {unknown[0]!r}, which nothing reads"
    return _first(misfit(item, fields[name][0], f"{where}.{name}") for name, item in value.items())


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _words(where: str, expected: str, value: Any) -> str:
    return f"{where}: expected {expected}, got {str(value)[:60]!r}"


class ManifestError(FLEError):
    """A file of a directory is not the one that was written there."""


def write_manifest(directory: Path, names: Iterable[str], key: Key | None = None) -> None:
    """Write down the SHA-256 of every file, signed by HMAC-SHA256 if there is a key."""
    files = {name: _stated(directory / name) for name in sorted(names)}
    content = {"format": MANIFEST_FORMAT, "files": files}
    signature = None if key is None else _signature(content, key)
    write_json(directory / MANIFEST, {**content, "signature": signature})


def check_manifest(
    directory: Path, *, key: Key | None = None, rewritten: Collection[str] = ()
) -> frozenset[str]:
    """The names of the files, after each was held against its hash, and all against the key.

    rewritten: files that are about to be written anew, and need not be what they were.
    """
    path = directory / MANIFEST
    manifest = read_json(path)
    files, signature = manifest.get("files"), manifest.get("signature")
    known = manifest.keys() == {"format", "files", "signature"}
    if not known or manifest["format"] != MANIFEST_FORMAT or not isinstance(files, dict):
        raise ManifestError(f"{path} is damaged, or of another version of fle.")
    if key is not None:
        _check_signature(path, {"format": MANIFEST_FORMAT, "files": files}, signature, key)
    for name, stated in files.items():
        if OWN_NAME.fullmatch(name) is None:
            raise ManifestError(f"{path} names {name[:60]!r}, which is no file of a run.")
        if name not in rewritten:
            _check_file(directory / name, stated)
    return frozenset(files)


def is_signed(directory: Path) -> bool:
    """Whether the manifest claims a signature."""
    path = directory / MANIFEST
    return path.exists() and read_json(path).get("signature") is not None


def _stated(path: Path) -> dict[str, Any]:
    with open(path, "rb", opener=not_through_links) as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": _digest(file)}


def _check_file(path: Path, stated: Any) -> None:
    if not path.exists():
        raise ManifestError(
            f"{path} is missing: {MANIFEST} lists it. Copy the directory as a whole."
        )
    require_plain_file(path)
    stated = stated if isinstance(stated, dict) else {}
    # The size first: what is far too large need not be read to be refused.
    if path.stat().st_size == stated.get("bytes"):
        with path.open("rb") as file:
            if _digest(file) == stated.get("sha256"):
                return
    raise ManifestError(
        f"{path} is not the file that was written: {MANIFEST} has another hash (sha256). Take all "
        "files from the same place, or repeat the call that wrote them; a run is made again from "
        'its checkpoints with resume="previous".'
    )


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while part := file.read(2**20):
        digest.update(part)
    return digest.hexdigest()


def _signature(content: Mapping[str, Any], key: Key) -> str:
    return hmac.new(_key_bytes(key), plain_json(content).encode(), "sha256").hexdigest()


def _check_signature(path: Path, content: Mapping[str, Any], found: Any, key: Key) -> None:
    expected = _signature(content, key)
    if found is None:
        raise ManifestError(f"{path} is not signed, and a key was given. Sign it, or give no key.")
    if not isinstance(found, str) or not hmac.compare_digest(expected.encode(), found.encode()):
        raise ManifestError(
            f"{path} was not signed with this key: the file was changed, or the key is another."
        )


def _key_bytes(key: Key) -> bytes:
    """The key itself, or the content of its file without the end of the line."""
    if not isinstance(key, bytes):
        path = Path(key)
        require_plain_file(path)
        if path.stat().st_size > MOST_JSON:
            raise FLEError(f"{path} is no key: it has {path.stat().st_size:,} bytes.")
        key = path.read_bytes().rstrip(b"\r\n")
    if len(key) < LEAST_KEY:
        raise FLEError(
            f"The key has {len(key)} bytes; expected at least {LEAST_KEY}, such as those of "
            "`openssl rand -hex 32`."
        )
    return key
