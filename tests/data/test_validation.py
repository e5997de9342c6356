"""Every field that cannot be used is refused, and the message names the place."""

import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import DataError, FLEError

ROWS = 4


def fields(**changes):
    """Four rows of two closed episodes, with the given fields replaced."""
    valid = {
        "observations": np.arange(8.0).reshape(ROWS, 2),
        "actions": np.array([0, 1, 0, 1]),
        "rewards": np.ones(ROWS),
        "terminations": np.array([False, True, False, True]),
    }
    return {**valid, **changes}


def with_value(array, place, value):
    changed = np.array(array, dtype=float)
    changed[place] = value
    return changed


def test_the_valid_fields_pass():
    assert len(Dataset(**fields())) == ROWS


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "clean", "place", "where"),
    [
        ("observations", np.zeros((ROWS, 2)), (2, 1), "row 2, column 1"),
        ("next_observations", np.zeros((ROWS, 2)), (3, 0), "row 3, column 0"),
        ("initial_observations", np.zeros((5, 2)), (4, 1), "row 4, column 1"),
        ("actions", np.zeros((ROWS, 3)), (1, 2), "row 1, column 2"),
        ("rewards", np.zeros((ROWS, 2)), (3, 1), "row 3, column 1"),
        ("weights", np.ones(ROWS), (2,), "row 2"),
        ("steps", np.zeros(ROWS), (1,), "row 1"),
    ],
)
def test_a_value_that_is_not_finite_is_named(name, clean, place, where, value):
    with pytest.raises(DataError, match=rf"{name}: {where} is -?(nan|inf)"):
        Dataset(**fields(**{name: with_value(clean, place, value)}))


