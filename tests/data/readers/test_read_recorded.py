"""Target policies whose probabilities are columns of the data."""

import numpy as np
import pytest
from reader_logs import log, read_with_warnings, write_parquet

from fle.data import read, read_cache, write_cache
from fle.errors import DataError
from fle.policies import RowProbabilities, tabulated

# Row i of the log has these probabilities at its own observation.
HERE = np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0, 1], [1, 0, 0], [0, 1, 0]])


def columns(probabilities=HERE, prefix="probability.", **changes):
    recorded = {f"{prefix}{action}": values for action, values in enumerate(probabilities.T)}
    return log(**recorded, **changes)


def table_of(data, name="probability"):
    following, initial = data.recorded_probabilities(name)
    policy = tabulated(RowProbabilities(next=following, initial=initial), data)
    return policy.following.probabilities, policy.initial.probabilities


def test_the_following_row_tells_the_next_probabilities(tmp_path):
    data = read(write_parquet(tmp_path / "log.parquet", columns()))
    following, initial = table_of(data)
    going_on = ~data.terminations
    np.testing.assert_array_equal(following[going_on], HERE[[1, 2, 4]])
    np.testing.assert_array_equal(initial, HERE[[0, 3]])


def test_a_dropped_row_still_tells_what_the_policy_does_there():
    ends = {"terminated": np.zeros(5, bool), "truncated": np.array([0, 0, 1, 0, 1], bool)}
    data, _ = read_with_warnings(columns(**ends))
    np.testing.assert_array_equal(data.source_rows, [0, 1, 3])
    np.testing.assert_array_equal(table_of(data)[0], HERE[[1, 2, 4]])


def test_rows_that_were_moved_are_found_again():
    order = [4, 1, 0, 3, 2]
    data, _ = read_with_warnings({name: values[order] for name, values in columns().items()})
    following, initial = table_of(data)
    np.testing.assert_array_equal(following[~data.terminations], HERE[[4, 1, 2]])
    np.testing.assert_array_equal(initial, HERE[[3, 0]])


def test_the_columns_say_how_many_actions_there_are():
    wide = np.column_stack([HERE, np.zeros((5, 9))])
    given = columns(wide)
    # In any order, since the names end in the code of the action; 10 comes after 9.
    data = read(dict(sorted(given.items())))
    assert data.number_of_actions == 12
    np.testing.assert_array_equal(table_of(data)[1], wide[[0, 3]])


def test_several_policies():
    given = {**columns(prefix="old_"), **columns(HERE[:, ::-1], prefix="new_")}
    data = read(given, probability={"old": "old_*", "new": "new_*"})
    assert data.probability_names == ("old", "new")
    np.testing.assert_array_equal(table_of(data, "old")[1], HERE[[0, 3]])
    np.testing.assert_array_equal(table_of(data, "new")[1], HERE[[0, 3], ::-1])


def test_they_outlive_a_subset_and_the_cache(tmp_path):
    data = read(columns())
    write_cache(data, tmp_path / "data.arrow")
    for other in (data.subset([3, 4]), read_cache(tmp_path / "data.arrow").subset([3, 4])):
        np.testing.assert_array_equal(table_of(other)[0][0], HERE[4])


def test_next_probabilities_may_be_given():
    ends = {"terminated": np.zeros(5, bool), "truncated": np.array([0, 0, 1, 0, 1], bool)}
    following = {
        "next_observation.x": [2.0, 3, 4, 5, 6],
        "next_observation.y": [20.0, 30, 4, 50, 6],
    }
    with pytest.raises(DataError, match="row 2 is truncated and has a next observation"):
        read(columns(**ends, **following))
    after = {f"next_probability.{action}": HERE[::-1, action] for action in range(3)}
    data = read(columns(**ends, **following, **after))
    np.testing.assert_array_equal(table_of(data)[0], HERE[::-1])


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (columns(), {"number_of_actions": 4}, "probability columns for 3 actions"),
        (log(**{"probability.0": HERE[:, 0], "probability.2": HERE[:, 1]}), {}, "end in 0, 2"),
        (columns(HERE[:, :2]), {}, "column 'action': row 2 is 2; expected 0 to 1"),
        (columns(), {"probability": "prob_*"}, "no column 'prob_\\*' for probability"),
        (columns(np.where(HERE == 1, np.nan, HERE)), {}, "column 'probability.0', row 3 is nan"),
    ],
)
def test_columns_that_do_not_fit(given, options, message):
    with pytest.raises(DataError, match=message):
        read(given, **options)


def test_asking_for_a_policy_that_is_not_there():
    with pytest.raises(DataError, match=r"no probability columns named 'probability'.*none"):
        read(log()).recorded_probabilities()
