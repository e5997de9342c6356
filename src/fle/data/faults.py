"""Faults of logged data: raised where they are found, or collected, so that all become known."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import final

from fle.errors import DataError


class Faults:
    """What is wrong with some data.

    >>> faults = Faults(collect=True)
    >>> with faults.caught():
    ...     raise DataError("row 3 is nan")
    >>> faults.found
    ['row 3 is nan']

    collect: keep faults in `found` and go on, where that makes sense; else the first is raised.
    """

    def __init__(self, *, collect: bool = False) -> None:
        self._collect = collect
        self.found: list[str] = []

    @contextmanager
    def caught(self) -> Iterator[None]:
        """A part of the work that others do not depend on."""
        try:
            yield
        except DataError as error:
            if not self._collect:
                raise
            if str(error) not in self.found:
                self.found.append(str(error))

    def require_none(self) -> None:
        """Go no further with faults that were collected: what follows would be their doing."""
        if self.found:
            raise FaultyDataError(self.found)


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
