"""Valid tables give their own numbers; damaged ones an FLEError or the right numbers."""

import warnings

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_logs import ALL_WRITERS, log, write_csv

from fle.data import read, read_cache, write_cache
from fle.errors import FLEError

FAST = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FIELDS = ("observations", "actions", "rewards", "next_observations", "terminations", "episodes")


def quietly(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(source, **options)


@st.composite
def tables(draw):
    """Whole terminated episodes of random lengths, in random order, and their true arrays."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    rows, width = sum(lengths), draw(st.integers(1, 3))
    finite = st.floats(-1e6, 1e6, width=32)
    observations = np.array(
        [[draw(finite) for _ in range(width)] for _ in range(rows)], dtype=np.float32
    )
    rewards = np.array([draw(st.floats(-1e9, 1e9)) for _ in range(rows)])
    actions = np.array([draw(st.integers(0, 4)) for _ in range(rows)])
    ids = draw(
        st.lists(st.integers(0, 2**62), min_size=len(lengths), max_size=len(lengths), unique=True)
    )
    episodes = np.repeat(np.array(ids), lengths)
    steps = np.concatenate([np.arange(length) for length in lengths])
    ends = np.concatenate([np.arange(length) == length - 1 for length in lengths])
    order = np.array(draw(st.permutations(range(rows))))
    columns = {"episode": episodes, "step": steps, "action": actions, "reward": rewards}
    columns |= {f"observation.{i}": observations[:, i].astype(float) for i in range(width)}
    columns["terminated"] = ends
    truth = {
        "observations": observations,
        "actions": actions,
        "rewards": rewards[:, None],
        "terminations": ends,
    }
    return {name: values[order] for name, values in columns.items()}, truth, order


@pytest.mark.parametrize("kind", ALL_WRITERS)
@FAST
@given(table=tables())
def test_valid_tables_come_back(tmp_path, kind, table):
    columns, truth, order = table
    data = quietly(ALL_WRITERS[kind](tmp_path, columns))
    # Where each row of the data stood in the true order.
    places = order[data.source_rows]
    assert sorted(places) == list(range(len(order)))
    for name, values in truth.items():
        np.testing.assert_array_equal(getattr(data, name), values[places])
    np.testing.assert_array_equal(np.diff(places)[~data.terminations[:-1]], 1)
    going_on = np.flatnonzero(~data.terminations)
    following = truth["observations"][places[going_on] + 1]
    np.testing.assert_array_equal(data.next_observations[going_on], following)
    write_cache(data, tmp_path / "cache.arrow")
    assert read_cache(tmp_path / "cache.arrow").fingerprint == data.fingerprint


NOT_NUMBERS = st.sampled_from([None, "left", float("nan"), float("inf"), "", [1.0], b"x", 2**70])


@pytest.mark.parametrize("kind", ALL_WRITERS)
@FAST
@given(data=st.data())
def test_a_spoilt_cell_is_found(tmp_path, kind, data):
    name = data.draw(st.sampled_from(["observation.x", "action", "reward", "terminated", "step"]))
    row, value = data.draw(st.integers(0, 4)), data.draw(NOT_NUMBERS)
    cells = log()[name].tolist()
    cells[row] = value
    columns = {**{other: values.tolist() for other, values in log().items()}, name: cells}
    try:
        source = ALL_WRITERS[kind](tmp_path, columns)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return  # Such a file cannot be written.
    if value == 2**70 and name in ("observation.x", "reward"):
        return  # Among floats this is a number like any other.
    with pytest.raises(FLEError) as caught:
        quietly(source)
    assert name.partition(".")[0] in str(caught.value)


@FAST
@given(data=st.data())
def test_missing_and_repeated_steps_are_found(data):
    rows = list(range(5))
    row = data.draw(st.integers(0, 4))
    if data.draw(st.booleans()):
        rows.insert(data.draw(st.integers(0, 5)), row)
        expected = "twice"
    else:
        rows.remove(row)
        # The last row of an episode is not missed by its steps, only by its missing end.
        expected = None if row in (2, 4) else "is missing"
    columns = {name: values[rows] for name, values in log().items()}
    if expected is None:
        assert not quietly(columns).terminations.all()
        return
    with pytest.raises(FLEError, match=expected):
        quietly(columns)


def write_damaged(kind, path):
    """A file whose format has checksums, in so far as it can have them."""
    columns = log()
    if kind == "parquet":
        pq.write_table(pa.table(columns), path, write_page_checksum=True)
    elif kind == "csv":
        write_csv(path, columns)
    elif kind == "npz":
        np.savez(path, **columns)
    elif kind == "arrow":
        write_cache(read(columns), path)
    else:
        with h5py.File(path, "w", libver="latest") as file:
            for name, values in columns.items():
                file.create_dataset(name, data=values, chunks=True, fletcher32=True)


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)


@pytest.fixture(params=["parquet", "npz", "arrow", "h5", "csv"])
def whole(request, tmp_path):
    path = tmp_path / f"log.{request.param}"
    write_damaged(request.param, path)
    return request.param, path, path.read_bytes()


@FAST
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file(whole, share):
    kind, path, content = whole
    path.write_bytes(content[: int(share * len(content))])
    try:
        data = quietly(path)
    except FLEError:
        return
    # A CSV has no end mark: cut at the end of a line, or within its last number, it is another.
    truth = quietly(log())
    assert kind == "csv" or same(data, truth)
    assert len(data) <= len(truth)


def names_changed(kind, path):
    """A flipped letter in a name makes another table; no checksum covers these names."""
    if kind == "npz":
        with np.load(path, allow_pickle=False) as archive:
            return set(archive.files) != set(log())
    return kind == "parquet" and set(pq.read_schema(path).names) != set(log())


@FAST
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit(whole, place, bit):
    kind, path, content = whole
    damaged = bytearray(content)
    damaged[int(place * len(content))] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        data = quietly(path)
    except FLEError:
        return
    # A CSV with another digit is a valid file with another number.
    assert kind == "csv" or same(data, quietly(log())) or names_changed(kind, path)


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz", "h5", "arrow"])
@FAST
@given(content=st.binary(max_size=200))
def test_random_bytes(tmp_path, kind, content):
    path = tmp_path / f"log.{kind}"
    path.write_bytes(content)
    with pytest.raises(FLEError, match="log"):
        quietly(path)
