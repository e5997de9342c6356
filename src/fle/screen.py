"""One line on the terminal that says what is being done, and goes when it is done."""

import sys
from collections.abc import Iterator
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
