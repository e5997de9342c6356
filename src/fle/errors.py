"""Errors, warnings and remarks; each says what was expected, what was given, and how to go on."""

import difflib
import re
from collections.abc import Iterable
from importlib import metadata
from typing import final


class FLEError(ValueError):
    """Something in the data, the policy or the settings cannot be used as it is."""


class DataError(FLEError):
    """The logged data is not what it should be."""


class PolicyError(FLEError):
    """The target policy answered with something that is not an action or a probability."""


class SettingsError(FLEError):
    """A setting is outside its range, or two settings contradict each other."""


class CoverageError(FLEError):
    """The data shows too little of what the target policy does for a headline number."""


class ModelError(FLEError):
    """A model was asked for what it cannot give."""


class TrainingError(FLEError):
    """Training stopped because its loss is no longer a number."""


class FLEWarning(UserWarning):
    """The result stands, with the reservation that the message states."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that was probably meant."""
    close = difflib.get_close_matches(name, list(known), 1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def install(extra: str) -> str:
    """The command that brings the packages of an extra, wherever fle itself was installed from."""
    try:
        needed = metadata.requires("fle") or []
    except metadata.PackageNotFoundError:
        needed = []
    own = [line for line in needed if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in own]
    return f"pip install {' '.join(names)}" if names else f"pip install 'fle[{extra}]'"


class FaultyDataError(DataError):
    """All faults that were found, one a line; `found` has them one by one."""

    def __init__(self, found: list[str]) -> None:
        super().__init__("\n".join(found))
        self.found = tuple(found)


@final
class Remark(str):
    """What is said of rows, with the counts in it, so that parts of a log can be added up.

    >>> said = [Remark("{count} rows moved (first: row {row})", count=2, row=row) for row in (7, 1)]
    >>> added_up([(0, said[:1]), (100, said[1:])])
    ('4 rows moved (first: row 7)',)

    counts: by the names in `template`; `row` is the first row that is meant.
    """

    template: str
    counts: dict[str, int]

    def __new__(cls, template: str, **counts: int) -> "Remark":
        """The sentence."""
        self = super().__new__(cls, template.format(**counts))
        self.template, self.counts = template, counts
        return self


def added_up(parts: Iterable[tuple[int, Iterable[str]]]) -> tuple[str, ...]:
    """One remark for all that say the same of parts of a log; other sentences are left out.

    parts: how many rows come before each part, and what was said of it.
    """
    found: dict[str, dict[str, int]] = {}
    for first, remarks in parts:
        for remark in remarks:
            if isinstance(remark, Remark):
                shifted = {n: c + first if n == "row" else c for n, c in remark.counts.items()}
                known = found.setdefault(remark.template, {})
                for name, count in shifted.items():
                    known[name] = known.get(name, 0 if name != "row" else count)
                    known[name] += count if name != "row" else 0
    return tuple(str(Remark(template, **counts)) for template, counts in found.items())
