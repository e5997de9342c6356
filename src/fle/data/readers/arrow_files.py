"""Arrow IPC files (Feather): one file or several shards."""

from collections.abc import Sequence
from pathlib import Path

from fle.data.damage import optional_package, reading
from fle.data.readers.arrow_columns import columns_of_tables, leaf_names
from fle.data.readers.columns import Columns, Source, require_distinct
from fle.data.readers.shards import same_schema


def arrow_source(paths: Sequence[Path]) -> Source:
    """The columns of all shards, which must have one schema."""
    pa = optional_package("pyarrow", "reading Arrow files")
    tables = []
    for path in paths:
        with reading(path, "Arrow"), pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            require_distinct(str(path), leaf_names(table.schema))
        tables.append((str(path), table))
    same_schema([(path, table.schema) for path, table in tables])

    def load(names: Sequence[str]) -> Columns:
        return columns_of_tables(tables, names)

    return Source(tables[0][0], tuple(leaf_names(tables[0][1].schema)), load)
