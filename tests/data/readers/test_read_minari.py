"""Minari data sets, in the layout that Minari 0.5 writes, without Minari."""

import contextlib
import json
import shutil
import warnings

import h5py
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_logs import read_with_warnings

from fle.data import read
from fle.errors import DataError, FLEError

BOX = {"type": "Box", "dtype": "float64", "shape": [2], "low": [-9, -9], "high": [9, 9]}
DISCRETE = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 4}
LENGTHS = (3, 2)


def episodes(generator):
    for number, length in enumerate(LENGTHS):
        last = np.arange(length) == length - 1
        yield {
            "observations": generator.integers(-8, 9, (length + 1, 2)).astype(float),
            "actions": generator.integers(0, 3, length),
            "rewards": generator.standard_normal(length),
            "terminations": last & (number == 0),
            "truncations": last & (number == 1),
        }


def write_metadata(folder, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {
        "total_episodes": len(LENGTHS),
        "jpeg_encoding": True,
        "observation_space": json.dumps(BOX),
        "action_space": json.dumps(DISCRETE),
        "env_spec": json.dumps({"entry_point": "os:abort"}),
        **changes,
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))


def write_hdf5(folder, logged, **changes):
    write_metadata(folder, **changes)
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for number, episode in enumerate(logged):
            for name, values in episode.items():
                file[f"episode_{number}/{name}"] = values
            file[f"episode_{number}"].attrs["seed"] = 0


def write_arrow(folder, logged, **changes):
    """The final observation has a row of its own, padded with zeros."""
    write_metadata(folder, **changes)
    for number, episode in enumerate(logged):
        part = folder / str(number)
        part.mkdir()
        length = len(episode["actions"])
        (part / "metadata.json").write_text(json.dumps({"id": number, "total_steps": length}))
        columns = {name: np.append(episode[name], 0) for name in ("actions", "rewards")}
        for name in ("terminations", "truncations"):
            columns[name] = np.append(episode[name], False)
        columns["observations"] = episode["observations"]
        if not isinstance(columns["observations"], pa.Array):
            flat = columns["observations"].reshape(-1)
            columns["observations"] = pa.FixedSizeListArray.from_arrays(flat, 2)
        table = pa.table(columns)
        path = str(part / "part-0.arrow")
        with pa.OSFile(path, "w") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


@pytest.fixture
def logged():
    return list(episodes(np.random.default_rng(0)))


@pytest.mark.parametrize("write", [write_hdf5, write_arrow])
def test_both_storages_by_id_and_by_folder(tmp_path, monkeypatch, logged, write):
    write(tmp_path / "walker" / "expert-v0" / "data", logged)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    for source in ("walker/expert-v0", tmp_path / "walker/expert-v0"):
        data = read(source)
        expected = [episode["observations"] for episode in logged]
        np.testing.assert_array_equal(
            data.observations, np.concatenate([values[:-1] for values in expected])
        )
        np.testing.assert_array_equal(
            data.next_observations, np.concatenate([values[1:] for values in expected])
        )
        for name in ("actions", "terminations", "truncations"):
            values = np.concatenate([episode[name] for episode in logged])
            np.testing.assert_array_equal(getattr(data, name), values)
        rewards = np.concatenate([episode["rewards"] for episode in logged])
        np.testing.assert_array_equal(data.rewards[:, 0], rewards)
        assert data.observations.dtype == np.float32
        # The space says four actions, though the log shows three at most.
        assert data.number_of_actions == 4
        assert data.warnings == ()


def test_the_hdf5_file_alone(tmp_path, logged):
    write_hdf5(tmp_path / "data", logged)
    data = read(tmp_path / "data" / "main_data.hdf5")
    assert len(data) == sum(LENGTHS)


