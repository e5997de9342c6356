"""The cache gives back an equal data set, and the fingerprint tells unequal ones apart."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from fle.data import Dataset, read, read_cache, write_cache
from fle.data.passes import by_column
from fle.data.schema import FACTS, OTHER_ARRAYS, ROW_FIELDS
from fle.errors import DataError, FLEError

OPEN_END = np.array([False, True, False, False, False])


def example(**changes):
    valid = {
        "observations": np.arange(10, dtype=np.float32).reshape(5, 2) / 3,
        "actions": np.array([0, 1, 0, 1, 1]),
        "rewards": np.array([1.0, 2.0, 3.0, 4.0, 0.1]),
        "terminations": OPEN_END,
        "weights": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        "next_observations": np.arange(2, 12, dtype=np.float32).reshape(5, 2) / 3,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Dataset(**{**valid, **changes})


def quietly_read(columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(columns)


EXAMPLES = {
    "warned": example(),
    "discrete": example(
        observations=[3, 1, 0, 2, 1], next_observations=None, actions=np.ones((5, 2)) / 3
    ),
    "double": example(
        observations=np.full((5, 2), 1 / 3), next_observations=None, rewards=np.full((5, 2), 1e300)
    ),
    "timed": example(
        steps=[0, 1, 0, 1, 2], initial_observations=[[1.0, 2.0]], reward_names=("gain é",)
    ),
    "part": example().subset([1, 0]),
    "by column": quietly_read(
        {f"observation.{j}": np.arange(5.0) / (j + 3) for j in range(3)}
        | {"action": [0, 1, 0, 1, 1], "reward": np.ones(5), "episode": [0, 0, 1, 1, 1]}
        | {"terminated": OPEN_END, "truncated": ~OPEN_END & (np.arange(5) == 4)}
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_cache_restores_everything(tmp_path, name):
    data = EXAMPLES[name]
    write_cache(data, tmp_path / "data.arrow")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = read_cache(tmp_path / "data.arrow"), read(tmp_path / "data.arrow")
    # `read` says again what was said of the source.
    assert tuple(str(warning.message) for warning in caught) == data.warnings
    for restored in both:
        for field in (*ROW_FIELDS, *OTHER_ARRAYS):
            before, after = getattr(data, field), getattr(restored, field)
            if before is None:
                assert after is None
            else:
                assert after.dtype == before.dtype
                assert by_column(after) == by_column(before)
                np.testing.assert_array_equal(after, before)
                assert not after.flags.writeable
        for fact in FACTS:
            assert getattr(restored, fact) == getattr(data, fact)
        assert restored.fingerprint == data.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["data.arrow"]


def test_the_example_has_something_to_restore():
    assert by_column(EXAMPLES["by column"].observations)
    assert EXAMPLES["warned"].warnings


def test_numbers_are_stored_in_half_the_space_where_nothing_is_lost(tmp_path):
    whole = np.arange(20_000.0)
    sizes = []
    for rewards in (whole, whole + 1e-12 + 0.1):
        data = Dataset(
            observations=whole[:, None].astype(np.float32),
            actions=np.zeros(20_000, int),
            rewards=rewards,
            terminations=np.ones(20_000, bool),
        )
        write_cache(data, tmp_path / "data.arrow")
        np.testing.assert_array_equal(read_cache(tmp_path / "data.arrow").rewards, data.rewards)
        sizes.append((tmp_path / "data.arrow").stat().st_size)
    assert 75_000 < sizes[1] - sizes[0] < 85_000


def test_any_change_changes_the_fingerprint():
    changes = [
        {},
        {"rewards": np.array([1.0, 2.0, 3.0, 4.0, 0.1 + 1e-12])},
        {"actions": np.array([0, 1, 0, 1, 0])},
        {"terminations": np.array([False, True, False, False, True])},
        {"reward_names": ("gain",)},
        {"number_of_actions": 3},
        {"initial_observations": [[0.0, 0.0]]},
        {"weights": None},
    ]
    assert len({example(**change).fingerprint for change in changes}) == len(changes)


def test_the_fingerprint_is_the_same_in_another_process(tmp_path):
    np.savez(
        tmp_path / "log.npz",
        observations=np.arange(4.0)[:, None],
        actions=[0, 1, 0, 1],
        rewards=[1.0, 2.0, 3.0, 4.0],
        terminations=[0, 1, 0, 1],
    )
    code = f"from fle.data import read; print(read({str(tmp_path / 'log.npz')!r}).fingerprint)"
    answer = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    data = read(tmp_path / "log.npz")
    assert answer.stdout.strip() == data.fingerprint
    write_cache(data, tmp_path / "data.arrow")
    assert read_cache(tmp_path / "data.arrow").fingerprint == data.fingerprint


def test_a_damaged_cache_is_refused(tmp_path):
    path = tmp_path / "data.arrow"
    write_cache(example(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(DataError, match=r"data\.arrow: cannot be read as a data cache"):
        read_cache(path)
    # A weight of 5.0 becomes 5.5: still a fine Arrow file, but other numbers.
    place = whole.index(np.array([1, 2, 3, 4, 5], dtype=np.float32).tobytes()) + 16
    changed = whole[:place] + np.float32(5.5).tobytes() + whole[place + 4 :]
    path.write_bytes(changed)
    with pytest.raises(DataError, match=r"data\.arrow: the data cache is damaged"):
        read_cache(path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FLEError, match=r"data\.arrow cannot be written.*another directory"):
        write_cache(example(), tmp_path / "missing" / "data.arrow")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "data.arrow"
    write_cache(example(), path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FLEError, match=r"disk is full: .*data\.arrow needs [\d,]+ bytes"):
        write_cache(example(number_of_actions=5), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