def test_a_nan_reward_in_one_dimension_is_an_error():
    with pytest.raises(DataError, match="rewards: row 1, column 0 is nan"):
        Dataset(**fields(rewards=[1.0, np.nan, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("rewards", [1.0, None, 1.0, 1.0], "rewards: row 1 is null"),
        ("observations", [[0.0, 1.0], [0.0, None], [0.0, 1.0], [0.0, 1.0]], "row 1 is null"),
        ("rewards", np.ma.masked_array(np.ones(ROWS), mask=[0, 0, 1, 0]), "row 2 is null"),
        ("rewards", [1.0, 2.0, "high", 1.0], "rewards: row 2 is 'high' .str."),
        ("rewards", np.array(["a", "b", "c", "d"]), "rewards: row 0 is .*'a'"),
        ("rewards", np.array([1.0, 2.0, {}, 1.0], dtype=object), "rewards: row 2 is {}"),
        ("rewards", np.array([1.0] * ROWS, dtype=object), r"object array; convert"),
        ("rewards", [[1, 2], [1, 2], [1], [1, 2]], r"rewards: row 2 has shape \(1,\).*ragged"),
        ("observations", [[1.0], [1.0, 2.0], [1.0], [1.0]], "observations: row 1 .*ragged"),
        ("observations", [[[1], [1, 2]]] * ROWS, "observations: row 0 is ragged"),
        ("rewards", np.ones(ROWS, dtype=complex), "rewards: expected real numbers.*complex"),
        ("rewards", 1.0, "rewards: expected an array with one item per row, got 1.0"),
        ("rewards", np.zeros((ROWS, 2, 2)), r"rewards: expected shape \(n,\) or \(n, d\)"),
        ("rewards", np.zeros((ROWS, 0)), "rewards: expected shape"),
        ("observations", np.zeros((ROWS, 0)), "observations: expected at least one column"),
        ("rewards", np.zeros(0), "rewards is empty"),
        ("rewards", np.array(["2020-01-01"] * ROWS, "M8[D]"), "rewards: row 0 is"),
    ],
)
def test_values_that_are_not_numbers_are_named(name, values, message):
    with pytest.raises(DataError, match=message):
        Dataset(**fields(**{name: values}))


@pytest.mark.parametrize(
    "name",
    [
        "actions",
        "rewards",
        "next_observations",
        "terminations",
        "truncations",
        "episodes",
        "steps",
        "weights",
    ],
)
def test_a_length_that_differs_names_both_fields(name):
    values = np.zeros((3, 2)) if name == "next_observations" else np.ones(3, dtype=int)
    with pytest.raises(DataError, match=f"{name} has 3 rows but observations has 4"):
        Dataset(**fields(**{name: values}))


def test_no_rows_and_one_row_are_too_few():
    with pytest.raises(DataError, match="observations is empty"):
        Dataset(observations=[], actions=[], rewards=[])
    with pytest.raises(DataError, match="1 transition; expected at least 2"):
        Dataset(observations=[[0.0]], actions=[0], rewards=[1.0], terminations=[True])


@pytest.mark.parametrize(
    ("actions", "count", "message"),
    [
        ([0, 1, 2, 1], 2, "actions: row 2 is 2; expected 0 to 1"),
        ([0, -1, 0, 1], 2, "actions: row 1 is -1; expected 0 to 1"),
        ([0, -1, 0, 1], None, "actions: row 1 is -1"),
        ([0.0, 1.0, 0.5, 1.0], 2, "actions: row 2 is 0.5; expected a whole number"),
        (np.zeros((ROWS, 2), dtype=int), None, r"actions: expected one integer code"),
        (np.zeros((ROWS, 2)), 2, r"actions: expected one integer code per row.*\(4, 2\)"),
        ([0, 1, 0, 2**40], None, "actions: row 3 is 1099511627776.*renumber"),
        ([0, 1, 0, 2**70], None, "actions: row 3 .*beyond 64 bits; renumber"),
        ([0.0, 1.0, 0.0, 1e30], 2, "actions: expected integers of at most 64 bits"),
        ([0, 1, 0, 1], 0, "number_of_actions: expected a positive integer, got 0"),
        ([0, 1, 0, 1], 2.0, "number_of_actions: expected a positive integer, got 2.0"),
        ([0, 1, 0, 1], True, "number_of_actions: expected a positive integer, got True"),
    ],
)
def test_actions_outside_the_space_are_refused(actions, count, message):
    with pytest.raises(DataError, match=message):
        Dataset(**fields(actions=actions, number_of_actions=count))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": [0, 1, -1, 0]}, "observations: row 2 is -1"),
        ({"observations": [0, 1, 2**33, 0]}, "observations: row 2 is 8589934592.*renumber"),
        ({"observations": np.array([0, 1, 2**63, 0], np.uint64)}, "row 2 is 9223372036854775808"),
        ({"next_observations": np.zeros((ROWS, 3))}, "next_observations has width 3 but"),
        ({"initial_observations": np.zeros((2, 1))}, "initial_observations has width 1 but"),
        ({"initial_observations": np.zeros(2)}, "initial_observations has width 1 but"),
        (
            {"observations": [0, 1, 2, 0], "next_observations": [0.5, 1.0, 2.0, 0.0]},
            "next_observations: expected 1-d integer states",
        ),
        (
            {"observations": np.zeros((ROWS, 1), np.float32), "next_observations": [1e300] * ROWS},
            "next_observations: row 0, column 0 is inf",
        ),
    ],
)
def test_observations_outside_the_space_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        Dataset(**fields(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terminations": [0, 1, 0, 2]}, "terminations: row 3 is 2; expected True or False"),
        ({"truncations": np.zeros((ROWS, 2))}, "truncations: expected one flag per row"),
        ({"steps": [0, -1, 0, 1]}, "steps: row 1 is -1"),
        ({"steps": [0, 0.5, 0, 1]}, "steps: row 1 is 0.5; expected a whole number"),
        ({"weights": [1, 1, -2, 1]}, "weights: row 2 is -2.0; expected 0 or more"),
        ({"weights": np.zeros(ROWS)}, "weights: all are zero"),
        ({"episodes": [0, 0, 1.5, 1]}, "episodes: row 2 is 1.5; expected a whole number"),
        ({"episodes": [0, 0, None, 1]}, "episodes: row 2 is null"),
        ({"reward_names": ["a", "b"]}, "reward_names: expected 1 distinct names"),
        ({"rewards": np.ones((ROWS, 2)), "reward_names": ["a", "a"]}, "expected 2 distinct"),
        ({"rewards": np.ones((ROWS, 2)), "reward_names": "ab"}, "expected 2 distinct"),
        ({"reward_names": [""]}, "reward_names: expected 1 distinct"),
    ],
)
def test_other_fields_are_checked(changes, message):
    with pytest.raises(DataError, match=message):
        Dataset(**fields(**changes))


def test_a_data_error_is_a_value_error():
    assert issubclass(DataError, FLEError)
    assert issubclass(DataError, ValueError)
