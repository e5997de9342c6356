"""pandas and polars frames and Arrow tables; neither library is imported here."""

import sys
from collections.abc import Sequence
from typing import Any

from fle.data.damage import optional_package, reading
from fle.data.readers.arrow_columns import column_blocks, columns_of_tables, leaf_names
from fle.data.readers.columns import Columns, Part, Source, require_distinct
from fle.data.transitions import Array
from fle.data.validation import numeric_array
from fle.errors import DataError


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
        return _arrow_source("the polars frame", _polars_table(given))
    if pyarrow is not None and isinstance(given, pyarrow.Table):
        return _arrow_source("the Arrow table", given)
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


def _arrow_source(name: str, table: Any) -> Source:
    names = leaf_names(table.schema)
    require_distinct(name, names)

    def load(wanted: Sequence[str]) -> Columns:
        return columns_of_tables([(name, table)], wanted)

    return Source(name, tuple(names), load)


def _pandas_source(frame: Any) -> Source:
    source = "the pandas frame"
    names = [str(name) for name in frame.columns]
    require_distinct(source, names)
    if len(frame) == 0:
        raise DataError(f"{source} is empty: it has columns but no row; expected rows")

    def load(wanted: Sequence[str]) -> Columns:
        blocks = {
            name: _pandas_blocks(source, name, frame.iloc[:, names.index(name)]) for name in wanted
        }
        return Columns((Part(source, len(frame)),), blocks)

    return Source(source, tuple(names), load)


def _pandas_blocks(source: str, name: str, series: Any) -> list[Array]:
    values = series.to_numpy()
    if values.dtype.kind in "biuf":
        return [values]
    pa = optional_package("pyarrow", "reading such pandas columns")
    try:
        column = pa.chunked_array([pa.Array.from_pandas(series)])
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        # Mixed cells, or cells that are arrays of several dimensions.
        return [numeric_array(f"{source}: column {name!r}", list(values))]
    with reading(source, "a pandas frame"):
        return column_blocks(source, name, column)
