"""Arrow columns become NumPy blocks, or an error that names the file, the column and the row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fle.data.damage import optional_package, reading
from fle.data.readers.columns import Columns, Part, cell
from fle.data.transitions import Array
from fle.errors import DataError


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


def columns_of_tables(tables: Sequence[tuple[str, Any]], names: Sequence[str]) -> Columns:
    """The named columns of tables that follow each other, each with the name of its file."""
    blocks: dict[str, list[Array]] = {name: [] for name in names}
    parts = []
    for source, table in tables:
        with reading(source, "a table"):
            flat = flattened(table).select(list(names))
            # Offsets that point outside their buffer would end the whole process.
            flat.validate(full=True)
            for name in names:
                blocks[name] += column_blocks(source, name, flat.column(name))
        if table.num_rows == 0:
            raise DataError(f"{source} is empty: it has columns but no row; expected rows")
        parts.append(Part(source, table.num_rows))
    return Columns(tuple(parts), blocks)


def column_blocks(source: str, name: str, column: Any) -> list[Array]:
    """A chunked column as arrays; text is kept as text."""
    row, blocks = 0, []
    for chunk in column.chunks:
        if len(chunk) > 0:
            blocks.append(_block(source, name, chunk, row))
            row += len(chunk)
    _require_one_shape(source, name, blocks)
    return blocks


def _block(source: str, name: str, chunk: Any, first: int) -> Array:
    pa = optional_package("pyarrow", "reading tables")
    chunk = _plain(chunk)
    if chunk.null_count > 0:
        row = first + int(np.argmax(np.asarray(chunk.is_null())))
        raise DataError(
            f"{cell(source, name, row)} is null ({chunk.null_count} nulls);"
            " expected a value in every row: drop these rows or fill them in"
        )
    kind = chunk.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return chunk.to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(kind):
        return chunk.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if _is_list(kind):
        return _list_block(source, name, chunk, first)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return chunk.to_numpy(zero_copy_only=False).astype(np.str_)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        # As an episode's id this is as good as any text; as a number it is refused later.
        return chunk.cast(pa.string()).to_numpy(zero_copy_only=False).astype(np.str_)
    raise DataError(
        f"{cell(source, name, first)} has type {kind}; expected numbers:"
        " leave the column out, or store it as numbers"
    )


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
                f"{cell(source, name, row)} has a null in its list;"
                " expected a number: drop the row or fill it in"
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
