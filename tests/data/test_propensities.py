"""What a log says of the policy that wrote it: checked, and kept with its rows."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import fle
from fle.data import Dataset, read
from fle.errors import DataError

TABLE = {
    "observation": np.array([[0.0], [1.0], [2.0], [3.0]]),
    "action": np.array([0, 1, 0, 1]),
    "reward": np.arange(4.0),
    "terminated": np.array([False, True, False, True]),
}
LOGGED = np.array([0.5, 0.25, 1.0, 0.125])
# The logged action's entry is that of LOGGED.
WHOLE = np.array([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.75, 0.125, 0.125]])


def dataset(**changes):
    fields = {
        "observations": TABLE["observation"],
        "actions": TABLE["action"],
        "rewards": TABLE["reward"],
        "terminations": TABLE["terminated"],
    }
    return Dataset(**{**fields, **changes})


def by_action(table=WHOLE, prefix="propensity."):
    return {f"{prefix}{code}": table[:, code] for code in range(table.shape[1])}


def test_logged_ones_come_back():
    assert dataset().propensities is None
    np.testing.assert_array_equal(dataset(propensities=LOGGED).propensities, LOGGED)
    np.testing.assert_array_equal(dataset(propensities=LOGGED[:, None]).propensities, LOGGED)


def test_all_actions_at_once_say_how_many_there_are():
    data = dataset(propensities=WHOLE)
    np.testing.assert_array_equal(data.propensities, WHOLE)
    assert data.number_of_actions == 3


def test_rounding_of_what_was_stored_is_mended():
    # In float32 a third is not a third, and 1 + 1e-7 is what a softmax may give.
    thirds = np.full((4, 3), 1 / 3, np.float32)
    sums = dataset(propensities=thirds).propensities.sum(axis=1)
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-15)
    assert dataset(propensities=[1 + 1e-7, 1, 1, 1]).propensities.max() == 1


def test_continuous_actions_have_densities():
    data = dataset(actions=np.ones((4, 2)) / 3, propensities=7 * LOGGED)
    np.testing.assert_array_equal(data.propensities, 7 * LOGGED)
    assert data.propensities_in_words() == "logged, densities from 0.875 to 7"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"propensities": [0.5, 0, 1, 1]}, "row 1 is 0.0; expected a probability, above 0"),
        ({"propensities": [0.5, 1, 1.5, 1]}, r"row 2 is 1.5; .* \(1 such rows\); repair them"),
        ({"propensities": [0.5, np.nan, 1, 1]}, "row 1 is nan; expected a finite number"),
        ({"propensities": [0.5, 1, 1]}, "propensities has 3 rows but observations has 4"),
        ({"propensities": np.full((4, 3), 0.2)}, "row 0 is .*, with sum 0.6; expected"),
        ({"propensities": WHOLE - [[0.75, 0, -0.75]]}, "row 0 is .* expected probabilities"),
        ({"propensities": WHOLE[:, [1, 2, 0]]}, "row 1 is|row 2 is 0 for the logged action 0"),
        ({"propensities": WHOLE, "number_of_actions": 2}, "has 3 columns but there are 2 actions"),
        ({"propensities": WHOLE[:, :2], "actions": [0, 2, 0, 1]}, "2 columns .* 3 actions"),
        (
            {"propensities": WHOLE, "actions": np.ones((4, 1)) / 3},
            "one density per row because actions are continuous",
        ),
        (
            {"propensities": -LOGGED, "actions": np.ones((4, 1)) / 3},
            "row 0 is -0.5; expected a density, above 0",
        ),
        ({"propensities": np.ones((4, 2, 2))}, "expected one number per row, or one per row and"),
    ],
)
def test_what_no_policy_can_have_done_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        dataset(**changes)


def test_names_are_known_or_mapped():
    named = read({**TABLE, "propensity": LOGGED})
    mapped = read({**TABLE, "mu": LOGGED}, propensity="mu")
    for data in (named, mapped):
        np.testing.assert_array_equal(data.propensities, LOGGED)
    assert read({**TABLE, "mu": LOGGED}).propensities is None


def test_columns_of_actions_come_in_the_order_of_the_actions():
    columns = by_action()
    data = read({**TABLE, **dict(reversed(columns.items()))})
    np.testing.assert_array_equal(data.propensities, WHOLE)
    assert data.number_of_actions == 3
    assert any("propensity columns are taken in the order of" in note for note in data.notes)
    mapped = read({**TABLE, **by_action(prefix="mu_")}, propensity="mu_*")
    np.testing.assert_array_equal(mapped.propensities, WHOLE)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"propensity.0": LOGGED, "propensity.2": LOGGED}, "columns end in 0, 2; expected"),
        ({"propensity": LOGGED, **by_action()}, "could both be the propensity"),
        ({**by_action(), **by_action(WHOLE[:, :2], "probability.")}, "2 actions, but propensity"),
        ({"propensity": 2 * LOGGED}, "column 'propensity': row 2 is 2.0"),
        ({"propensty": LOGGED}, "'propensty' is almost 'propensity'"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(columns, message):
    with pytest.raises(DataError, match=message):
        read({**TABLE, **columns})


@pytest.mark.parametrize("form", ["parquet", "csv", "npz"])
@pytest.mark.parametrize("columns", [{"propensity": LOGGED}, by_action()], ids=["one", "all"])
def test_files_keep_them(form, columns, tmp_path):
    table, path = {**TABLE, **columns}, tmp_path / f"log.{form}"
    table["observation"] = table["observation"][:, 0]
    if form == "npz":
        np.savez(path, **table)
    elif form == "csv":
        pyarrow.csv.write_csv(pa.table(table), path)
    else:
        pq.write_table(pa.table(table), path)
    expected = np.stack(list(columns.values()), axis=1)
    np.testing.assert_array_equal(read(path).propensities.reshape(4, -1), expected)


def test_episodes_have_them_all_or_none():
    episode = {"observations": [[0.0], [1.0]], "actions": [0, 1], "rewards": [0.0, 1.0]}
    episode["terminated"] = True
    given = {**episode, "propensities": [0.5, 0.25]}
    np.testing.assert_array_equal(
        Dataset.from_episodes([given, given]).propensities, [0.5, 0.25, 0.5, 0.25]
    )
    with pytest.raises(DataError, match="propensities of episode 0 are missing, but episode 1"):
        Dataset.from_episodes([episode, given])
    with pytest.raises(DataError, match="2 actions but 1 propensities"):
        Dataset.from_episodes([{**episode, "propensities": [0.5]}])


def test_they_are_shown():
    assert "propensities: logged, of every action" in dataset(propensities=WHOLE).summary()
    words = "propensities: logged, probabilities from 0.125 to 1"
    assert words in fle.Dataset.summary(dataset(propensities=LOGGED))
    assert "propensities" not in dataset().summary()
