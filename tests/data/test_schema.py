"""One table says what the fields of a data set are, and everything that handles them reads it."""

import inspect

import numpy as np
import pytest

from fle.data import Dataset, read, read_cache, write_cache
from fle.data.dataset import restored
from fle.data.schema import FACTS, FIELDS, OTHER_ARRAYS, ROW_FIELDS, WORDS, Kind

ROWS = 6
# Two episodes of three rows each, interleaved, so that rows have to move.
EPISODES, STEPS = [7, 3, 7, 3, 7, 3], [0, 0, 1, 1, 2, 2]
SORTED = [0, 2, 4, 1, 3, 5]


@pytest.fixture
def full():
    """A data set in which no field is empty."""
    table = {
        "observation.a": np.arange(ROWS) / 3,
        "observation.b": np.arange(ROWS) * 2.0,
        "action": np.array([0, 1, 1, 0, 0, 1]),
        "reward": np.arange(ROWS) / 7,
        "episode": EPISODES,
        "step": STEPS,
        "terminated": np.array(STEPS) == 2,
        "importance": np.arange(1.0, ROWS + 1),
        "propensity": np.arange(1.0, ROWS + 1) / ROWS,
        "probability.0": np.linspace(0.0, 1.0, ROWS),
        "probability.1": np.linspace(1.0, 0.0, ROWS),
    }
    data = read(table, weight="importance").with_steps()
    assert any("rows were unsorted" in note for note in data.notes)
    assert all(getattr(data, name) is not None for name in (*ROW_FIELDS, *OTHER_ARRAYS))
    return data


def test_the_schema_is_all_that_a_data_set_holds(full):
    assert list(vars(full)) == list(FIELDS)
    assert (*ROW_FIELDS, *OTHER_ARRAYS, *FACTS) == tuple(FIELDS)


def test_users_may_give_what_has_a_check():
    checked = {name for name, field in FIELDS.items() if field.check is not None}
    arguments = inspect.signature(Dataset).parameters
    plain = {"number_of_actions", "reward_names", "observation_names", "action_names"}
    plain |= {"action_labels"}
    assert set(arguments) == checked | plain


def test_read_may_be_told_the_column_of_every_field():
    others = {"source", "probability", "number_of_actions"}
    # How columns are read, whatever they are called.
    others |= {"action_labels", "category", "missing", "elapsed"}
    arguments = set(inspect.signature(read).parameters) - others
    # Next probabilities belong to the probabilities, and are found by their name alone.
    assert arguments == set(WORDS) - {"next_probability"}


def test_every_given_field_moves_with_its_rows(full):
    np.testing.assert_array_equal(full.source_rows, SORTED)
    np.testing.assert_array_equal(full.observations[:, 1], 2.0 * np.array(SORTED))
    np.testing.assert_array_equal(full.rewards[:, 0], np.array(SORTED) / 7)
    np.testing.assert_array_equal(full.weights, 1.0 + np.array(SORTED))
    np.testing.assert_array_equal(full.propensities, (1.0 + np.array(SORTED)) / ROWS)
    np.testing.assert_array_equal(full.actions, [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(full.initial_observations[:, 1], [0.0, 2.0])


def test_a_subset_takes_every_row_field(full):
    part = full.subset([4, 0, 4])
    for name in ROW_FIELDS:
        np.testing.assert_array_equal(getattr(part, name), getattr(full, name)[[4, 0, 4]])
    for name in OTHER_ARRAYS:
        assert getattr(part, name) is not None


def test_the_cache_keeps_every_field(full, tmp_path):
    write_cache(full, tmp_path / "data.arrow")
    cached = read_cache(tmp_path / "data.arrow")
    for name, field in FIELDS.items():
        before, after = getattr(full, name), getattr(cached, name)
        if field.kind is Kind.FACT:
            assert (type(after), after) == (type(before), before)
        else:
            assert after.dtype == before.dtype
            np.testing.assert_array_equal(after, before)


def another(value):
    """Any other value of the same type."""
    if isinstance(value, np.ndarray):
        return ~value if value.dtype == bool else value + 1
    if isinstance(value, tuple):
        return (*value, "another")
    return not value if isinstance(value, bool) else (value or 0) + 1


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "prepared"])
def test_the_fingerprint_covers_what_identifies_the_data(full, name):
    changed = restored({**vars(full), name: another(getattr(full, name))})
    assert (changed.fingerprint != full.fingerprint) is FIELDS[name].identifies


def test_only_what_is_said_of_the_data_does_not_identify_it():
    said = ["observation_names", "action_names", "action_labels", "warnings", "notes"]
    # What was prepared is identified by its files instead.
    said += ["prepared"]
    assert [name for name in FIELDS if not FIELDS[name].identifies] == said


@pytest.mark.parametrize("name", [*ROW_FIELDS, *OTHER_ARRAYS])
def test_no_array_of_another_form_gets_in(full, name):
    with pytest.raises(ValueError, match=rf"{name}: expected .* got complex128 of shape"):
        restored({**vars(full), name: np.zeros(ROWS, dtype=complex)})


@pytest.mark.parametrize("name", ROW_FIELDS[1:])
def test_no_row_field_of_another_length_gets_in(full, name):
    with pytest.raises(ValueError, match=f"{name}: expected 6 rows, got 5"):
        restored({**vars(full), name: getattr(full, name)[1:]})


def test_arrays_are_read_only_however_the_data_set_was_made(full, tmp_path):
    write_cache(full, tmp_path / "data.arrow")
    given = {"observations": np.zeros((2, 1)), "actions": np.array([0, 1]), "rewards": np.zeros(2)}
    made = [
        full,
        full.subset([0, 1]),
        read_cache(tmp_path / "data.arrow"),
        Dataset(**given, terminations=[True, True]),
        Dataset.from_episodes([{**given, "terminated": True}, {**given, "terminated": True}]),
    ]
    for data in made:
        for name in (*ROW_FIELDS, *OTHER_ARRAYS):
            array = getattr(data, name)
            assert array is None or not array.flags.writeable
    assert given["observations"].flags.writeable
