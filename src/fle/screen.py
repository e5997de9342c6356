"""What a terminal shows: the line that says what is being done, and columns of equal width."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Back to the start of the line, and nothing after it.
FRESH = "\r\x1b[K"


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
