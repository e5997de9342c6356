"""A checked `Dataset` as one Arrow file, to be read again without checking it again."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fle.data.dataset import Dataset, restored
from fle.data.passes import Array, by_column
from fle.data.readers.formats import optional_package, reading
from fle.data.schema import FACTS, OTHER_ARRAYS, ROW_FIELDS, fingerprint
from fle.errors import DataError
from fle.files import written_whole

MARK = b"fle dataset"
FORMAT = MARK + b" 5"
# Tried before the array's own type, and used only if nothing is lost.
SMALLER = {"f8": "f4", "i8": "i4"}


def write_cache(data: Dataset, path: str | Path) -> None:
    """Write the data set, so that the file is always either whole or not there."""
    pa = optional_package("pyarrow", "writing the data cache")
    arrays = {name: getattr(data, name) for name in (*ROW_FIELDS, *OTHER_ARRAYS)}
    stored = {name: _stored(array) for name, array in arrays.items() if array is not None}
    # Sums depend on it in their last digits, and results must not depend on the cache.
    by_columns = [name for name, array in stored.items() if by_column(array)]
    facts = {
        "by_column": by_columns,
        "shapes": {name: list(array.shape) for name, array in stored.items()},
        "types": {name: arrays[name].dtype.str.lstrip("<>|=") for name in stored},
        "facts": {name: getattr(data, name) for name in FACTS} | {"prepared": ()},
        "fingerprint": fingerprint(data),
    }
    # Arrays differ in length, so each is one list in a table of one row.
    columns = {name: _as_list(pa, array) for name, array in stored.items()}
    table = pa.table(columns).replace_schema_metadata(
        {b"format": FORMAT, b"fle": json.dumps(facts).encode()}
    )
    with (
        written_whole(Path(path), table.nbytes) as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)


def read_cache(path: str | Path) -> Dataset:
    """The data set that `write_cache` wrote, with its warnings and notes; none is emitted."""
    pa = optional_package("pyarrow", "reading the data cache")
    with reading(path, "a data cache"):
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        # Offsets that point outside their buffer would end the whole process.
        table.validate(full=True)
        metadata = table.schema.metadata or {}
        if metadata.get(b"format") != FORMAT:
            raise DataError(f"{path}: not a data cache of this version; read the source again")
        facts = json.loads(metadata[b"fle"])
        values: dict[str, Any] = dict.fromkeys((*ROW_FIELDS, *OTHER_ARRAYS))
        for name in table.column_names:
            flat = table.column(name).chunk(0).flatten().to_numpy(zero_copy_only=False)
            shape, dtype = facts["shapes"][name], np.dtype(facts["types"][name])
            flat = flat.astype(dtype, copy=False)
            transposed = name in facts["by_column"]
            values[name] = flat.reshape(shape[::-1]).T if transposed else flat.reshape(shape)
        for name in FACTS:
            value = facts["facts"][name]
            values[name] = tuple(value) if isinstance(value, list) else value
        data = restored(values)
        if data.fingerprint != facts["fingerprint"]:
            raise DataError(
                f"{path}: the data cache is damaged; expected the numbers of its fingerprint,"
                " got others: delete it, and read the source again"
            )
    return data


def is_cache(path: Path) -> bool:
    """Whether an Arrow file was written by `write_cache`."""
    pa = optional_package("pyarrow", "reading Arrow files")
    with reading(path, "Arrow"), pa.OSFile(str(path)) as file:
        metadata = pa.ipc.open_file(file).schema.metadata or {}
        return metadata.get(b"format", b"").startswith(MARK)


def _stored(array: Array) -> Array:
    smaller = SMALLER.get(array.dtype.str.lstrip("<>|="))
    if smaller is None:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(smaller)
    return narrow if (narrow.astype(array.dtype) == array).all() else array


def _as_list(pa: Any, array: Array) -> Any:
    lines = array.T if by_column(array) else array
    flat = pa.array(np.ascontiguousarray(lines).reshape(-1))
    return pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), flat)
