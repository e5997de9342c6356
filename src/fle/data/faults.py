"""Faults of logged data: raised where they are found, or collected, so that all become known."""

from collections.abc import Iterator
from contextlib import contextmanager

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
