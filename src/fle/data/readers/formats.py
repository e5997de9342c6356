"""Files of other people: which a name stands for, how they are written, what damage becomes."""

import csv
import difflib
import glob
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np

from fle.data.passes import Array
from fle.errors import DataError, FLEError, install
from fle.files import reached, said_of, without_secrets

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".npz": "npz",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".arrow": "arrow",
    ".feather": "arrow",
}
# What pandas reads, and by what.
BY_PANDAS = {
    ".xlsx": "read_excel",
    ".xls": "read_excel",
    ".ods": "read_excel",
    ".json": "read_json",
    ".sas7bdat": "read_sas",
    ".dta": "read_stata",
    ".sav": "read_spss",
}
MAGIC = {b"PAR1": "parquet", b"\x89HDF": "hdf5", b"PK\x03\x04": "npz", b"ARRO": "arrow"}
SHARDED = ("parquet", "csv", "arrow")
# What a prepared log says of itself; there from its beginning on.
PREPARED = "prepared.json"
# Of an object store, or another file system that Arrow knows.
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.DOTALL)
SEPARATORS = (",", ";", "\t", "|")
# How pyarrow is told of dates such as 31.12.2024, which are read the same way everywhere.
DOTTED = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")
COMMA_NUMBER = r"^[-+]?[0-9]+(,[0-9]+)?([eE][-+]?[0-9]+)?$"
_DOTTED_DATE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?: (\d{2}:\d{2}(?::\d{2})?))?")
MINARI_ID = re.compile(r"[\w.-]+(/[\w.-]+)*-v\d+")


@final
@dataclass(frozen=True)
class RemoteFile:
    """A file of one of Arrow's file systems.

    address: what errors call it: without what stands behind a question mark, as keys may.
    """

    system: Any
    path: str
    address: str

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]

    def __str__(self) -> str:
        return self.address


@dataclass(frozen=True)
class Files:
    """Files of one format, or a folder that is one data set."""

    kind: str
    paths: tuple[Any, ...]


def optional_package(module: str, purpose: str) -> ModuleType:
    """A package of the extra `files`, imported now that it is needed."""
    # Asked for every column of every part of a log, where to import again takes its time.
    known = sys.modules.get(module)
    if known is not None:
        return known
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{purpose} needs {module.split('.')[0]}, which is not installed;"
            f" run: {install('files')}"
        ) from error


@contextmanager
def reading(path: Path | RemoteFile | str, kind: str) -> Iterator[None]:
    """Whatever a parser makes of bytes it does not understand becomes one kind of error."""
    try:
        yield
    except FLEError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except PermissionError as error:
        raise DataError(f"{path}: may not be read; check its permissions") from error
    # A parser of damaged bytes may raise anything, so nothing narrower would do.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"{path}: cannot be read as {kind} ({reason}). The file is torn, empty or of another"
            " format: copy or export it again"
        ) from error


def find_files(given: str | Path | Sequence[str | Path]) -> Files:
    """The files behind what the user named."""
    if not isinstance(given, str | Path):
        if not given:
            raise DataError("the list of files is empty; expected at least one")
        return _of_one_kind([file for part in given for file in _named(part)])
    if isinstance(given, str) and ADDRESS.fullmatch(given):
        return _of_one_kind(_remote(given))
    path = Path(given)
    if path.is_dir():
        return _folder(path)
    if path.exists():
        return Files(_kind(path), (path,))
    text = str(given)
    if glob.has_magic(text):
        matches = [Path(match) for match in sorted(glob.glob(text, recursive=True))]
        files = [match for match in matches if match.is_file()]
        if not files:
            raise DataError(f"{text}: no file matches this pattern; check the path")
        return _of_one_kind(files)
    if MINARI_ID.fullmatch(text):
        return _minari(text)
    with reading(path, "a file"):
        path.stat()
    raise DataError(f"{path}: expected a file or a folder, got neither; check the path")


def _named(given: str | Path) -> Sequence[Any]:
    """The files of one entry of a list."""
    if isinstance(given, str) and ADDRESS.fullmatch(given):
        return _remote(given)
    return [Path(given)]


def _remote(address: str) -> list[RemoteFile]:
    """The files behind an address: one, those of a folder, or those that a pattern matches."""
    optional_package("pyarrow", f"reading {address.partition('://')[0]} addresses")
    from pyarrow import ArrowException, fs

    shown = without_secrets(address)
    whole, _, settings = address.partition("?")
    root = whole.partition("*")[0].rpartition("/")[0] if "*" in whole else whole
    rest = whole[len(root) :]
    scheme = shown.partition("://")[0]
    try:
        place = f"{root}?{settings}" if settings else root
        system, path = reached(lambda: fs.FileSystem.from_uri(place))
        if "*" not in shown and system.get_file_info(path).is_file:
            return [RemoteFile(system, path, shown)]
        infos = system.get_file_info(fs.FileSelector(path, recursive=True))
    except (ArrowException, OSError, ValueError) as error:
        reason = said_of(address, error)
        raise DataError(f"{shown}: cannot be read ({reason}); check the address") from error
    files = sorted(info.path for info in infos if info.is_file)
    pattern = f"{path}{rest}"
    found = [
        RemoteFile(system, name, f"{scheme}://{name.lstrip('/')}")
        for name in files
        if (fnmatchcase(name, pattern) if "*" in shown else _suffix(name) in SUFFIXES)
        and not name.rpartition("/")[2].startswith((".", "_"))
    ]
    if not found:
        raise DataError(f"{shown}: no data files there; check the address")
    return found