def test_vector_rewards(tmp_path, logged):
    for episode in logged:
        episode["rewards"] = np.stack([episode["rewards"], -episode["rewards"]], axis=1)
    write_hdf5(tmp_path / "data", logged)
    assert read(tmp_path).return_dim == 2


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_entries_of_a_dict_observation_are_joined_or_chosen(tmp_path, logged, storage):
    space = {"type": "Dict", "subspaces": {"b": BOX, "a": DISCRETE}}
    plain = [episode["observations"] for episode in logged]
    marks = [np.arange(len(values)) for values in plain]
    for episode, values, mark in zip(logged, plain, marks, strict=True):
        if storage == "hdf5":
            del episode["observations"]
            episode["observations/a"], episode["observations/b"] = mark, values
        else:
            lists = pa.FixedSizeListArray.from_arrays(values.reshape(-1), 2)
            episode["observations"] = pa.StructArray.from_arrays(
                [pa.array(mark), lists], ["a", "b"]
            )
    write = write_hdf5 if storage == "hdf5" else write_arrow
    write(tmp_path / "data", logged, observation_space=json.dumps(space))
    joined = np.concatenate(
        [np.column_stack([v, m])[:-1] for v, m in zip(plain, marks, strict=True)]
    )
    np.testing.assert_array_equal(read(tmp_path).observations, joined)
    chosen = read(tmp_path, observation="a")
    np.testing.assert_array_equal(chosen.observations, np.concatenate([m[:-1] for m in marks]))
    with pytest.raises(DataError, match="has no entry 'c'; expected one of a, b"):
        read(tmp_path, observation=["c"])


def test_an_unknown_id_names_the_nearest(tmp_path, monkeypatch, logged):
    write_hdf5(tmp_path / "walker" / "expert-v0" / "data", logged)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"walker/exprt-v0: no such .*nearest: walker/expert-v0"):
        read("walker/exprt-v0")


def test_images_in_jpeg_are_not_taken_for_numbers(tmp_path, logged):
    space = {"type": "Box", "dtype": "uint8", "shape": [64, 64, 3]}
    write_hdf5(tmp_path / "data", logged, observation_space=json.dumps(space))
    with pytest.raises(DataError, match="JPEG images of shape"):
        read(tmp_path)


def test_episodes_that_are_missing_or_spoilt(tmp_path, logged):
    write_arrow(tmp_path / "data", logged, total_episodes=3)
    with pytest.raises(DataError, match="expected 3 episodes, as the metadata say, got 2"):
        read(tmp_path)
    (tmp_path / "data" / "metadata.json").write_text("{")
    with pytest.raises(DataError, match=r"metadata\.json: cannot be read as JSON"):
        read(tmp_path)
    logged[1]["rewards"][1] = np.nan
    write_hdf5(tmp_path / "other" / "data", logged)
    with pytest.raises(DataError, match=r"other.*rewards of episode 1: row 1 is nan"):
        read(tmp_path / "other")
    logged[1]["actions"] = np.array([0, 7])
    logged[1]["rewards"][1] = 0
    write_hdf5(tmp_path / "more" / "data", logged)
    with pytest.raises(DataError, match="row 4 is 7; expected 0 to 3"):
        read(tmp_path / "more")


@pytest.mark.parametrize(
    "metadata",
    [
        {"action_space": "[" * 100_000},
        {"action_space": json.dumps({"type": "Discrete", "n": -3})},
        {"action_space": json.dumps({"type": "Discrete", "n": 10**30})},
        {"jpeg_encoding": True, "observation_space": json.dumps({"subspaces": 7})},
        {
            "jpeg_encoding": True,
            "observation_space": json.dumps({"dtype": "uint8", "shape": ["a", None, 3]}),
        },
    ],
)
def test_metadata_that_break_parsers(tmp_path, logged, metadata):
    """Refused in our words, or, where they say nothing that is needed, read."""
    write_hdf5(tmp_path / "data", logged, **metadata)
    with contextlib.suppress(DataError):
        assert len(read(tmp_path)) > 0


def test_folders_with_numbers_that_are_none(tmp_path, logged):
    write_arrow(tmp_path / "data", logged)
    (tmp_path / "data" / "²").mkdir()
    assert len(read(tmp_path)) > 0


