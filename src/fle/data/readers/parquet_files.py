"""Parquet: one file or several shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fle.data.damage import optional_package, reading
from fle.data.readers.arrow_columns import columns_of_tables, leaf_names
from fle.data.readers.columns import Columns, Source, require_distinct
from fle.data.readers.shards import same_schema, top_level


def parquet_source(paths: Sequence[Path]) -> Source:
    """The columns of all shards, which must have one schema."""
    pq = optional_package("pyarrow.parquet", "reading Parquet")
    schemas: list[tuple[str, Any]] = []
    for path in paths:
        with reading(path, "Parquet"):
            schema = pq.read_schema(path)
            require_distinct(str(path), leaf_names(schema))
        schemas.append((str(path), schema))
    same_schema(schemas)

    def load(names: Sequence[str]) -> Columns:
        tables = []
        for path in paths:
            with (
                reading(path, "Parquet"),
                pq.ParquetFile(path, page_checksum_verification=True, memory_map=True) as file,
            ):
                tables.append((str(path), file.read(columns=top_level(schemas[0][1], names))))
        return columns_of_tables(tables, names)

    return Source(str(paths[0]), tuple(leaf_names(schemas[0][1])), load)
