"""All that becomes an Arrow table: Parquet, CSV and Arrow files, in shards or not, and frames.

Errors name the file, the column and the row. pandas and polars are not imported here.
"""

import gzip
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fle.data.passes import Array, require_memory
from fle.data.readers.arrays import plain_csv_source
from fle.data.readers.columns import (
    Columns,
    Part,
    Size,
    Source,
    cell,
    require_distinct,
)
from fle.data.readers.formats import (
    COMMA_NUMBER,
    DOTTED,
    RemoteFile,
    dialect_note,
    optional_package,
    reading,
    separator,
)
from fle.data.validation import numeric_array
from fle.errors import DataError

# Types are inferred from the first block, so one block should hold the whole file.
LARGEST_BLOCK = 2**30
# Bytes of a number in memory, and of the least text of one with its comma.
NUMBER, SHORTEST = 8, 2
# What gzip makes of a text, at most.
MOST_PACKED = 20


@contextmanager
def parquet_file(path: Path | RemoteFile) -> Iterator[Any]:
    """A file on a disk or of another file system, as pyarrow opens it."""
    pq = optional_package("pyarrow.parquet", "reading Parquet")
    with reading(path, "Parquet"):
        remote = isinstance(path, RemoteFile)
        opened = path.system.open_input_file(path.path) if isinstance(path, RemoteFile) else path
        with pq.ParquetFile(
            opened, page_checksum_verification=True, memory_map=not remote, pre_buffer=remote
        ) as file:
            yield file


def parquet_schema(paths: Sequence[Path | RemoteFile]) -> Any:
    """Of all shards, which must have one."""
    schemas: list[tuple[str, Any]] = []
    for path in paths:
        with parquet_file(path) as file:
            require_distinct(str(path), leaf_names(file.schema_arrow))
            schemas.append((str(path), file.schema_arrow))
    _require_one_schema(schemas)
    return schemas[0][1]


def group_sizes(metadata: Any, columns: Sequence[str]) -> list[int]:
    """Bytes of each row group of a file in memory, of the columns at the top that are read.

    A column of one value is nothing in the file, and eight bytes a number in memory; a row may hold
    a list of any length.
    """
    wanted, paths = (
        set(columns),
        [metadata.schema.column(j).path for j in range(metadata.num_columns)],
    )
    read = [j for j, path in enumerate(paths) if not wanted.isdisjoint(_beginnings(path))]
    sizes = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        parts = [group.column(j) for j in read]
        sizes.append(
            sum(max(part.total_uncompressed_size, NUMBER * part.num_values) for part in parts)
        )
    return sizes


def _beginnings(name: str) -> set[str]:
    """Every beginning of a name that a dot ends, and the name."""
    return {name, *(name[:place] for place, letter in enumerate(name) if letter == ".")}


def parquet_source(paths: Sequence[Path | RemoteFile]) -> Source:
    """The columns of all shards, which must have one schema."""
    schema = parquet_schema(paths)

    def load(names: Sequence[str]) -> Columns:
        tables = []
        for path in paths:
            with parquet_file(path) as file:
                tables.append((str(path), file.read(columns=top_level(schema, names))))
        return columns_of(tables, names)

    def size(names: Sequence[str]) -> Size:
        rows = unpacked = 0
        for path in paths:
            with parquet_file(path) as file:
                rows += file.metadata.num_rows
                unpacked += sum(group_sizes(file.metadata, top_level(schema, names)))
        return Size(rows, unpacked)

    return Source(str(paths[0]), tuple(leaf_names(schema)), load, size=size)


def csv_source(paths: Sequence[Path]) -> Source:
    """The columns of all shards; whole numbers in one and fractions in another are one column."""
    if find_spec("pyarrow") is None:
        return plain_csv_source(paths)
    opened = [_read_csv(path) for path in paths]
    tables = [(str(path), table) for path, (table, _) in zip(paths, opened, strict=True)]
    first_path, first = tables[0]
    for path, table in tables[1:]:
        if set(table.column_names) != set(first.column_names):
            odd = sorted(set(table.column_names) ^ set(first.column_names))
            raise DataError(
                f"{first_path} and {path} have different schemas: only one of them has"
                f" {', '.join(map(repr, odd))}; expected the same columns in all files"
            )
    return replace(_tables_source(tables), notes=opened[0][1])