def test_large_offsets_stay_in_float64(tmp_path, logged):
    for episode in logged:
        episode["observations"] += 1e9
    write_hdf5(tmp_path / "data", logged)
    data, messages = read_with_warnings(tmp_path)
    assert "loses up to" in messages[0]
    assert data.observations.dtype == np.float64


FAST = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
STORAGES = {"hdf5": write_hdf5, "arrow": write_arrow}


def written(folder, storage, logged):
    """A data set in an empty folder, and the files that hold its numbers."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    STORAGES[storage](folder / "data", logged, total_episodes=len(logged))
    pattern = "main_data.hdf5" if storage == "hdf5" else "*/part-0.arrow"
    return sorted((folder / "data").glob(pattern))


def quietly(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(source)


@st.composite
def random_episodes(draw):
    """Episodes of random lengths, each terminated, cut off, or both left open."""
    logged = []
    for length in draw(st.lists(st.integers(1, 4), min_size=2, max_size=12)):
        generator = np.random.default_rng(draw(st.integers(0, 2**32)))
        last = np.arange(length) == length - 1
        end = draw(st.sampled_from(["terminations", "truncations"]))
        ends = {"terminations": last & False, "truncations": last & False, end: last}
        logged.append(
            {
                "observations": generator.standard_normal((length + 1, 2)),
                "actions": generator.integers(0, 4, length),
                "rewards": generator.standard_normal(length) * 10.0 ** draw(st.integers(-6, 6)),
                **ends,
            }
        )
    return logged


@pytest.mark.parametrize("storage", STORAGES)
@FAST
@given(logged=random_episodes())
def test_any_episodes_come_back(tmp_path, storage, logged):
    written(tmp_path, storage, logged)
    data = quietly(tmp_path)
    for name in ("actions", "terminations", "truncations"):
        values = np.concatenate([episode[name] for episode in logged])
        np.testing.assert_array_equal(getattr(data, name), values)
    rewards = np.concatenate([episode["rewards"] for episode in logged])
    np.testing.assert_array_equal(data.rewards[:, 0], rewards)
    pairs = [(episode["observations"][:-1], episode["observations"][1:]) for episode in logged]
    here, following = (np.concatenate(part) for part in zip(*pairs, strict=True))
    np.testing.assert_array_equal(data.observations, here)
    np.testing.assert_array_equal(data.next_observations, following)


@pytest.mark.parametrize("storage", STORAGES)
@FAST
@given(logged=random_episodes(), data=st.data())
def test_a_spoilt_number_is_found(tmp_path, storage, logged, data):
    episode = data.draw(st.sampled_from(logged))
    name = data.draw(st.sampled_from(["observations", "rewards", "actions"]))
    row = data.draw(st.integers(0, len(episode[name]) - 1))
    wrong = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.5, 9]))
    if name != "actions" and np.isfinite(wrong):
        return
    episode[name] = episode[name].astype(float)
    episode[name][row] = wrong
    written(tmp_path, storage, logged)
    with pytest.raises(FLEError, match=name):
        quietly(tmp_path)


def some_file(folder, storage, data):
    """One of the files of random episodes, and its bytes."""
    path = data.draw(st.sampled_from(written(folder, storage, data.draw(random_episodes()))))
    return path, bytearray(path.read_bytes())


@pytest.mark.parametrize("storage", STORAGES)
@FAST
@given(data=st.data())
def test_a_torn_file_is_refused(tmp_path, storage, data):
    path, content = some_file(tmp_path, storage, data)
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(FLEError):
        quietly(tmp_path)


@pytest.mark.parametrize("storage", STORAGES)
@FAST
@given(data=st.data())
def test_a_flipped_bit_never_ends_in_a_crash(tmp_path, storage, data):
    path, content = some_file(tmp_path, storage, data)
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        read_back = quietly(tmp_path)
    except FLEError:
        return
    # Neither storage has checksums: another digit is another number, but always a number.
    assert np.isfinite(read_back.rewards).all()
    assert np.isfinite(read_back.observations).all()
