"""A small log that every reader test starts from, and the ways to write it."""

import warnings

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from fle.data import read

# Two terminated episodes, of three and of two rows.
OBSERVATIONS = np.array([[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]], dtype=np.float32)
NEXT = np.array([[2, 20], [3, 30], [4, 40], [5, 50], [5, 50]], dtype=np.float32)
ACTIONS = np.array([0, 1, 2, 1, 0])
REWARDS = np.array([0.5, -1.0, 2.0, 0.25, 3.0])
TERMINATED = np.array([False, False, True, False, True])


def log(**changes):
    """The columns by name; a change to None leaves one out."""
    columns = {
        "episode": np.array([7, 7, 7, 9, 9]),
        "step": np.array([0, 1, 2, 0, 1]),
        "observation.x": OBSERVATIONS[:, 0].astype(float),
        "observation.y": OBSERVATIONS[:, 1].astype(float),
        "action": ACTIONS,
        "reward": REWARDS,
        "terminated": TERMINATED,
        "truncated": np.zeros(5, dtype=bool),
        **changes,
    }
    return {name: values for name, values in columns.items() if values is not None}


def write_parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


def write_csv(path, columns):
    pa_csv.write_csv(pa.table(columns), path)
    return path


def write_npz(path, columns):
    np.savez(path, **{name: np.asarray(values) for name, values in columns.items()})
    return path


def write_h5(path, columns):
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=np.asarray(values))
    return path


WRITERS = {
    "parquet": lambda folder, columns: write_parquet(folder / "log.parquet", columns),
    "csv": lambda folder, columns: write_csv(folder / "log.csv", columns),
    "arrow": lambda _, columns: pa.table(columns),
    "pandas": lambda _, columns: pd.DataFrame(dict(columns)),
    "polars": lambda _, columns: pl.DataFrame(dict(columns)),
    "mapping": lambda _, columns: columns,
}
ALL_WRITERS = WRITERS | {
    "npz": lambda folder, columns: write_npz(folder / "log.npz", columns),
    "h5": lambda folder, columns: write_h5(folder / "log.h5", columns),
}


def read_with_warnings(source, **options):
    """The data and its warnings, each of which is also emitted at the caller of `read`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = read(source, **options)
    assert tuple(str(warning.message) for warning in caught) == data.warnings
    assert all(warning.filename == __file__ for warning in caught)
    return data, data.warnings
