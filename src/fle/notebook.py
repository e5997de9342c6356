"""What notebooks show of a value: a table in HTML, and the same as a pandas or polars frame."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fle.errors import FLEError

LEFT = "text-align:left;vertical-align:top"


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
