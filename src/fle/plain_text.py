"""Text for a terminal: columns of equal width, in which nothing can move the cursor."""

from collections.abc import Sequence


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
