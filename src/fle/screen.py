"""What terminals and notebooks show: what is being done, columns of equal width, and tables."""

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

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
