"""The same log in every format gives the same numbers."""

import gzip

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest
from reader_logs import (
    ACTIONS,
    NEXT,
    OBSERVATIONS,
    REWARDS,
    TERMINATED,
    WRITERS,
    log,
    read_with_warnings,
    write_csv,
    write_parquet,
)

from fle.data import read
from fle.errors import DataError, SettingsError


def check(data):
    np.testing.assert_array_equal(data.observations, OBSERVATIONS)
    np.testing.assert_array_equal(data.next_observations, NEXT)
    np.testing.assert_array_equal(data.actions, ACTIONS)
    np.testing.assert_array_equal(data.rewards[:, 0], REWARDS)
    np.testing.assert_array_equal(data.terminations, TERMINATED)
    np.testing.assert_array_equal(data.initial_observations, OBSERVATIONS[[0, 3]])
    assert data.observations.dtype == np.float32
    assert data.reward_names == ("reward",)
    assert data.number_of_actions == 3
    assert data.warnings == ()


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_table(tmp_path, kind):
    data = read(WRITERS[kind](tmp_path, log()))
    check(data)
    np.testing.assert_array_equal(data.episodes, [0, 0, 0, 1, 1])
    # A step column only puts rows in order; time dependence is declared by with_steps.
    assert data.steps is None
    np.testing.assert_array_equal(data.with_steps().steps, [0, 1, 2, 0, 1])


def halves(tmp_path, write, suffix):
    columns = log()
    for number, rows in enumerate((slice(0, 3), slice(3, 5))):
        part = {name: values[rows] for name, values in columns.items()}
        write(tmp_path / f"part-{number}{suffix}", part)
    return tmp_path


@pytest.mark.parametrize(("write", "suffix"), [(write_parquet, ".parquet"), (write_csv, ".csv")])
def test_shards_by_folder_list_and_pattern(tmp_path, write, suffix):
    folder = halves(tmp_path, write, suffix)
    (folder / "_SUCCESS").touch()
    check(read(folder))
    check(read(str(folder)))
    check(read(str(folder / "part-*")))
    check(read([folder / f"part-{number}{suffix}" for number in (0, 1)]))


def test_shards_may_order_their_columns_differently(tmp_path):
    folder = halves(tmp_path, write_parquet, ".parquet")
    columns = {name: values[3:] for name, values in reversed(log().items())}
    write_parquet(folder / "part-1.parquet", columns)
    check(read(folder))


def test_row_groups_that_cut_columns_into_pieces(tmp_path):
    pa.parquet.write_table(pa.table(log()), tmp_path / "log.parquet", row_group_size=2)
    check(read(tmp_path / "log.parquet"))


def test_an_arrow_file_a_compressed_csv_and_a_file_without_suffix(tmp_path):
    pa.feather.write_feather(pa.table(log()), tmp_path / "log.feather")
    check(read(tmp_path / "log.feather"))
    text = write_csv(tmp_path / "log.csv", log()).read_bytes()
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(text))
    check(read(tmp_path / "log.csv.gz"))
    write_parquet(tmp_path / "log", log())
    check(read(tmp_path / "log"))


def arrays(**changes):
    return {
        "observations": OBSERVATIONS,
        "actions": ACTIONS,
        "rewards": REWARDS,
        "terminations": TERMINATED,
        **changes,
    }


def test_npz_and_mappings_of_arrays(tmp_path):
    np.savez(tmp_path / "log.npz", **arrays())
    check(read(tmp_path / "log.npz"))
    check(read(arrays()))
    check(read({name: values.tolist() for name, values in arrays().items()}).subset(range(5)))


def test_arrays_may_bring_initial_observations(tmp_path):
    start = np.array([[9.0, 90.0]], dtype=np.float32)
    np.savez(tmp_path / "log.npz", **arrays(initial_observations=start))
    np.testing.assert_array_equal(read(tmp_path / "log.npz").initial_observations, start)


def test_d4rl_reads_timeouts_as_truncations(tmp_path):
    with h5py.File(tmp_path / "d4rl.hdf5", "w") as file:
        file["observations"], file["actions"] = OBSERVATIONS, ACTIONS.astype(np.float32)[:, None]
        file["rewards"], file["terminals"] = REWARDS, [0, 0, 1, 0, 0]
        file["timeouts"] = [0, 0, 0, 0, 1]
        file["infos/qpos"], file["metadata"] = np.zeros((5, 2)), "text"
    data, messages = read_with_warnings(tmp_path / "d4rl.hdf5")
    assert len(messages) == 1
    assert "1 truncated rows have no next observation and were dropped" in messages[0]
    np.testing.assert_array_equal(data.terminations, [False, False, True, False])
    np.testing.assert_array_equal(data.truncations, [False, False, False, True])
    np.testing.assert_array_equal(data.next_observations, NEXT[:4])
    assert data.action_dim == 1