def _read_csv(path: Path) -> tuple[Any, tuple[str, ...]]:
    """The table, and a note if it is written in a way of its own."""
    csv = optional_package("pyarrow.csv", "reading CSV")
    with reading(path, "CSV"):
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty: expected a header line and rows")
        text = path.stat().st_size * (MOST_PACKED if path.suffix == ".gz" else 1)
        with path.open("rb") as file:
            head = file.read(2**20)
        width = max(len(head.split(b"\n", 2)[min(1, head.count(b"\n"))]), 1)
        # As text, and then as numbers.
        require_memory(text * (1 + NUMBER / SHORTEST), str(path), text // width)
        block = min(max(path.stat().st_size + 1, 2**20), LARGEST_BLOCK)
        # An empty cell of a column of text is no value either.
        dates = [csv.ISO8601, *DOTTED]
        convert = csv.ConvertOptions(strings_can_be_null=True, timestamp_parsers=dates)
        blocks = csv.ReadOptions(block_size=block)
        mark = separator(_unpacked_head(path))
        parse = csv.ParseOptions(delimiter=mark)
        table = csv.read_csv(
            path, read_options=blocks, convert_options=convert, parse_options=parse
        )
        commas = mark != "," and _has_comma_decimals(table)
        if commas:
            convert.decimal_point = ","
            table = csv.read_csv(
                path, read_options=blocks, convert_options=convert, parse_options=parse
            )
        require_distinct(str(path), table.column_names)
    return table, dialect_note(path, mark, comma_decimals=commas)


def _unpacked_head(path: Path) -> str:
    """The first lines, as text."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        head: bytes = file.read(2**16)
    return head.decode("utf-8-sig", errors="replace")


def _has_comma_decimals(table: Any) -> bool:
    """Whether some column is numbers with decimal commas throughout."""
    pa = optional_package("pyarrow", "reading CSV")
    compute = optional_package("pyarrow.compute", "reading CSV")
    for column in table.columns:
        if pa.types.is_string(column.type) and column.null_count < len(column):
            numbers = compute.all(compute.match_substring_regex(column, COMMA_NUMBER)).as_py()
            if numbers and compute.any(compute.match_substring(column, ",")).as_py():
                return True
    return False


def arrow_source(paths: Sequence[Path]) -> Source:
    """The columns of all shards, which must have one schema."""
    pa = optional_package("pyarrow", "reading Arrow files")
    tables = []
    for path in paths:
        with reading(path, "Arrow"), pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            require_distinct(str(path), leaf_names(table.schema))
        tables.append((str(path), table))
    _require_one_schema([(path, table.schema) for path, table in tables])
    return _tables_source(tables)


def frame_source(given: Any) -> Source | None:
    """The columns of a frame, or None if the object is not one."""
    # An object of a library that was never imported cannot exist.
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    pyarrow = sys.modules.get("pyarrow")
    if pandas is not None and isinstance(given, pandas.DataFrame):
        return _pandas_source(given)
    if polars is not None and isinstance(given, polars.LazyFrame):
        given = given.collect()
    if polars is not None and isinstance(given, polars.DataFrame):
        optional_package("pyarrow", "reading polars frames")
        return _frame_source("the polars frame", _polars_table(given))
    if pyarrow is not None and isinstance(given, pyarrow.Table):
        return _frame_source("the Arrow table", given)
    return None


def _polars_table(frame: Any) -> Any:
    """The frame as an Arrow table; some types of polars have no counterpart there."""
    import pyarrow as pa

    try:
        return frame.to_arrow()
    except (pa.ArrowException, TypeError, ValueError):
        for series in frame:
            try:
                series.to_arrow()
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise DataError(
                    f"the polars frame: column {series.name!r} has type {series.dtype}; expected"
                    " numbers of at most 64 bits: cast the column, or drop it"
                ) from error
        raise


def _frame_source(name: str, table: Any) -> Source:
    require_distinct(name, leaf_names(table.schema))
    return _tables_source([(name, table)])


def _tables_source(tables: Sequence[tuple[str, Any]]) -> Source:
    """Tables that are in memory, and follow each other."""

    def load(names: Sequence[str]) -> Columns:
        return columns_of(tables, names)

    name, first = tables[0]
    return Source(name, tuple(leaf_names(first.schema)), load)


def _pandas_source(frame: Any) -> Source:
    source = "the pandas frame"
    names = [str(name) for name in frame.columns]
    require_distinct(source, names)
    if len(frame) == 0:
        raise DataError(f"{source} is empty: it has columns but no row; expected rows")

    place_of = {name: place for place, name in enumerate(names)}

    def load(wanted: Sequence[str]) -> Columns:
        found = {
            name: _pandas_blocks(source, name, frame.iloc[:, place_of[name]]) for name in wanted
        }
        blocks = {name: blocks for name, (blocks, _) in found.items()}
        nulls = {name: rows for name, (_, rows) in found.items() if rows is not None}
        return Columns((Part(source, len(frame)),), blocks, nulls)

    return Source(source, tuple(names), load)


def _pandas_blocks(source: str, name: str, series: Any) -> tuple[list[Array], Array | None]:
    values = series.to_numpy()
    if values.dtype.kind in "biuf":
        return [values], None
    pa = optional_package("pyarrow", "reading such pandas columns")
    try:
        column = pa.chunked_array([pa.Array.from_pandas(series)])
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        # Mixed cells, or cells that are arrays of several dimensions.
        return [numeric_array(f"{source}: column {name!r}", list(values))], None
    with reading(source, "a pandas frame"):
        return column_blocks(source, name, column)


def _require_one_schema(schemas: Sequence[tuple[str, Any]]) -> None:
    """Refuse shards whose columns or types differ; the order of the columns may."""
    first_path, first = schemas[0]
    expected = dict(zip(first.names, first.types, strict=True))
    for path, schema in schemas[1:]:
        found = dict(zip(schema.names, schema.types, strict=True))
        for name in [*expected, *found]:
            if expected.get(name) != found.get(name):
                raise DataError(
                    f"{first_path} and {path} have different schemas: column {name!r} is"
                    f" {expected.get(name, 'missing')} in the first and"
                    f" {found.get(name, 'missing')} in the second; expected the same in all files"
                )


def top_level(schema: Any, names: Sequence[str]) -> list[str]:
    """The stored columns that hold `names`, some of which may be fields of a struct."""
    # a.b.c may lie in a or in a.b.
    beginnings = set().union(*map(_beginnings, names))
    return [name for name in schema.names if name in beginnings]


def leaf_names(schema: Any) -> list[str]:
    """Column names, where the fields of a struct are columns of their own: parent.child."""
    pa = optional_package("pyarrow", "reading tables")
    names = []
    for field in schema:
        if pa.types.is_struct(field.type):
            names += [f"{field.name}.{child}" for child in leaf_names(field.type)]
        else:
            names.append(field.name)
    return names


def flattened(table: Any) -> Any:
    """A table without structs."""
    pa = optional_package("pyarrow", "reading tables")
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def columns_of(
    tables: Sequence[tuple[str, Any]], names: Sequence[str], firsts: Sequence[int] | None = None
) -> Columns:
    """The named columns of tables that follow each other, each with the name of its file.

    firsts: how many rows of its file come before each table, where it is a part of it.
    """
    blocks: dict[str, list[Array]] = {name: [] for name in names}
    nulls: dict[str, Array] = {}
    parts, rows = [], 0
    whole = sum(table.num_rows for _, table in tables)
    for (source, table), first in zip(tables, firsts or [0] * len(tables), strict=True):
        with reading(source, "a table"):
            flat = flattened(table).select(list(names))
            # Offsets that point outside their buffer would end the whole process.
            flat.validate(full=True)
            for name in names:
                found, missing = column_blocks(source, name, flat.column(name), first)
                blocks[name] += found
                if missing is not None:
                    mask = nulls.setdefault(name, np.zeros(whole, dtype=bool))
                    mask[rows : rows + table.num_rows] = missing
        if table.num_rows == 0:
            raise DataError(f"{source} is empty: it has columns but no row; expected rows")
        parts.append(Part(source, table.num_rows, first))
        rows += table.num_rows
    return Columns(tuple(parts), blocks, nulls)


def column_blocks(
    source: str, name: str, column: Any, first: int = 0
) -> tuple[list[Array], Array | None]:
    """A chunked column as arrays, and where it has no value; text and dates are kept.

    first: how many rows come before it.
    """
    row, blocks, missing = 0, [], None
    for chunk in map(_plain, column.chunks):
        if len(chunk) > 0:
            if chunk.null_count:
                missing = np.zeros(len(column), dtype=bool) if missing is None else missing
                missing[row : row + len(chunk)] = np.asarray(chunk.is_null(), dtype=bool)
            blocks.append(_block(source, name, chunk, first + row))
            row += len(chunk)
    _require_one_shape(source, name, blocks)
    return blocks, missing


def _block(source: str, name: str, chunk: Any, first: int) -> Array:
    """The values of a chunk, with fillers for nulls."""
    pa = optional_package("pyarrow", "reading tables")
    kind = chunk.type
    if pa.types.is_decimal(kind):
        chunk = chunk.cast(pa.float64())
    elif pa.types.is_null(kind):
        return np.zeros(len(chunk))
    elif _is_list(kind):
        return _list_block(source, name, chunk, first)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_view(pa, kind):
        return chunk.fill_null("").to_numpy(zero_copy_only=False).astype(np.str_)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        unit = "D" if pa.types.is_date(kind) else "us"
        return chunk.to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]")
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(
            f"{cell(source, name, first)} has type {kind}; expected numbers:"
            " leave the column out, or store it as numbers"
        )
    if chunk.null_count:
        chunk = chunk.fill_null(False if pa.types.is_boolean(chunk.type) else 0)
    return _bits(chunk) if pa.types.is_boolean(kind) else chunk.to_numpy(zero_copy_only=False)


def _bits(chunk: Any) -> Array:
    """Booleans, which Arrow keeps in bits; a tenth of the time that it takes itself."""
    first, bits = chunk.offset % 8, np.frombuffer(chunk.buffers()[1], np.uint8)
    bits = bits[chunk.offset // 8 :]
    return np.unpackbits(bits, count=first + len(chunk), bitorder="little")[first:].view(bool)


def _is_view(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind))


def _plain(chunk: Any) -> Any:
    """Categories and extension types as what they stand for."""
    pa = optional_package("pyarrow", "reading tables")
    if isinstance(chunk, pa.ExtensionArray):
        chunk = chunk.storage
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    return chunk


def _list_block(source: str, name: str, chunk: Any, first: int) -> Array:
    """Lists of one length in every row, (k, width); lists of lists likewise."""
    rows = len(chunk)
    shape: list[int] = []
    if chunk.null_count:
        row = first + int(np.argmax(np.asarray(chunk.is_null())))
        raise DataError(
            f"{cell(source, name, row)} is null ({chunk.null_count} nulls); expected a list in"
            " every row: fill it in"
        )
    while _is_list(chunk.type):
        lengths = np.asarray(chunk.value_lengths())
        ragged = lengths != lengths[0]
        if ragged.any():
            odd = int(np.argmax(ragged))
            row = first + odd * rows // len(lengths)
            raise DataError(
                f"{cell(source, name, row)} has a list of {lengths[odd]}, but row {first} has one"
                f" of {lengths[0]} (ragged); expected lists of one length in every row"
            )
        if lengths[0] == 0:
            raise DataError(f"{cell(source, name, first)} is an empty list; expected numbers")
        shape.append(int(lengths[0]))
        chunk = _plain(chunk.flatten())
        if chunk.null_count > 0:
            position = int(np.argmax(np.asarray(chunk.is_null())))
            row = first + position * rows // len(chunk)
            raise DataError(
                f"{cell(source, name, row)} has a null in its list; expected a number: fill it in"
            )
    values = _block(source, name, chunk, 0)
    if values.dtype.kind not in "biuf":
        raise DataError(f"{cell(source, name, first)} has a list of text; expected numbers")
    return values.reshape(rows, *shape)


def _is_list(kind: Any) -> bool:
    pa = optional_package("pyarrow", "reading tables")
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _require_one_shape(source: str, name: str, blocks: Sequence[Array]) -> None:
    row = 0
    for block in blocks:
        if block.shape[1:] != blocks[0].shape[1:]:
            raise DataError(
                f"{cell(source, name, row)} has a list of shape {block.shape[1:]}, but row 0 has"
                f" one of {blocks[0].shape[1:]} (ragged); expected one shape in every row"
            )
        row += len(block)
