"""A policy asked about the rows of a data set, and about where episodes start."""

import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import DataError, FLEWarning, PolicyError
from fle.policies import RowProbabilities, tabulated


def logged(**changes):
    """Two terminated episodes in states 0 to 4."""
    valid = {
        "observations": [0, 1, 2, 3, 4],
        "actions": [0, 1, 0, 1, 1],
        "rewards": np.ones(5),
        "terminations": [0, 1, 0, 0, 1],
    }
    return Dataset(**{**valid, **changes})


def tables(policy, data, **settings):
    result = tabulated(policy, data, **settings)
    return result.following, result.initial


def test_data_gives_a_table_for_next_and_for_initial_observations():
    data = logged()
    following, initial = tables(lambda states: states % 2, data)
    np.testing.assert_array_equal(following.actions[:, 0], data.next_observations % 2)
    np.testing.assert_array_equal(initial.actions[:, 0], [0, 0])


def test_draws_for_next_and_initial_observations_are_independent_and_repeat():
    data = logged(actions=np.zeros((5, 1)), initial_observations=[0, 1, 2, 3, 4])

    def policy(states, generator):
        return generator.normal(size=(len(states), 1))

    following, initial = tables(policy, data, draws=3, seed=4)
    assert following.actions.shape == initial.actions.shape == (5, 3, 1)
    assert not np.isin(following.actions, initial.actions).any()
    again, _ = tables(policy, data, draws=3, seed=4)
    np.testing.assert_array_equal(following.actions, again.actions)


def test_row_probabilities_follow_rows_that_were_sorted_dropped_or_chosen():
    # Row i of the given arrays has the probability i / 10 of action 1 at its next observation.
    share = np.arange(6) / 10
    policy = RowProbabilities(np.stack([1 - share, share], axis=1), np.full((2, 2), 0.5))
    with pytest.warns(FLEWarning) as caught:
        data = logged(
            observations=[0, 1, 2, 3, 4, 5],
            actions=[0, 1] * 3,
            rewards=np.ones(6),
            episodes=[0, 1, 0, 1, 0, 1],
            steps=[0, 2, 1, 1, 2, 0],
            terminations=np.zeros(6),
            truncations=[0, 0, 0, 0, 1, 0],
        )
    assert len(caught) == 2  # one open end, two rows dropped
    following, initial = tables(policy, data)
    np.testing.assert_allclose(following.probabilities[:, 1], [0.0, 0.2, 0.5, 0.3])
    np.testing.assert_allclose(initial.probabilities, 0.5)
    chosen, _ = tables(policy, data.subset([3, 0, 3]))
    np.testing.assert_allclose(chosen.probabilities[:, 1], [0.3, 0.0, 0.3])


def test_row_probabilities_of_terminated_rows_may_be_anything():
    rows = np.full((5, 2), 0.5)
    rows[1] = np.nan
    following, _ = tables(RowProbabilities(rows, np.full((2, 2), 0.5)), logged())
    np.testing.assert_allclose(following.probabilities, 0.5)
    rows[2] = np.nan
    with pytest.raises(PolicyError, match="next row 2, action 0 is nan"):
        tabulated(RowProbabilities(rows, np.full((2, 2), 0.5)), logged())


def test_row_probabilities_of_the_wrong_shape():
    good, start = np.full((5, 2), 0.5), np.full((2, 2), 0.5)
    for next_rows, initial_rows, message in (
        (good[:4], start, r"RowProbabilities.next: expected shape \(5, 2\), got \(4, 2\)"),
        (good, start[:1], r"RowProbabilities.initial: expected shape \(2, 2\), got \(1, 2\)"),
        (good, start * 3, "initial row 0 sums to 3"),
    ):
        with pytest.raises(PolicyError, match=message):
            tabulated(RowProbabilities(next_rows, initial_rows), logged())
    with pytest.raises(PolicyError, match="the actions are continuous"):
        tabulated(RowProbabilities(good, start), logged(actions=np.zeros((5, 2))))


def test_an_array_by_row_is_not_taken_for_one_by_state():
    data = logged(observations=[0, 1, 0, 1, 0])
    with pytest.raises(PolicyError, match=r"one row per row of the data.*RowProbabilities"):
        tabulated(np.full((5, 2), 0.5), data)
    following, _ = tables(np.full((2, 2), 0.5), data)
    assert following.candidates == 2


def test_data_without_initial_observations_is_refused():
    data = logged(terminations=[0, 0, 1, 0, 0], next_observations=[3, 3, 0, 1, 1])
    with pytest.raises(DataError, match="no initial observations"):
        tabulated(lambda states: states % 2, data)


def test_coverage_is_judged_once_and_said_in_words():
    # Five rows are fewer than the thirty that a headline number needs.
    result = tabulated(lambda states: states % 2, logged())
    assert not result.enough
    assert result.remarks == result.coverage.warnings
    assert len(result.remarks) == 2
    assert "the 5 rows are worth about" in result.in_words()
    assert result.as_plain() == {
        "share_unseen": result.coverage.share_unseen,
        "effective_sample_size": result.coverage.effective_sample_size,
        "rows": 5,
        "enough": False,
    }


def test_the_fingerprint_follows_the_answers():
    first = tabulated(lambda states: states % 2, logged())
    assert len(first.fingerprint) == 64
    assert first.fingerprint == tabulated(lambda states: states & 1, logged()).fingerprint
    assert first.fingerprint != tabulated(lambda states: 0 * states, logged()).fingerprint


def test_a_policy_is_asked_once_at_every_place():
    asked = []

    def policy(states):
        asked.append(len(states))
        return states % 2

    tabulated(policy, logged())
    assert asked == [5, 2]
