"""Files that are either whole or not there, and a directory that has one writer at a time."""

import errno
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from fle.errors import FLEError, install

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_NAME = ".lock"
# What a temporary file is called: that of a file we write, and the process that writes it.
TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.tmp")
# Files of a run directory itself, or of one inside it; nothing hidden, nothing outside, and no name
# that a file system would refuse.
OWN_NAME = re.compile(r"([\w-][\w.-]{0,99}/)?[\w-][\w.-]{0,99}", re.ASCII)
# Bytes that are copied at a time.
PART = 2**20
# Windows forbids reading locked bytes, so those it locks lie far behind the process number.
LOCKED_BYTE = 1 << 20
# No JSON file of ours comes near.
MOST_JSON = 64 * 2**20
DEEPEST_JSON = 20
# What is silent for so long is not there; Arrow itself waits 100 seconds for S3, and 15 minutes for
# Google's store.
ANSWER_SECONDS = 60.0
# Nor any settings, or table of policies.
MOST_TOML = 2**20


class BusyError(FLEError):
    """Another process is writing to the directory."""


@contextmanager
def written_whole(path: Path, size: int) -> Iterator[IO[bytes]]:
    """An open file that takes the place of `path` once all of it is on the disk.

    size: how many bytes will be written, for whoever has to make room for them.
    """
    # Of this process alone: another may be writing the same file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb", opener=not_through_links) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise FLEError(_write_problem(path, size, error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """A copy of a folder of another file system, as pyarrow knows them, gone afterwards.

    Only what a run directory of ours holds is copied, and no more than there is room for; what is
    on this machine already stays where it is.

    Example: `with fetched("s3://bucket/run") as folder: ...`
    """
    shown = without_secrets(url)
    try:
        from pyarrow import ArrowException, fs
    except ImportError as error:
        raise FLEError(f"{shown}: other file systems need pyarrow: {install('files')}") from error
    with tempfile.TemporaryDirectory(prefix="fle-") as folder:
        try:
            system, path = reached(lambda: fs.FileSystem.from_uri(url))
            local = system.type_name == "local"
            if not local:
                _copy(system, path, fs.FileSelector(path, recursive=True), Path(folder))
            elif not Path(path).is_dir():
                raise FileNotFoundError(f"{path} is no folder")
        except (ArrowException, OSError, ValueError) as error:
            raise FLEError(
                f"{shown}: cannot be read ({said_of(url, error)}); check the address, which"
                " must be of a system that Arrow knows, such as s3://, gs:// or file://"
            ) from error
        yield Path(path) if local else Path(folder)


def reached(found: Callable[[], tuple[Any, str]]) -> tuple[Any, str]:
    """A file system and a path in it, once it has said what is there.

    Its first answer must come soon. What follows, such as long listings, may take its time.
    """
    answers: SimpleQueue[tuple[Any, str] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            system, path = found()
            system.get_file_info(path)
            answers.put((system, path))
        except Exception as error:
            answers.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_SECONDS)
    except Empty:
        raise OSError(f"no answer within {ANSWER_SECONDS:g} seconds") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _copy(system: Any, path: str, everything: Any, folder: Path) -> None:
    """The files whose names are those of a run directory, if there is room for them."""
    start = f"{path.rstrip('/')}/"
    files = {
        info.path.removeprefix(start): info
        for info in system.get_file_info(everything)
        if info.is_file and info.path.startswith(start)
    }
    files = {name: info for name, info in files.items() if OWN_NAME.fullmatch(name)}
    size, room = sum(info.size or 0 for info in files.values()), shutil.disk_usage(folder).free
    if size > room:
        raise OSError(f"{size:,} bytes, and {room:,} are free in {folder.parent}")
    for name, info in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with system.open_input_stream(info.path) as source, (folder / name).open("wb") as target:
            # No more than was said, whatever comes.
            left = info.size or 0
            while left and (part := source.read(min(left, PART))):
                target.write(part)
                left -= len(part)


def without_secrets(address: str) -> str:
    """An address as others may see it: keys stand before an @, or behind a question mark."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def said_of(address: str, error: Exception) -> str:
    """What another library says of an address, without its keys."""
    host, _, query = address.partition("?")
    keys = [query, *host.partition("://")[2].rpartition("@")[0].split(":")]
    text = " ".join(str(error).split()).replace(address, without_secrets(address))
    return type(error).__name__ if any(key and key in text for key in keys) else text[:200]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by new content that is already on the disk."""
    with written_whole(path, len(content)) as file:
        file.write(content)


def plain_json(value: Any) -> str:
    """JSON that is the same for equal values, to the last byte."""
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def require_ours(path: Path, beginning: bytes) -> None:
    """Refuse to write over a file that does not begin as ours do.

    Where a file goes may stand in a configuration file, which may be a stranger's.
    """
    if not path.exists():
        return
    require_plain_file(path)
    with path.open("rb") as file:
        if file.read(len(beginning)).lower() != beginning:
            raise FLEError(
                f"{path} is there already, and was not written by fle; name a new file, or delete "
                "it."
            )


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically."""
    write_atomically(path, plain_json(value).encode("utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an FLEError that names the file."""
    require_plain_file(path)
    try:
        if path.stat().st_size > MOST_JSON:
            raise FLEError(
                f"{path} has {path.stat().st_size:,} bytes; expected at most {MOST_JSON:,}. It was "
                "not written by fle."
            )
        value = parsed_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FLEError(f"{path} cannot be read: {error.strerror}.") from error
    except FLEError:
        raise
    except ValueError as error:
        raise FLEError(f"{path} is cut or damaged: expected JSON, {error}.") from error
    if not isinstance(value, dict):
        raise FLEError(f"{path}: expected a JSON object, got {type(value).__name__}.")
    return value


def parsed_json(text: str) -> Any:
    """The value of a text; a ValueError for what no file of ours holds."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct)
    except RecursionError as error:
        raise ValueError("not nested so deeply") from error
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST_JSON:
            raise ValueError(f"nested at most {DEEPEST_JSON} deep")
        held = [
            v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)
        ]
        level = [item for items in held for item in items]
    # Text that has no bytes, and numbers that are none, must not come further than this.
    plain_json(value).encode("utf-8")
    return value


def toml_content(path: Path) -> dict[str, Any]:
    """What a TOML file says, or an FLEError that names it."""
    try:
        size = path.stat().st_size
        require_plain_file(path)
        if size > MOST_TOML:
            raise FLEError(f"{path} has {size:,} bytes; expected at most {MOST_TOML:,}.")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    # Besides what is no TOML: numbers of thousands of digits, and brackets inside brackets.
    except (ValueError, RecursionError) as error:
        raise FLEError(f"{path}: not a TOML file: {error}") from error
    except OSError as error:
        raise FLEError(f"{path}: {error.strerror}; check the path") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values of one name, readers disagree which counts."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("with each name once")
    return value


def require_plain_file(path: Path) -> None:
    """Refuse what is not there, and pipes and devices, whose reading never ends."""
    if not path.is_file():
        what = "is not a plain file" if path.exists() else "is not there"
        raise FLEError(f"{path} cannot be read: it {what}.")


def require_own_directory(path: Path) -> None:
    """Refuse a directory of our own that is a link: what is written there would be elsewhere."""
    if path.is_symlink():
        raise FLEError(
            f"{path} is a symbolic link; expected a directory of our own. Somebody else put it "
            "there: remove it, or give another `out`."
        )


def make_directory(path: Path) -> None:
    """Create a directory, or say why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FLEError(
            f"The run directory {path} cannot be made: {error.strerror}. Give another `out`."
        ) from error


def remove_leftovers(directory: Path, written: str) -> None:
    """Remove what a killed writer left half-written, and nothing else.

    written: a pattern of the names of the files that are written there.
    """
    for temporary in directory.glob(".*.tmp"):
        found = TEMPORARY.fullmatch(temporary.name)
        if found is not None and re.fullmatch(written, found["name"]):
            temporary.unlink(missing_ok=True)


@contextmanager
def sole_writer(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, which the system lets go when the process ends in any way."""
    path = directory / LOCK_NAME
    try:
        file = open(path, "a+b", buffering=0, opener=not_through_links)  # noqa: SIM115
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FLEError(
                f"{path} is a symbolic link; expected a file of our own. Somebody else put it "
                "there: remove it, or give another `out`."
            ) from error
        raise FLEError(
            f"The run directory {directory} cannot be written: {error.strerror}. Give another "
            "`out`, or change its permissions."
        ) from error
    with file:
        _lock(file, path)
        # Only the message to a second writer needs the number: a full disk is reported elsewhere.
        with suppress(OSError):
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
        yield


def not_through_links(path: str, flags: int) -> int:
    """Open a file of our own: a link that somebody put in its place would lead to another."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        if sys.platform == "win32":
            file.seek(LOCKED_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            raise FLEError(
                f"{path} cannot be locked: {error.strerror}. Put the run directory on a file "
                "system that has locks."
            ) from error
        file.seek(0)
        holder = file.read().decode().strip() or "unknown"
        raise BusyError(
            f"Process {holder} is writing to the run directory {path.parent}; only one may at a "
            "time. Wait for it, stop it, or give another `out`."
        ) from error


def _sync_directory(directory: Path) -> None:
    """Make a rename survive a loss of power; Windows has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_problem(path: Path, size: int, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full: {path} needs {size:,} bytes. What was saved before is intact. "
            "Free some space and repeat the call; a run goes on from its last checkpoint."
        )
    return (
        f"{path} cannot be written: {error.strerror}. What was saved before is intact. Change its "
        "permissions or give another directory."
    )
