"""Where episodes end, what follows each row, and what is said about it."""

import warnings

import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import DataError, FLEWarning


def build(rows, **changes):
    """Rows with observation i + 1 and reward i."""
    valid = {
        "observations": np.arange(1.0, rows + 1)[:, None],
        "actions": np.zeros(rows, dtype=int),
        "rewards": np.arange(float(rows)),
    }
    return Dataset(**{**valid, **changes})


def build_with_warnings(rows, **changes):
    """The data, and the texts of its warnings; each is emitted at the caller and kept."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = build(rows, **changes)
    assert all(warning.category is FLEWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    assert tuple(str(warning.message) for warning in caught) == data.warnings
    return data, data.warnings


def only(messages):
    assert len(messages) == 1, messages
    return messages[0]


def test_next_observations_come_from_the_following_row():
    data = build(5, terminations=[0, 1, 0, 0, 1])
    # That of a terminated row is never used; the last row repeats its own.
    np.testing.assert_array_equal(data.next_observations[:, 0], [2, 3, 4, 5, 5])
    np.testing.assert_array_equal(data.episodes, [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(data.initial_observations[:, 0], [1, 3])
    assert data.warnings == ()


def test_the_memory_around_given_observations_is_left_alone():
    trajectory = np.arange(6.0)[:, None]
    data = build(5, observations=trajectory[:-1], terminations=[0, 1, 0, 0, 1])
    np.testing.assert_array_equal(data.next_observations[:, 0], [1, 2, 3, 4, 4])
    np.testing.assert_array_equal(trajectory[:, 0], np.arange(6.0))


def test_a_truncated_row_without_next_observation_is_dropped_and_never_terminal():
    data, messages = build_with_warnings(
        5, terminations=[0, 0, 0, 0, 1], truncations=[0, 1, 0, 0, 0]
    )
    assert "1 truncated rows have no next observation and were dropped" in only(messages)
    np.testing.assert_array_equal(data.source_rows, [0, 2, 3, 4])
    np.testing.assert_array_equal(data.next_observations[:, 0], [2, 4, 5, 5])
    np.testing.assert_array_equal(data.terminations, [False, False, False, True])
    # The row before it is now where the episode was cut.
    np.testing.assert_array_equal(data.truncations, [True, False, False, False])
    np.testing.assert_array_equal(data.observed_returns(1.0)[1], [False, True])
    assert data.number_of_source_rows == 5


def test_a_truncated_row_with_next_observation_is_kept():
    data = build(
        4,
        next_observations=[[2.0], [9.0], [4.0], [0.0]],
        terminations=[0, 0, 0, 1],
        truncations=[0, 1, 0, 0],
    )
    assert len(data) == 4
    np.testing.assert_array_equal(data.terminations, [False, False, False, True])
    np.testing.assert_array_equal(data.episodes, [0, 0, 1, 1])
    assert data.next_observations[1, 0] == 9.0


def test_the_start_of_an_episode_that_vanishes_is_still_an_initial_observation():
    data, _ = build_with_warnings(4, terminations=[0, 0, 0, 1], truncations=[1, 0, 0, 0])
    np.testing.assert_array_equal(data.initial_observations[:, 0], [1, 2])
    assert data.number_of_episodes == 1


def test_dropping_nearly_everything_is_an_error():
    with pytest.raises(DataError, match="1 rows are left after 2 rows without a next"):
        build(3, terminations=[0, 0, 1], truncations=[1, 1, 0])


def test_both_flags_at_once_mean_terminated():
    data, messages = build_with_warnings(4, terminations=[0, 1, 0, 1], truncations=[0, 1, 0, 0])
    assert "1 rows are both terminated and truncated (first: row 1)" in only(messages)
    np.testing.assert_array_equal(data.truncations, [False] * 4)
    np.testing.assert_array_equal(data.terminations, [False, True, False, True])


def test_a_last_row_with_neither_flag_is_truncated():
    data, messages = build_with_warnings(
        5,
        terminations=[0, 1, 0, 0, 0],
        next_observations=[[2.0], [0.0], [4.0], [5.0], [6.0]],
    )
    assert "1 of 2 episodes end with a row that is neither" in only(messages)
    np.testing.assert_array_equal(data.truncations, [False, False, False, False, True])


def test_a_last_row_with_neither_flag_nor_next_observation_is_dropped():
    data, messages = build_with_warnings(5, terminations=[0, 1, 0, 0, 0])
    assert len(messages) == 2
    assert "dropped" in messages[1]
    assert len(data) == 4


def test_nothing_that_ends_is_said_once_flags_are_absent():
    following = {"next_observations": np.zeros((3, 1)), "initial_observations": [[0.0]]}
    _, messages = build_with_warnings(3, **following)
    assert "no row is terminated and no truncations were given" in only(messages)
    # Infinite problems that say so, and time-dependent ones that end at a horizon, are fine.
    assert build(3, **following, truncations=np.zeros(3)).warnings == ()
    assert build(3, **following, steps=[1, 0, 1]).warnings == ()


def test_nothing_to_derive_next_observations_from():
    with pytest.raises(DataError, match="next_observations cannot be derived"):
        build(3)


def test_one_episode_gives_no_interval():
    _, messages = build_with_warnings(3, terminations=[0, 0, 1])
    assert "one episode only: no interval can be given" in only(messages)


def test_episodes_of_length_one_are_a_bandit():
    data = build(3, terminations=[1, 1, 1])
    assert data.notes == ("every episode has length one: this is a bandit problem",)
    assert "bandit" in data.summary()
    assert build(4, terminations=[0, 1, 0, 1]).notes == ()


def test_given_next_observations_that_differ_from_the_following_row_are_counted():
    data, messages = build_with_warnings(
        6,
        episodes=[0, 0, 0, 1, 1, 1],
        terminations=[0, 0, 1, 0, 0, 1],
        next_observations=[[2.0], [7.0], [0.0], [5.0], [8.0], [0.0]],
    )
    assert "the next observation of 2 rows differs" in only(messages)
    assert "first: row 1" in only(messages)
    np.testing.assert_array_equal(data.next_observations[:, 0], [2, 7, 0, 5, 8, 0])


def test_shuffled_transitions_have_no_episodes():
    data = build(
        4,
        next_observations=[[3.0], [1.0], [9.0], [0.0]],
        terminations=[0, 0, 1, 0],
        weights=[1] * 4,
    )
    assert data.episodes is None
    assert data.number_of_episodes is None
    assert not data.truncations.any()
    assert "episodes: unknown" in data.summary()
    with pytest.raises(DataError, match="episodes are unknown"):
        data.observed_returns(0.9)


def test_independent_transitions_tagged_with_steps_are_not_checked_as_episodes():
    data = build(
        5, next_observations=np.zeros((5, 1)), steps=[2, 0, 0, 5, 2], terminations=[0, 0, 0, 1, 0]
    )
    assert data.episodes is None
    np.testing.assert_array_equal(data.steps, [2, 0, 0, 5, 2])
    np.testing.assert_array_equal(data.initial_observations[:, 0], [2, 3])


def test_tagged_transitions_without_a_first_step_have_no_initial_observations():
    data = build(3, next_observations=np.zeros((3, 1)), steps=[1, 1, 2])
    assert data.initial_observations is None


def test_tagged_transitions_that_do_follow_each_other_form_episodes():
    data = build(
        4,
        next_observations=[[2.0], [0.0], [4.0], [0.0]],
        steps=[0, 1, 0, 1],
        terminations=[0, 1, 0, 1],
    )
    np.testing.assert_array_equal(data.episodes, [0, 0, 1, 1])


def test_steps_show_where_an_end_flag_is_missing():
    with pytest.raises(DataError, match="episode 0: step 2 is missing; row 2 has step 0"):
        build(4, steps=[0, 1, 0, 1], terminations=[0, 0, 0, 1])


def test_unsorted_rows_are_sorted_by_episode_and_step():
    data, messages = build_with_warnings(
        4, episodes=[8, 3, 3, 8], steps=[1, 0, 1, 0], terminations=[1, 0, 1, 0]
    )
    assert messages == ()
    assert any("unsorted: 4 of 4 rows were moved" in note for note in data.notes)
    # Episode 8 appears first, so it is number 0.
    np.testing.assert_array_equal(data.episodes, [0, 0, 1, 1])
    np.testing.assert_array_equal(data.observations[:, 0], [4, 1, 2, 3])
    np.testing.assert_array_equal(data.source_rows, [3, 0, 1, 2])
    np.testing.assert_array_equal(data.next_observations[:, 0], [1, 2, 3, 3])


def test_interleaved_episodes_without_steps_keep_their_order():
    data, messages = build_with_warnings(4, episodes=[0, 1, 0, 1], terminations=[0, 0, 1, 1])
    assert "keeping their order" in only(messages)
    np.testing.assert_array_equal(data.observations[:, 0], [1, 3, 2, 4])


def test_episode_ids_of_any_size_and_strings_are_renumbered():
    ends = {"terminations": [0, 1, 0, 1]}
    for ids in ([2**40, 2**40, 7, 7], ["b", "b", "a", "a"], [5.0, 5.0, 1.0, 1.0]):
        np.testing.assert_array_equal(build(4, episodes=ids, **ends).episodes, [0, 0, 1, 1])


def test_a_missing_step_is_named():
    with pytest.raises(DataError, match="episode 70: step 1 is missing; row 3 has step 2"):
        build(4, episodes=[50, 50, 70, 70], steps=[0, 1, 0, 2], terminations=[0, 1, 0, 1])


def test_steps_that_start_at_one_are_named():
    with pytest.raises(DataError, match=r"episode 0: step 0 is missing.*count from 0"):
        build(2, episodes=[0, 0], steps=[1, 2], terminations=[0, 1])


def test_a_duplicate_step_is_named():
    with pytest.raises(DataError, match=r"episode 7 has step 1 twice \(rows 3 and 4\)"):
        build(5, episodes=[5, 5, 7, 7, 7], steps=[0, 1, 0, 1, 1], terminations=[0, 1, 0, 0, 1])


@pytest.mark.parametrize("flag", ["terminations", "truncations"])
def test_rows_after_the_end_of_an_episode_are_an_error(flag):
    word = {"terminations": "terminated", "truncations": "truncated"}[flag]
    with pytest.raises(DataError, match=f"episode 4 is {word} at row 1 but has rows after it"):
        build(4, episodes=[4, 4, 4, 9], **{flag: [0, 1, 0, 1]})


def test_weights_that_only_lay_on_dropped_rows_are_an_error():
    with pytest.raises(DataError, match="weights: all are zero"):
        build(4, terminations=[0, 0, 0, 1], truncations=[0, 1, 0, 0], weights=[0, 1, 0, 0])


def test_copies_do_not_warn_again():
    data, messages = build_with_warnings(5, terminations=[0, 1, 0, 0, 0])
    for other in (data.subset([0, 1]), data.with_weights(np.ones(4)), data.with_steps()):
        assert other.warnings == messages
    assert "warning: " in data.summary()
