"""Files whose structure, not whose bytes, is hostile: links, sizes and numbers of columns."""

import time

import h5py
import numpy as np
import pytest

import fle
from fle.data.readers.columns import require_distinct
from fle.errors import DataError, FLEError

ROWS = 20


def arrays(rows=ROWS):
    return {
        "observations": np.arange(2.0 * rows).reshape(rows, 2),
        "actions": np.arange(rows) % 2,
        "rewards": np.ones(rows),
        "terminals": np.arange(rows) % 5 == 4,
    }


def log(path, **changes):
    """A log as D4RL writes it; what is None is left out."""
    with h5py.File(path, "w") as file:
        for name, values in {**arrays(), **changes}.items():
            if values is not None:
                file[name] = values
    return path


def quickly(call, seconds=10):
    began = time.monotonic()
    try:
        return call()
    finally:
        assert time.monotonic() - began < seconds


def test_groups_that_are_reached_by_many_ways_are_entered_once(tmp_path):
    """Forty levels with two links each are 2^40 ways."""
    path = log(tmp_path / "diamond.h5")
    with h5py.File(path, "a") as file:
        here = file.create_group("top")
        for _ in range(40):
            below = here.create_group("left")
            here["right"] = below
            here = below
        here["values"] = np.ones(3)
    assert len(quickly(lambda: fle.read(path))) == ROWS


def test_a_group_inside_itself_and_a_long_chain(tmp_path):
    path = log(tmp_path / "loop.h5")
    with h5py.File(path, "a") as file:
        here = file.create_group("here")
        here["again"] = here
        file["back"] = file["/"]
        for _ in range(1500):
            here = here.create_group("d")
    assert len(quickly(lambda: fle.read(path))) == ROWS


def test_one_episode_under_many_names_is_refused(tmp_path):
    path = tmp_path / "main_data.hdf5"
    with h5py.File(path, "w") as file:
        episode = file.create_group("episode_0")
        for name, values in arrays().items():
            episode[name.replace("terminals", "terminations")] = values
        episode["truncations"] = np.zeros(ROWS, bool)
        file["episode_1"] = episode
    with pytest.raises(DataError, match="episode_0 and episode_1 are links to one group"):
        fle.read(path)


@pytest.mark.parametrize("name", ["rewards", "observations", "terminals"])
@pytest.mark.parametrize("chunks", [None, (2**16,)], ids=["contiguous", "chunked"])
@pytest.mark.parametrize("written", [0, 1])
def test_rows_that_were_never_written_are_refused(tmp_path, name, chunks, written):
    path = log(tmp_path / "log.h5", **{name: None})
    with h5py.File(path, "a") as file:
        if chunks is None and written:
            pytest.skip("a contiguous array is written as a whole")
        item = file.create_dataset(name, (2**30,), "f8", chunks=chunks)
        item[:written] = 1
    with pytest.raises(FLEError, match=r"was ever written; expected all of it"):
        quickly(lambda: fle.read(path))


def test_small_arrays_of_every_layout_are_read(tmp_path):
    path = log(tmp_path / "log.h5", rewards=None, actions=None)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", data=np.ones(ROWS), chunks=(7,), compression="gzip")
        space = h5py.h5s.create_simple((ROWS,))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        compact = h5py.h5d.create(file.id, b"actions", h5py.h5t.NATIVE_INT64, space, plist)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(ROWS) % 2)
    data = fle.read(path)
    assert data.rewards.sum() == ROWS
    assert data.actions.sum() == ROWS // 2


def test_a_name_that_comes_twice_is_found_in_one_pass():
    """In quadratic time, 200,000 names would take a quarter of an hour."""
    names = [f"observation.{number}" for number in range(200_000)]
    quickly(lambda: require_distinct("the table", names), seconds=5)
    with pytest.raises(DataError, match=r"column 'observation.7' appears 3 times"):
        quickly(lambda: require_distinct("the table", [*names, *names[7:8] * 2]), seconds=5)


@pytest.mark.filterwarnings("ignore::fle.errors.FLEWarning")
def test_a_table_of_many_columns_is_read(tmp_path):
    """In quadratic time, 8,000 columns would take minutes."""
    width = 8_000
    columns = {f"observation.{number}": np.ones(4) for number in range(width)}
    columns |= {"action": np.zeros(4, int), "reward": np.ones(4), "terminated": np.ones(4, bool)}
    path = tmp_path / "wide.csv"
    lines = [",".join(columns), *(",".join(str(int(v[0])) for v in columns.values()),) * 4]
    path.write_text("\n".join(lines) + "\n")
    for listed in (None, list(columns)[:width]):
        data = quickly(lambda chosen=listed: fle.read(path, observation=chosen), seconds=30)
        assert data.observations.shape == (4, width)
