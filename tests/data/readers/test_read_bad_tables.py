"""Tables that cannot be used: the error names the file, the column and the row."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from reader_logs import (
    ACTIONS,
    REWARDS,
    WRITERS,
    log,
    read_with_warnings,
    write_csv,
    write_parquet,
)

from fle.data import read
from fle.errors import DataError

NAMES = {
    "parquet": r"log\.parquet",
    "csv": r"log\.csv",
    "arrow": "the Arrow table",
    "pandas": "the pandas frame",
    "polars": "the polars frame",
    "mapping": "the mapping",
}


def refused(source, message, **options):
    with pytest.raises(DataError, match=message):
        read(source, **options)


def spoilt(values, row, value):
    changed = values.astype(float)
    changed[row] = value
    return changed


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["observation.x", "action", "reward", "observation.y"])
def test_a_number_that_is_not_finite(tmp_path, kind, value, column):
    columns = log(**{column: spoilt(log()[column], 3, value)})
    source = WRITERS[kind](tmp_path, columns)
    refused(source, f"{NAMES[kind]}: column '{re.escape(column)}', row 3 is")


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "pandas", "polars"])
@pytest.mark.parametrize("column", list(log()))
def test_a_null_cell(tmp_path, kind, column):
    cells = log()[column].tolist()
    cells[2] = None
    frame = {**{name: values.tolist() for name, values in log().items()}, column: cells}
    source = WRITERS[kind](tmp_path, frame)
    # pandas makes NaN of it where it can.
    refused(source, f"{NAMES[kind]}: column '{re.escape(column)}', row 2 is (null|nan)")


def test_a_null_inside_a_list(tmp_path):
    cells = pa.array([[1.0, 2.0], [3.0, None], [5.0, 6.0], [7.0, 8.0], [9.0, 1.0]])
    columns = {**log(**{"observation.x": None, "observation.y": None}), "observation": cells}
    path = write_parquet(tmp_path / "log.parquet", columns)
    refused(path, r"log\.parquet: column 'observation', row 1 has a null in its list")


def test_a_missing_column(tmp_path):
    path = write_parquet(tmp_path / "log.parquet", log(reward=None))
    refused(path, r"log\.parquet: no reward column; expected 'reward' or 'reward\.\*'")


def test_a_duplicate_column(tmp_path):
    columns = log()
    table = pa.table(columns).append_column("reward", pa.array(REWARDS))
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    refused(tmp_path / "log.parquet", r"log\.parquet: column 'reward' appears 2 times")
    refused(table, "column 'reward' appears 2 times")
    (tmp_path / "log.csv").write_text("episode,reward,reward\n0,1,2\n")
    refused(tmp_path / "log.csv", r"log\.csv: column 'reward' appears 2 times")
    frame = pd.DataFrame(np.zeros((2, 2)), columns=["reward", "reward"])
    refused(frame, "the pandas frame: column 'reward' appears 2 times")


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("column", ["observation.x", "action", "reward", "terminated", "step"])
def test_text_in_a_column_of_numbers(tmp_path, kind, column):
    cells = ["1", "0", "left", "1", "0"]
    source = WRITERS[kind](tmp_path, log(**{column: np.array(cells)}))
    refused(source, rf"{NAMES[kind]}: column '{re.escape(column)}', row 2 is the text 'left'")


def test_text_that_looks_like_numbers_is_still_text(tmp_path):
    path = write_parquet(tmp_path / "log.parquet", log(reward=np.array(["1", "2", "3", "4", "5"])))
    refused(path, r"log\.parquet: column 'reward', row 0 is the text '1'")


def test_mixed_cells_of_a_frame():
    frame = pd.DataFrame(log())
    frame["reward"] = pd.Series([1.0, 2.0, "three", 4.0, 5.0], dtype=object)
    refused(frame, r"the pandas frame: column 'reward': row 2 is 'three' \(str\)")
    cells = pl.Series("reward", [1.0, 2.0, "three", 4.0, 5.0], dtype=pl.Object)
    refused(pl.DataFrame(log()).with_columns(cells), "the polars frame")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "pandas", "polars"])
def test_ragged_lists(tmp_path, kind):
    cells = [[1.0, 2.0], [3.0, 4.0], [5.0], [6.0, 7.0], [8.0, 9.0]]
    columns = {**log(**{"observation.x": None, "observation.y": None}), "observation": cells}
    message = rf"{NAMES[kind]}: column 'observation', row 2 has a list of 1.*\(ragged\)"
    refused(WRITERS[kind](tmp_path, columns), message)


def test_ragged_and_object_arrays(tmp_path):
    cells = [[1.0, 2.0], [3.0], [5.0, 6.0]]
    arrays = {"actions": [0, 1, 0], "rewards": [1.0, 2.0, 3.0], "terminations": [0, 0, 1]}
    refused({**arrays, "observations": cells}, "the mapping: array 'observations': row 1")
    objects = np.array(cells, dtype=object)
    np.savez(tmp_path / "log.npz", **arrays, observations=objects, allow_pickle=True)
    refused(tmp_path / "log.npz", r"log\.npz: array 'observations' holds Python objects")


@pytest.mark.parametrize("kind", [pa.binary(), pa.duration("s"), pa.time64("us")])
def test_types_that_are_no_numbers(tmp_path, kind):
    cells = [b"a"] * 5 if kind == pa.binary() else [1] * 5
    path = write_parquet(tmp_path / "log.parquet", log(reward=pa.array(cells, kind)))
    refused(path, r"log\.parquet: column 'reward', row 0 has type")


def test_timestamps_are_no_numbers(tmp_path):
    times = pa.array([1, 2, 3, 4, 5], pa.timestamp("s"))
    path = write_parquet(tmp_path / "log.parquet", log(reward=times))
    refused(path, r"log\.parquet: column 'reward', row 0 is the date 1970-01-01T00:00:01")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz", ".h5", ".arrow"])
def test_an_empty_and_a_foreign_file(tmp_path, suffix):
    path = tmp_path / f"log{suffix}"
    path.touch()
    refused(path, rf"log\{suffix}")
    path.write_bytes(b"\x00\xffnothing of the kind\x00" * 9)
    refused(path, rf"log\{suffix}")


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "pandas", "polars"])
def test_a_table_without_rows(tmp_path, kind):
    empty = {name: values[:0] for name, values in log().items()}
    refused(WRITERS[kind](tmp_path, empty), f"{NAMES[kind]} is empty")


def test_arrays_without_rows():
    refused({"observations": np.zeros((0, 2)), "actions": [], "rewards": []}, "is empty")


@pytest.mark.parametrize("kind", WRITERS)
def test_one_transition(tmp_path, kind):
    columns = {name: values[2:3] for name, values in log(step=None).items()}
    source = WRITERS[kind](tmp_path, columns)
    refused(source, f"{NAMES[kind]}: the data has 1 transition; expected at least 2")


def test_one_episode_has_no_interval(tmp_path):
    columns = {name: values[:3] for name, values in log().items()}
    _, messages = read_with_warnings(write_parquet(tmp_path / "log.parquet", columns))
    assert len(messages) == 1
    assert "one episode only: no interval" in messages[0]


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_a_torn_file(tmp_path, suffix):
    path = tmp_path / f"log{suffix}"
    if suffix == ".npz":
        np.savez(path, **log())
    else:
        (write_csv if suffix == ".csv" else write_parquet)(path, log())
    whole = path.read_bytes()
    # In the middle of a line, so that a CSV is seen to be torn.
    path.write_bytes(whole[: len(whole) // 2 + 3])
    refused(path, rf"log\{suffix}")


def test_shards_with_different_schemas(tmp_path):
    write_parquet(tmp_path / "a.parquet", log())
    write_parquet(tmp_path / "b.parquet", log(episode=np.array([1, 1, 1, 2, 2]), extra=REWARDS))
    refused(tmp_path, r"a\.parquet and .*b\.parquet have different schemas: column 'extra'")
    write_parquet(tmp_path / "b.parquet", log(action=ACTIONS.astype(float)))
    refused(tmp_path, r"column 'action' is int64 in the first and double in the second")
    csv = tmp_path / "csv"
    csv.mkdir()
    write_csv(csv / "a.csv", log())
    write_csv(csv / "b.csv", log(reward=None, gain=REWARDS))
    refused(csv, r"a\.csv and .*b\.csv have different schemas: .*'gain', 'reward'")


@pytest.mark.parametrize("column", ["observation.x", "action", "reward"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "pandas", "mapping"])
def test_integers_beyond_32_bits_that_are_not_ids(tmp_path, kind, column):
    values = np.arange(5)
    values[3] = 2**40 + 5
    source = WRITERS[kind](tmp_path, log(**{column: values}))
    message = f"{NAMES[kind]}: column '{re.escape(column)}', row 3 is {2**40 + 5}, an integer"
    refused(source, message)


@pytest.mark.parametrize("kind", WRITERS)
def test_rounding_to_float32_is_reported_with_its_size(tmp_path, kind):
    # Near 1e9 a float32 moves in steps of 64, so 1e9 + 31 becomes 1e9.
    values = 1e9 + np.array([0.0, 31.0, 64.0, 128.0, 192.0])
    source = WRITERS[kind](tmp_path, log(**{"observation.x": values}))
    data, messages = read_with_warnings(source)
    assert len(messages) == 1
    assert "column 'observation.x' loses up to 31 in float32, 0.16 of its range" in messages[0]
    np.testing.assert_array_equal(data.observations[:, 0], values)
    assert data.next_observations.dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.1, 0.2, 0.3, 0.4, 0.5]),
        np.full(5, 1 / 3),
        1e9 + 64.0 * np.arange(5),
        np.array([1.7e9, 1.8e9, 1.75e9, 1.71e9, 1.72e9]) + 1 / 3,
    ],
)
def test_harmless_rounding_is_neither_done_nor_reported(values):
    data = read(log(**{"observation.x": values}))
    np.testing.assert_array_equal(data.observations[:, 0], values)
    whole = (values == values.astype(np.float32)).all()
    assert data.observations.dtype == (np.float32 if whole else np.float64)


def test_what_arrives_in_float32_stays_so():
    """Next observations with more digits are not held against the rows that follow."""
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    following = np.append(values[1:], 0.0)
    columns = log(**{"observation.x": values.astype(np.float32), "observation.y": None})
    data = read({**columns, "next_observation.x": following})
    assert data.observations.dtype == data.next_observations.dtype == np.float32


def test_initial_observations_keep_their_digits():
    """Float32 moves in steps of 0.0625 at 1e6, though it holds the observations themselves."""
    values = 1e6 + np.arange(5.0)
    columns = log(**{"observation.x": values, "observation.y": None})
    data = read({**columns, "initial_observations": np.array([[1e6 + 0.01]])})
    assert data.initial_observations[0, 0] == 1e6 + 0.01


def test_numbers_beyond_float32_stay_as_they_are():
    values = np.array([0.0, 1e39, 2e39, 3e39, 4e39])
    data, messages = read_with_warnings(log(**{"observation.x": values}))
    assert "loses up to inf" in messages[0]
    np.testing.assert_array_equal(data.observations[:, 0], values)


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        ([0, 1, 7, 1, 0], {"number_of_actions": 3}, "column 'action': row 2 is 7; expected 0 to 2"),
        ([0, 1, -2, 1, 0], {}, "column 'action': row 2 is -2"),
        ([0, 1, 0.5, 1, 0], {"number_of_actions": 3}, "column 'action': row 2 is 0.5"),
    ],
)
def test_actions_outside_their_space(tmp_path, action, options, message):
    path = write_parquet(tmp_path / "log.parquet", log(action=np.array(action)))
    refused(path, rf"log\.parquet: {message}", **options)


def test_several_columns_of_codes():
    columns = log(action=None, **{"action.a": ACTIONS, "action.b": ACTIONS})
    refused(columns, "'action.a', 'action.b' are several columns of codes")


def test_flags_that_are_neither_true_nor_false(tmp_path):
    path = write_parquet(tmp_path / "log.parquet", log(terminated=np.array([0, 0, 2, 0, 1])))
    refused(path, r"log\.parquet: column 'terminated': row 2 is 2; expected True or False")


def test_arrays_of_different_lengths():
    columns = log(reward=REWARDS[:4])
    refused(columns, "the mapping: 'reward' has 4 rows but 'observation.x' has 5")
