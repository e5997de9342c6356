"""Numbered columns make a vector in the order of their numbers, whatever the order of the file."""

import json

import numpy as np
import pyarrow as pa
import pytest
from reader_logs import ALL_WRITERS, WRITERS, log, write_csv, write_parquet
from test_read_minari import BOX, episodes, write_hdf5

from fle.data import read
from fle.errors import DataError

WIDTH = 12
NUMBERS = list(range(WIDTH))
TEXT_ORDER = sorted(NUMBERS, key=str)
# Entry j of row i is 100 j + i + 0.5, which tells where it comes from; float32 holds it.
VALUES = 100.0 * np.arange(WIDTH) + np.arange(5)[:, None] + 0.5


def named(prefix, order=TEXT_ORDER, form="{}"):
    return {prefix + form.format(number): VALUES[:, number] for number in order}


def without(*roles):
    return {k: v for k, v in log().items() if not k.startswith(tuple(roles))}


@pytest.mark.parametrize("kind", ALL_WRITERS)
@pytest.mark.parametrize("role", ["observation", "action", "reward"])
def test_every_format_and_every_vector(tmp_path, kind, role):
    data = read(ALL_WRITERS[kind](tmp_path, {**without(role), **named(f"{role}.")}))
    np.testing.assert_array_equal(getattr(data, f"{role}s"), VALUES)
    assert data.notes == (
        f"the {role} columns are taken in the order of their numbers: '{role}.0', '{role}.1',"
        f" '{role}.2', ..., '{role}.11'",
    )
    if role == "reward":
        assert data.reward_names == tuple(map(str, NUMBERS))


@pytest.mark.parametrize("kind", WRITERS)
def test_next_observations_are_sorted_alike(tmp_path, kind):
    """The following rows would contradict them otherwise."""
    following = np.append(VALUES[1:], VALUES[-1:], axis=0)
    after = {f"next_observation.{number}": following[:, number] for number in TEXT_ORDER}
    data = read(
        WRITERS[kind](tmp_path, {**without("observation"), **named("observation."), **after})
    )
    np.testing.assert_array_equal(data.next_observations, following)


@pytest.mark.parametrize(
    ("prefix", "form", "mapped"),
    [
        ("obs_", "{}", "obs_*"),
        ("obs_", "{}", "obs_"),
        ("obs.", "{}", "obs"),
        ("obs/", "{}", "obs/"),
        ("obs", "{}", "obs[0-9]*"),
        ("obs_", "{}_raw", "obs_*_raw"),
        ("obs_", "{:02d}", ["obs_*"]),
    ],
)
@pytest.mark.parametrize("order", [TEXT_ORDER, NUMBERS[::-1]])
def test_mapped_columns_are_sorted_too(prefix, form, mapped, order):
    columns = {**without("observation"), **named(prefix, order, form)}
    data = read(columns, observation=mapped)
    np.testing.assert_array_equal(data.observations, VALUES)
    assert len(data.notes) == (list(columns)[-WIDTH:] != list(named(prefix, NUMBERS, form)))


def test_fields_of_a_struct(tmp_path):
    fields = [pa.array(VALUES[:, number]) for number in TEXT_ORDER]
    struct = pa.StructArray.from_arrays(fields, [str(number) for number in TEXT_ORDER])
    columns = {**without("observation"), "observation": struct}
    data = read(write_parquet(tmp_path / "log.parquet", columns))
    np.testing.assert_array_equal(data.observations, VALUES)


@pytest.mark.parametrize("write", [write_parquet, write_csv])
def test_shards_of_different_order(tmp_path, write):
    paths = []
    for shard, order in enumerate([TEXT_ORDER, NUMBERS[::-1]]):
        columns = {**without("observation"), **named("observation.", order)}
        columns["episode"] = columns["episode"] + 10 * shard
        paths.append(write(tmp_path / f"{shard}.{write.__name__.removeprefix('write_')}", columns))
    np.testing.assert_array_equal(read(paths).observations, np.vstack([VALUES, VALUES]))


def test_what_the_user_lists_stays_as_listed():
    columns = {**without("observation"), **named("observation.")}
    data = read(columns, observation=["observation.10", "observation.9"])
    np.testing.assert_array_equal(data.observations, VALUES[:, [10, 9]])
    assert data.notes == ()


def test_several_patterns_are_sorted_each_by_itself():
    columns = {**without("observation"), **named("b_"), **named("a_")}
    data = read(columns, observation=["b_*", "a_*"])
    np.testing.assert_array_equal(data.observations, np.hstack([VALUES, VALUES]))


@pytest.mark.parametrize("names", ["zyx", ("2", "1", "x"), ("x10", "x9", "x8"), ("²", "1", "0")])
def test_names_that_are_not_numbers_keep_the_order_of_the_file(names):
    group = {f"observation.{name}": VALUES[:, j] for j, name in enumerate(names)}
    data = read({**without("observation"), **group})
    np.testing.assert_array_equal(data.observations, VALUES[:, :3])
    assert data.notes == ()


@pytest.mark.parametrize("kind", ALL_WRITERS)
@pytest.mark.parametrize("role", ["observation", "reward", "action", "probability"])
def test_one_number_written_in_two_ways_is_refused(tmp_path, kind, role):
    group = {f"{role}.{name}": VALUES[:, 0] for name in ("0", "1", "01")}
    columns = {**(without(role) if role != "probability" else log()), **group}
    with pytest.raises(DataError, match=rf"'{role}\.0?1' and '{role}\.0?1' are both number 1"):
        read(ALL_WRITERS[kind](tmp_path, columns))


@pytest.mark.parametrize("kind", ALL_WRITERS)
def test_probabilities_are_in_the_order_of_the_actions(tmp_path, kind):
    chances = np.arange(1.0, 1 + 5 * WIDTH).reshape(5, WIDTH)
    chances /= chances.sum(axis=1, keepdims=True)
    groups = {
        f"{name}.{number}": chances[:, number]
        for name in ("probability", "next_probability")
        for number in TEXT_ORDER
    }
    data = read(ALL_WRITERS[kind](tmp_path, {**log(), **groups}))
    following, initial = data.recorded_probabilities()
    np.testing.assert_allclose(following, chances, rtol=1e-6)
    np.testing.assert_allclose(initial, chances[[0, 3]], rtol=1e-6)


def test_entries_of_a_minari_tuple(tmp_path):
    """Written as _index_0, _index_1, ...; HDF5 lists them by text."""
    logged = list(episodes(np.random.default_rng(0)))
    expected = []
    for episode in logged:
        rows = len(episode.pop("observations"))
        wide = 100.0 * np.arange(WIDTH) + np.arange(rows)[:, None]
        expected.append(wide[:-1])
        episode |= {f"observations/_index_{j}": wide[:, j] for j in TEXT_ORDER}
    space = {"type": "Tuple", "subspaces": [BOX] * WIDTH}
    write_hdf5(tmp_path, logged, observation_space=json.dumps(space))
    np.testing.assert_array_equal(read(tmp_path).observations, np.concatenate(expected))