def test_links_out_of_an_hdf5_file_are_not_followed(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["rewards"] = REWARDS
    with h5py.File(tmp_path / "log.h5", "w") as file:
        file["observations"], file["actions"], file["terminals"] = OBSERVATIONS, ACTIONS, TERMINATED
        file["rewards"] = h5py.ExternalLink("other.h5", "rewards")
    with pytest.raises(DataError, match="no reward column"):
        read(tmp_path / "log.h5")


@pytest.mark.parametrize("kind", ["list", "fixed", "nested", "struct"])
def test_observations_stored_as_lists_and_structs(tmp_path, kind):
    columns = log(**{"observation.x": None, "observation.y": None})
    cells = OBSERVATIONS.tolist()
    if kind == "fixed":
        column = pa.array(cells, pa.list_(pa.float32(), 2))
    elif kind == "nested":
        column = pa.array([[[x], [y]] for x, y in cells])
    elif kind == "struct":
        column = pa.array([{"x": x, "y": y} for x, y in cells])
    else:
        column = pa.array(cells)
    columns["observation"] = column
    check(read(write_parquet(tmp_path / "log.parquet", columns)))
    check(read(pa.table(columns)))


def test_frames_with_lists_in_their_cells():
    columns = log(**{"observation.x": None, "observation.y": None})
    check(read(pd.DataFrame({**columns, "observation": list(OBSERVATIONS)})))
    check(read(pl.DataFrame({**columns, "observation": OBSERVATIONS})))
    images = list(OBSERVATIONS.reshape(5, 2, 1))
    check(read(pd.DataFrame({**columns, "observation": pd.Series(images, dtype=object)})))
    check(read(pl.LazyFrame(columns | {"observation": OBSERVATIONS})))


def test_text_ids_categories_and_decimals(tmp_path):
    columns = log(
        episode=pa.array(["b", "b", "b", "a", "a"]).dictionary_encode(),
        reward=pa.array(REWARDS).cast(pa.decimal128(8, 3)),
        action=pa.array(ACTIONS).dictionary_encode(),
    )
    check(read(write_parquet(tmp_path / "log.parquet", columns)))
    dates = log(episode=pa.array(["2024-05-01"] * 3 + ["2024-05-02"] * 2))
    check(read(write_csv(tmp_path / "log.csv", dates)))


def test_ids_beyond_32_bits_are_renumbered(tmp_path):
    ids = np.array([2**40 + 5] * 3 + [2**63 + 5] * 2, dtype=np.uint64)
    check(read(write_parquet(tmp_path / "log.parquet", log(episode=ids))))


def test_discrete_states_are_one_integer_column_of_that_name(tmp_path):
    states = {
        "observation.x": None,
        "observation.y": None,
        "observation": np.array([3, 1, 0, 2, 1]),
    }
    data = read(write_parquet(tmp_path / "log.parquet", log(**states)))
    assert data.number_of_observations == 4
    np.testing.assert_array_equal(data.observations, [3, 1, 0, 2, 1])
    # Named in a group it is a feature.
    states = {"observation.x": np.array([3, 1, 0, 2, 1]), "observation.y": None}
    data = read(write_parquet(tmp_path / "log.parquet", log(**states)))
    assert data.observations.shape == (5, 1)


def test_several_rewards_keep_their_names(tmp_path):
    columns = log(reward=None, **{"reward.speed": REWARDS, "reward.énergie": -REWARDS})
    data = read(write_parquet(tmp_path / "log.parquet", columns))
    assert data.reward_names == ("speed", "énergie")
    np.testing.assert_array_equal(data.rewards, np.stack([REWARDS, -REWARDS], axis=1))


def test_rewards_keep_float64():
    exact = np.array([1e9 + 1, 1e-9, 0.1, 0.2, 0.3])
    np.testing.assert_array_equal(read(log(reward=exact)).rewards[:, 0], exact)


def test_given_next_observations_keep_a_truncated_row(tmp_path):
    columns = log(
        terminated=np.array([0, 0, 1, 0, 0], dtype=bool),
        truncated=np.array([0, 0, 0, 0, 1], dtype=bool),
        **{"next_observation.x": [2.0, 3, 0, 5, 6], "next_observation.y": [20.0, 30, 0, 50, 60]},
    )
    data = read(write_parquet(tmp_path / "log.parquet", columns))
    assert len(data) == 5
    np.testing.assert_array_equal(data.next_observations[4], [6, 60])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "expected a path, a list of paths, a frame or a mapping"),
        ([], "the list of files is empty"),
        ("no/such.parquet", "no/such.parquet: no such file"),
        ("no/such-*.parquet", "no file matches this pattern"),
    ],
)
def test_what_is_no_source(source, message):
    with pytest.raises(DataError, match=message):
        read(source)


def test_folders_without_data_or_with_two_formats(tmp_path):
    with pytest.raises(DataError, match="no data files"):
        read(tmp_path)
    write_csv(tmp_path / "a.csv", log())
    write_parquet(tmp_path / "b.parquet", log())
    with pytest.raises(DataError, match=r"a\.csv and .*b\.parquet have different formats"):
        read(tmp_path)
    (tmp_path / "c.txt").write_text("hello")
    with pytest.raises(DataError, match=r"c\.txt: unknown format"):
        read(tmp_path / "c.txt")


def test_options_that_a_source_cannot_take(tmp_path):
    with h5py.File(tmp_path / "m.hdf5", "w") as file:
        file["episode_0/rewards"] = REWARDS
    with pytest.raises(SettingsError, match="reward="):
        read(tmp_path / "m.hdf5", reward="x")


def test_a_missing_package_is_named_with_its_command(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "log.parquet", log())
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"needs pyarrow.*pip install h5py pyarrow"):
        read(path)
