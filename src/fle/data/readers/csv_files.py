"""CSV, with a header line: one file or several shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fle.data.damage import optional_package, reading
from fle.data.readers.arrow_columns import columns_of_tables
from fle.data.readers.columns import Columns, Source, require_distinct
from fle.errors import DataError

# Types are inferred from the first block, so one block should hold the whole file.
LARGEST_BLOCK = 2**30


def csv_source(paths: Sequence[Path]) -> Source:
    """The columns of all shards; whole numbers in one and fractions in another are one column."""
    tables = [(str(path), _read(path)) for path in paths]
    first_path, first = tables[0]
    for path, table in tables[1:]:
        if set(table.column_names) != set(first.column_names):
            odd = sorted(set(table.column_names) ^ set(first.column_names))
            raise DataError(
                f"{first_path} and {path} have different schemas: only one of them has"
                f" {', '.join(map(repr, odd))}; expected the same columns in all files"
            )

    def load(names: Sequence[str]) -> Columns:
        return columns_of_tables(tables, names)

    return Source(first_path, tuple(first.column_names), load)


def _read(path: Path) -> Any:
    csv = optional_package("pyarrow.csv", "reading CSV")
    with reading(path, "CSV"):
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty: expected a header line and rows")
        block = min(max(path.stat().st_size + 1, 2**20), LARGEST_BLOCK)
        table = csv.read_csv(path, read_options=csv.ReadOptions(block_size=block))
        require_distinct(str(path), table.column_names)
    return table
