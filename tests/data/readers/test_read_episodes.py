"""How rows hang together into episodes, as read from files."""

import numpy as np
import pytest
from reader_logs import OBSERVATIONS, REWARDS, log, read_with_warnings, write_parquet

from fle.data import read
from fle.errors import DataError


@pytest.fixture
def file(tmp_path):
    def write(**changes):
        return write_parquet(tmp_path / "log.parquet", log(**changes))

    return write


def flags(*rows):
    return np.isin(np.arange(5), rows)


def only(messages):
    assert len(messages) == 1, messages
    return messages[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": np.array([0, 1, 3, 0, 1])}, "episode 7: step 2 is missing; row 2 has step 3"),
        ({"step": np.array([0, 1, 1, 0, 1])}, r"episode 7 has step 1 twice \(rows 1 and 2\)"),
        ({"step": np.array([1, 2, 3, 0, 1])}, "episode 7: step 0 is missing"),
        ({"terminated": flags(1, 4)}, "episode 7 is terminated at row 1 but has rows after it"),
        ({"truncated": flags(0)}, "episode 7 is truncated at row 0 but has rows after it"),
    ],
)
def test_episodes_that_contradict_themselves(file, changes, message):
    with pytest.raises(DataError, match=rf"log\.parquet: {message}"):
        read(file(**changes))


def shards(tmp_path, *parts):
    for number, columns in enumerate(parts):
        write_parquet(tmp_path / f"part-{number}.parquet", columns)
    return tmp_path


@pytest.mark.parametrize("step", [None, np.array([0, 1, 2, 0, 1])])
def test_an_id_reused_in_another_file(tmp_path, step):
    again = log(episode=np.array([8, 8, 8, 9, 9]), step=step)
    folder = shards(tmp_path, log(step=step), again)
    message = r"episode 9.* is in .*part-0\.parquet and again in .*part-1\.parquet"
    with pytest.raises(DataError, match=message):
        read(folder)


def test_an_episode_that_goes_on_in_another_file(tmp_path):
    columns = log()
    first = {name: values[:2] for name, values in columns.items()}
    second = {name: values[2:] for name, values in columns.items()}
    data = read(shards(tmp_path, first, second))
    assert data.number_of_episodes == 2
    np.testing.assert_array_equal(data.observations, OBSERVATIONS)
    # Without steps nothing shows that it goes on.
    del first["step"], second["step"]
    with pytest.raises(DataError, match=r"episode 7 is in .* and again in"):
        read(shards(tmp_path, first, second))


def test_rows_of_a_later_file_are_named_by_that_file(tmp_path):
    later = log(episode=np.array([1, 1, 1, 2, 2]), reward=np.array([1.0, 2, 3, np.nan, 5]))
    with pytest.raises(DataError, match=r"part-1\.parquet: column 'reward', row 3 is nan"):
        read(shards(tmp_path, log(), later))


def test_unsorted_rows_are_sorted(file):
    order = [4, 1, 0, 3, 2]
    columns = {name: values[order] for name, values in log().items()}
    data, messages = read_with_warnings(file(**columns))
    # The step is there to sort by, so sorting is no reservation.
    assert messages == ()
    assert any("rows were unsorted: " in note for note in data.notes)
    # The episode that appears first comes first.
    np.testing.assert_array_equal(data.observations, OBSERVATIONS[[3, 4, 0, 1, 2]])
    np.testing.assert_array_equal(data.rewards[:, 0], REWARDS[[3, 4, 0, 1, 2]])
    np.testing.assert_array_equal(data.source_rows, [3, 0, 2, 1, 4])


def test_terminated_wins_over_truncated(file):
    data, messages = read_with_warnings(file(truncated=flags(2)))
    assert "1 rows are both terminated and truncated (first: row 2)" in only(messages)
    assert not data.truncations.any()


def test_an_open_end_is_truncated_and_dropped(file):
    data, messages = read_with_warnings(file(terminated=flags(2)))
    assert "1 of 2 episodes end with a row that is neither" in messages[0]
    assert "1 truncated rows have no next observation and were dropped" in messages[1]
    assert len(data) == 4
    np.testing.assert_array_equal(data.terminations, flags(2)[:4])
    np.testing.assert_array_equal(data.truncations, flags(3)[:4])


def test_no_end_at_all(file):
    _, messages = read_with_warnings(file(terminated=None, truncated=None))
    assert "no row is terminated and no truncations were given" in messages[0]


def test_nothing_says_where_episodes_end(file):
    with pytest.raises(DataError, match="nothing says where episodes end"):
        read(file(terminated=None, truncated=None, episode=None, step=None))


def test_episodes_of_length_one_are_a_bandit(file):
    changes = {
        "episode": np.arange(5),
        "step": np.zeros(5, int),
        "terminated": flags(0, 1, 2, 3, 4),
    }
    data = read(file(**changes))
    assert data.notes == ("every episode has length one: this is a bandit problem",)


def test_a_next_observation_that_is_not_the_following_one(file):
    following = np.array([2.0, 8.0, 0.0, 5.0, 0.0])
    changes = {"next_observation.x": following, "next_observation.y": [20.0, 30.0, 0, 50, 0]}
    data, messages = read_with_warnings(file(**changes))
    assert "the next observation of 1 rows differs" in only(messages)
    assert "(first: row 1)" in messages[0]
    np.testing.assert_array_equal(data.next_observations[:, 0], following)


def test_a_reward_dimension_that_varies():
    with pytest.raises(DataError, match="the mapping: array 'rewards': row 1"):
        read({**log(reward=None), "rewards": [[1.0, 2.0], [1.0], [1.0], [1.0], [1.0]]})


def test_constant_features_and_rewards_of_any_scale_are_read(file):
    data = read(file(**{"observation.x": np.full(5, 0.1), "reward": 1e9 * REWARDS}))
    np.testing.assert_array_equal(data.rewards[:, 0], 1e9 * REWARDS)
