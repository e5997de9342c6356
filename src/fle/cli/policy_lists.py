"""Many policies on a command line: a folder, a pattern, a table of names, columns by prefix."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from fle.cli.front import UsageError
from fle.cli.inputs import COLUMNS, named_policy
from fle.data import Dataset
from fle.data.readers.reading import open_table
from fle.errors import FLEError
from fle.files import toml_content
from fle.policies import Policy
from fle.screen import one_line

if TYPE_CHECKING:
    from fle.data.readers.columns import Source

SUFFIX, TABLE, WILD = ".onnx", ".toml", "*?["
MOST_POLICIES, LONGEST_NAME = 1_000, 100


class NamedPolicies(Mapping[str, Policy]):
    """Policies by name, each loaded when it is asked for: a file takes a process of its own."""

    def __init__(self, texts: Mapping[str, str], data: Dataset, options: argparse.Namespace):
        self._texts, self._data, self._options = texts, data, options

    def __getitem__(self, name: str) -> Policy:
        text = self._texts[name]
        try:
            return named_policy(text, self._data, self._options)
        except FLEError as error:
            if text in str(error):
                raise
            raise type(error)(f"{text}: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def listed_policies(given: Sequence[str], data: Sequence[str]) -> dict[str, str]:
    """By name, what every --policy of a comparison stands for.

    A folder is all ONNX files in it, a pattern those that fit it, named as the files are; a TOML
    file is a table `[policies]` of names; `columns:PREFIX*` is every group of probability columns
    of the log that fits. Everything else is one policy, named as it is written.
    """
    found: list[tuple[str, str]] = []
    for text in given:
        found += _listed(text, data)
    texts = [text for _, text in found]
    twice, times = Counter(texts).most_common(1)[0]
    if times > 1:
        raise UsageError(f"--policy: expected different policies, got {twice} twice")
    if not 2 <= len(found) <= MOST_POLICIES:
        raise UsageError(
            f"--policy: expected at least two policies, at most {MOST_POLICIES:,}, got"
            f" {len(found):,}; give one --policy for each, a folder of ONNX files, a pattern such"
            f" as 'policies/*{SUFFIX}', or a table names{TABLE}"
        )
    # Files of one name in several folders are told apart by their paths.
    times_named = Counter(name for name, _ in found)
    return {name if times_named[name] == 1 else text: text for name, text in found}


def _listed(text: str, data: Sequence[str]) -> list[tuple[str, str]]:
    kind, colon, prefix = text.partition(":")
    if kind == COLUMNS and colon and _is_pattern(prefix):
        return _of_columns(text, prefix, data)
    path = Path(text)
    if path.is_dir():
        files = sorted(str(file) for file in path.glob(f"*{SUFFIX}"))
        if not files:
            raise UsageError(f"--policy {text}: expected a folder of {SUFFIX} files, got none")
        return [(Path(file).stem, file) for file in files]
    if path.suffix.lower() == TABLE:
        return _of_table(path)
    if _is_pattern(text) and not path.exists():
        files = sorted(glob(text, recursive=True))
        if not files:
            raise UsageError(f"--policy {text}: expected a pattern of files, got none that fits")
        return [(Path(file).stem, file) for file in files]
    return [(text, text)]


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in WILD)


def _of_table(path: Path) -> list[tuple[str, str]]:
    """Names and policies of a file; paths are seen from its folder."""
    try:
        table = toml_content(path)
    except FLEError as error:
        raise UsageError(f"--policy {error}") from error
    policies = table.get("policies")
    form = '[policies] with lines such as old = "old.onnx"'
    if not isinstance(policies, dict) or not policies:
        raise UsageError(f"--policy {path}: expected {form}, got {', '.join(table) or 'nothing'}")
    for name, text in policies.items():
        if not isinstance(text, str):
            raise UsageError(f"--policy {path}: {name}: expected {form}, got {text!r}")
        if not name.strip() or len(name) > LONGEST_NAME or one_line(name) != name:
            raise UsageError(
                f"--policy {path}: expected names of one line, of at most {LONGEST_NAME} letters,"
                f" got {name[:LONGEST_NAME]!r}"
            )
    return [(name, _seen_from(path.parent, text)) for name, text in policies.items()]


def _seen_from(folder: Path, text: str) -> str:
    return str(folder / text) if text.lower().endswith(SUFFIX) else text


def _of_columns(text: str, pattern: str, data: Sequence[str]) -> list[tuple[str, str]]:
    """Groups of columns PREFIX.0, PREFIX.1, ... whose prefix fits."""
    table: Source | None = open_table(list(data) if len(data) > 1 else data[0])
    names = () if table is None else table.names
    groups = dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name)
    fitting = [prefix for prefix in groups if fnmatchcase(prefix, pattern)]
    if not fitting:
        shown = ", ".join(list(groups)[:10]) or "no columns NAME.0, NAME.1, ..."
        raise UsageError(
            f"--policy {text}: expected columns of the log that fit {pattern}.*, got {shown}"
        )
    return [(prefix, f"{COLUMNS}:{prefix}") for prefix in fitting]
