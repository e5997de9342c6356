"""What terminals and notebooks show: what is being done, how far it is, and tables."""

import importlib
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol, TextIO

from fle.errors import FLEError

# Back to the start of the line, and nothing after it.
FRESH = "\r\x1b[K"
LEFT = "text-align:left;vertical-align:top"


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Say on a terminal what goes on inside; in a pipe nothing is said.

    Example: `with doing("reading logs.parquet"): ...`
    """
    show(f"{what} ...")
    try:
        yield
    finally:
        show("")


def show(line: str) -> None:
    """Draw a line over the one that is there."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{FRESH}{line}")
        sys.stderr.flush()


class Progress(Protocol):
    """Told what the fit is doing."""

    def start(self, stages: int, title: str) -> None:
        """The fit begins."""

    def advance(self, stage: int, loss: float) -> None:
        """A stage is finished, or a replicate, which has no loss (NaN); both count from 1."""

    def finish(self) -> None:
        """The fit is over, or was stopped."""


class Silent:
    """Says nothing."""

    def start(self, stages: int, title: str) -> None:
        """Nothing."""

    def advance(self, stage: int, loss: float) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


class Titled:
    """Another progress, whose titles say whose fit it is."""

    def __init__(self, name: str, progress: Progress):
        self._name, self._progress = name, progress

    def start(self, stages: int, title: str) -> None:
        """Pass it on under the name."""
        self._progress.start(stages, f"{self._name}: {title}")

    def advance(self, stage: int, loss: float) -> None:
        """Pass it on."""
        self._progress.advance(stage, loss)

    def finish(self) -> None:
        """Pass it on."""
        self._progress.finish()


class TerminalBar:
    """One line that is drawn over itself: stage, loss and time left."""

    def __init__(self, stream: TextIO | None = None, width: int = 24):
        self._stream = sys.stderr if stream is None else stream
        self._width = width
        self._stages = 1
        self._title = ""
        self._first: tuple[int, float] | None = None

    def start(self, stages: int, title: str) -> None:
        """Draw the empty bar."""
        self._stages, self._title, self._first = stages, title, None
        self._draw(0, "compiling")

    def advance(self, stage: int, loss: float) -> None:
        """Draw the bar up to this stage."""
        words = "" if math.isnan(loss) else f"loss {loss:.4g}  "
        now = time.monotonic()
        # What the first one took was mostly compilation, which does not come again.
        first, began = self._first = self._first or (stage, now)
        if stage > first:
            left = (now - began) / (stage - first) * (self._stages - stage)
            words += f"{_clock(left)} left"
        self._draw(stage, words)

    def finish(self) -> None:
        """Leave the line."""
        self._stream.write("\n")
        self._stream.flush()

    def _draw(self, stage: int, text: str) -> None:
        filled = round(self._width * stage / self._stages)
        bar = "█" * filled + "░" * (self._width - filled)
        line = f"{self._title} {bar} stage {stage}/{self._stages}  {text}"
        self._stream.write(f"{FRESH}{line}".rstrip())
        self._stream.flush()


def default_progress() -> Progress:
    """A bar on a terminal, nothing in a pipe."""
    return TerminalBar() if sys.stderr.isatty() else Silent()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"


def one_line(text: str) -> str:
    """Text that cannot move the cursor: names in a file may hold anything."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Columns of equal width, the first `left` of them flush left and the others right."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def labelled(rows: Sequence[tuple[str, str]]) -> list[str]:
    """A name and a text a line."""
    return aligned(rows, left=2)


class Tabular(ABC):
    """A value that is a table of named columns, abstract: who has one says what is in it."""

    @abstractmethod
    def columns(self) -> Mapping[str, Any]:
        """By name, arrays or lists of one length."""

    def to_pandas(self) -> Any:
        """The table as a pandas frame."""
        return _package("pandas").DataFrame(dict(self.columns()))

    def to_polars(self) -> Any:
        """The table as a polars frame."""
        return _package("polars").DataFrame(dict(self.columns()))

    def to_frame(self) -> Any:
        """The table as a frame of pandas, or of polars where there is no pandas."""
        try:
            return self.to_pandas()
        except FLEError:
            return self.to_polars()


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FLEError(f"A frame of {name} needs it: pip install {name}.") from error


def html_lines(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    """A name and a text a row."""
    cells = "".join(
        f"<tr><th style='{LEFT}'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td>"
        "</tr>"
        for name, text in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{cells}</table>"


def html_table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts under headings."""
    head = "".join(f"<th style='{LEFT}'>{escape(text)}</th>" for text in headings)
    body = "".join(
        "<tr>" + "".join(f"<td style='{LEFT}'>{escape(text)}</td>" for text in row) + "</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"