def _folder(folder: Path) -> Files:
    if is_prepared(folder):
        return Files("prepared", (folder,))
    minari = minari_folder(folder)
    if minari is not None:
        return Files("minari", (minari,))
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and _suffix(path.name) in SUFFIXES
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )
    if not found:
        raise DataError(f"{folder}: no data files; expected {', '.join(SUFFIXES)}, or Minari's")
    return _of_one_kind(found)


def is_prepared(folder: Path) -> bool:
    """Whether `fle prepare` has written there, if only the beginning."""
    return (folder / PREPARED).is_file()


def _of_one_kind(paths: Sequence[Any]) -> Files:
    kinds = {_kind(path): path for path in paths}
    if len(kinds) > 1:
        first, second = list(kinds.values())[:2]
        raise DataError(
            f"{first} and {second} have different formats; expected one format: name the files,"
            " for example with a pattern such as folder/*.parquet"
        )
    kind = next(iter(kinds))
    if len(paths) > 1 and kind not in SHARDED:
        raise DataError(
            f"{paths[0]} and {paths[1]}: several {kind} files cannot be read as one; expected one"
            " file, or shards in Parquet or CSV"
        )
    remote = [path for path in paths if isinstance(path, RemoteFile)]
    if remote and kinds.keys() != {"parquet"}:
        raise DataError(f"{remote[0]}: expected Parquet; other formats are read from a disk alone")
    if len(set(map(str, paths))) < len(paths):
        raise DataError(f"{paths[0]}: a file is listed twice; expected each once")
    return Files(kind, tuple(paths))


def _kind(path: Any) -> str:
    """By the name, or else by the first bytes."""
    suffix = _suffix(path.name)
    if suffix in SUFFIXES or isinstance(path, RemoteFile):
        return SUFFIXES.get(suffix, "parquet")
    if suffix in BY_PANDAS:
        raise DataError(
            f"{path}: fle reads no {suffix} files; save it as CSV or Parquet, or give the"
            f" frame: fle.read(pandas.{BY_PANDAS[suffix]}({path.name!r}), ...)"
        )
    with reading(path, "a file"), path.open("rb") as file:
        head = file.read(4)
    if head in MAGIC:
        return MAGIC[head]
    raise DataError(f"{path}: unknown format; expected one of {', '.join(SUFFIXES)}")


def _suffix(name: str) -> str:
    name = name.lower()
    return ".csv.gz" if name.endswith(".csv.gz") else Path(name).suffix


def minari_root() -> Path:
    """Where Minari keeps its data sets."""
    given = os.environ.get("MINARI_DATASETS_PATH")
    return Path(given) if given else Path.home() / ".minari" / "datasets"


def minari_folder(folder: Path) -> Path | None:
    """The folder with the metadata and the episodes, if this is a Minari data set."""
    for candidate in (folder / "data", folder):
        if (candidate / "metadata.json").is_file():
            return candidate
    return None


def _minari(name: str) -> Files:
    root = minari_root()
    folder = minari_folder(root / name)
    if folder is not None:
        return Files("minari", (folder,))
    present = [
        str(path.parent.parent.relative_to(root).as_posix())
        for path in root.glob("**/data/metadata.json")
    ]
    close = difflib.get_close_matches(name, present, n=3)
    hint = f"nearest: {', '.join(close)}" if close else f"run: minari download {name}"
    raise DataError(f"{name}: no such file, and no such Minari data set in {root}; {hint}")


def separator(head: str) -> str:
    """What separates the columns: it splits the header most often, and the next line as often."""
    lines = head.splitlines()[:2]
    cells = {
        mark: [len(next(csv.reader([line], delimiter=mark))) for line in lines if line]
        for mark in SEPARATORS
    }
    fitting = [mark for mark, counts in cells.items() if len(set(counts)) == 1]
    best = max(fitting, key=lambda mark: cells[mark][0], default=SEPARATORS[0])
    return best if cells[best] and cells[best][0] > 1 else SEPARATORS[0]


def dialect_note(path: Path, mark: str, *, comma_decimals: bool) -> tuple[str, ...]:
    """What a reader should know of a file that is not as most are."""
    if mark == ",":
        return ()
    decimals = ", and a comma is taken for the decimal point" if comma_decimals else ""
    return (f"{path.name}: its columns are separated by {mark!r}{decimals}",)


def has_comma_decimals(cells: Array) -> bool:
    """Whether all are numbers, some of them with a decimal comma."""
    texts = np.unique(cells).tolist()
    whole = all(re.match(COMMA_NUMBER, text) for text in texts)
    return whole and any("," in text for text in texts)


def with_points(cells: Array) -> Array:
    """Decimal commas as points."""
    return np.char.replace(cells, ",", ".")


def iso_dates(cells: Sequence[str]) -> Array | None:
    """Dates such as 31.12.2024 08:15 as ISO 8601 has them; None if some are no such dates."""
    found = [match for match in map(_DOTTED_DATE.fullmatch, cells) if match]
    if not found or len(found) < len(cells):
        return None
    return np.array([_iso_date(*match.groups()) for match in found])


def _iso_date(day: str, month: str, year: str, clock: str | None) -> str:
    date = f"{year}-{int(month):02}-{int(day):02}"
    return date if clock is None else f"{date}T{clock}"
