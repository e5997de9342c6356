"""Logs as they come: text, categories, dates, gaps, and rows in no order."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from reader_logs import log, read_with_warnings, write_csv, write_parquet

from fle.data import Dataset, read, read_cache, write_cache
from fle.data.readers.arrow_tables import column_blocks
from fle.errors import DataError, SettingsError

# Two terminated episodes, of three and of two rows.
VISITS = ["2024-03-01", "2024-03-04", "2024-03-10", "2023-12-31", "2024-01-01"]
WARDS = ["icu", "er", "icu", "surgery", "er"]
DRUGS = ["B", "none", "A", "B", "none"]


def hospital(**changes):
    """The log of the readers, in a hospital's words."""
    columns = log(
        **{"observation.x": None, "observation.ward": np.array(WARDS), "step": np.array(VISITS)},
        action=np.array(DRUGS),
    )
    return {name: v for name, v in {**columns, **changes}.items() if v is not None}


def write_text(path, columns):
    """A CSV file as a spreadsheet writes it: nothing quoted, empty where a value is missing."""
    rows = zip(*columns.values(), strict=True)
    cells = [["" if v is None or v != v else str(v) for v in row] for row in rows]
    path.write_text("\n".join([",".join(columns), *(",".join(row) for row in cells)]) + "\n")
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars", "mapping"])
def test_text_is_coded_and_its_labels_are_kept(tmp_path, kind):
    columns = hospital(step=None)
    source = {
        "csv": lambda: write_csv(tmp_path / "log.csv", columns),
        "parquet": lambda: write_parquet(tmp_path / "log.parquet", columns),
        "pandas": lambda: pd.DataFrame(columns).astype({"observation.ward": "category"}),
        "polars": lambda: pl.DataFrame(columns),
        "mapping": lambda: columns,
    }[kind]()
    data = read(source)
    assert data.action_labels == ("A", "B", "none")
    np.testing.assert_array_equal(data.actions, [1, 2, 0, 1, 2])
    assert data.observation_names == ("y", "ward=er", "ward=icu", "ward=surgery")
    one_hot = [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    np.testing.assert_array_equal(data.observations[:, 1:], one_hot)
    assert "3 discrete (A, B, none)" in data.summary()
    write_cache(data, tmp_path / "cache.arrow")
    assert read_cache(tmp_path / "cache.arrow").action_labels == data.action_labels


def test_labels_may_name_actions_that_were_never_logged():
    data = read(hospital(step=None), action_labels=["none", "A", "B", "C"])
    assert data.number_of_actions == 4
    np.testing.assert_array_equal(data.actions, [2, 0, 1, 2, 0])
    with pytest.raises(DataError, match=r"column 'action', row 2 is 'A'; expected one of 'none'"):
        read(hospital(step=None), action_labels=["none", "B"])
    with pytest.raises(DataError, match="action_labels: expected 3 distinct names"):
        Dataset(
            observations=[[0.0], [1.0]],
            actions=[0, 1],
            rewards=[0.0, 1.0],
            terminations=[1, 1],
            number_of_actions=3,
            action_labels=["A", "B"],
        )


def test_a_label_among_numbers_is_a_slip_and_no_category():
    for column in ("observation.y", "action"):
        columns = hospital(step=None, **{column: np.array(["1", "2", "two", "1", "3"])})
        with pytest.raises(DataError, match=rf"'{column}', row 2 is the text 'two'"):
            read(columns)


def test_free_text_is_no_category():
    rows = 202
    columns = {
        "observation.note": [f"note {i}" for i in range(rows)],
        "action": np.arange(rows) % 2,
        "reward": np.ones(rows),
        "terminated": np.ones(rows, bool),
    }
    with pytest.raises(DataError, match="has 202 different values; expected at most 100"):
        read(columns)


def test_categories_of_numbers_are_named_by_the_user():
    columns = log(**{"observation.x": np.array([3, 1, 3, 7, 1])})
    data = read(columns, category="x")
    assert data.observation_names == ("x=1", "x=3", "x=7", "y")
    with pytest.raises(DataError, match=r"category: 'z' is none of the observation columns"):
        read(columns, category="z")


def test_columns_of_every_action_are_matched_by_label():
    """Sorted labels are A, B, none; the file has them in another order."""
    columns = hospital(step=None) | {
        "probability.none": np.full(5, 0.7),
        "probability.A": np.full(5, 0.1),
        "probability.B": np.full(5, 0.2),
    }
    following, initial = read(columns).recorded_probabilities()
    np.testing.assert_allclose(initial[0], [0.1, 0.2, 0.7], rtol=1e-6)
    np.testing.assert_allclose(following[0], [0.1, 0.2, 0.7], rtol=1e-6)
    wrong = {name.replace("bility.none", "bility.other"): v for name, v in columns.items()}
    with pytest.raises(DataError, match=r"expected one for each action, ending in 'A', 'B'"):
        read(wrong)


@pytest.mark.parametrize("kind", ["csv", "parquet", "mapping"])
def test_dates_order_an_episode(tmp_path, kind):
    order = [2, 4, 0, 1, 3]
    times = np.array(VISITS, dtype="datetime64[D]")
    columns = {name: np.asarray(v)[order] for name, v in hospital(step=times).items()}
    source = {
        "csv": lambda: write_csv(tmp_path / "log.csv", columns),
        "parquet": lambda: write_parquet(tmp_path / "log.parquet", columns),
        "mapping": lambda: columns,
    }[kind]()
    data, messages = read_with_warnings(source, elapsed="days")
    assert messages == ()
    assert any("rows were unsorted" in note for note in data.notes)
    np.testing.assert_array_equal(data.observations[:, 0], [10, 20, 30, 40, 50])
    assert data.observation_names[-1] == "elapsed"
    np.testing.assert_array_equal(data.observations[:, -1], [0, 3, 6, 0, 1])
    np.testing.assert_array_equal(data.next_observations[:2, -1], [3, 6])


def test_irregular_numbers_order_an_episode():
    """Milliseconds of a clock, beyond 32 bits, and with gaps of their own."""
    clock = 1_700_000_000_000 + np.array([0, 40, 75, 3, 50])
    data = read(log(step=clock), elapsed="number")
    np.testing.assert_array_equal(data.observations[:, -1], [0, 40, 35, 0, 47])
    np.testing.assert_array_equal(read(log(step=np.array([1, 2, 3, 1, 2]))).rewards[0], 0.5)
    np.testing.assert_array_equal(read(log(step=np.array([0.5, 0.7, 1.2, 3, 9]))).rewards[0], 0.5)
    with pytest.raises(DataError, match="elapsed: 'days' does not fit"):
        read(log(step=clock), elapsed="days")
    with pytest.raises(DataError, match="elapsed: expected an order column"):
        read(log(step=None), elapsed="number")
    with pytest.raises(SettingsError, match="elapsed: expected one of days"):
        read(log(), elapsed="weeks")


def test_a_spliced_episode_is_caught():
    """A row was dropped in the middle, as `dropna` does; the count of the steps shows it."""
    spliced = {name: np.delete(np.asarray(v), 1) for name, v in log().items()}
    with pytest.raises(DataError, match=r"episode 7: step 1 is missing; row 1 has step 2"):
        read(spliced)
    # In a count from 1, and in one that runs through the whole file.
    for steps in ([1, 3, 1, 2], [10, 12, 13, 14]):
        with pytest.raises(DataError, match=r"episode 7: step \d+ is missing; row 1 has step"):
            read({**spliced, "step": np.array(steps)})
    late = {name: np.delete(np.asarray(v), 3) for name, v in log().items()}
    late = {name: np.concatenate([v, v[:3]]) for name, v in late.items()}
    late["episode"] = np.array([7, 7, 7, 9, 8, 8, 8])
    with pytest.raises(DataError, match="episode 9: step 0 is missing; row 3 has step 1"):
        read(late)


def test_a_shuffled_episode_is_refused():
    order = [1, 2, 0, 3, 4]
    shuffled = {name: np.asarray(v)[order] for name, v in log(step=None).items()}
    with pytest.raises(DataError, match=r"terminated at row 1 but has rows after it.*step=\.\.\."):
        read(shuffled)
    # Nothing ends: the next observations show it,
    following = {
        "next_observation.x": np.array([2.0, 3, 6, 5, 7]),
        "next_observation.y": np.array([20.0, 30, 60, 50, 70]),
    }
    open_ended = log(step=None, terminated=np.zeros(5, bool), **following)
    order = [1, 0, 2, 3, 4]
    shuffled = {name: np.asarray(v)[order] for name, v in open_ended.items()}
    with pytest.raises(DataError, match=r"the rows are in no order.*step=\.\.\."):
        read(shuffled)
    # or a date beside them.
    dated = {**log(step=None, terminated=None, truncated=None), "date": np.array(VISITS, "M8[D]")}
    shuffled = {name: np.asarray(v)[order] for name, v in dated.items()}
    with pytest.raises(DataError, match=r"'date', row 1 is 2024-03-01, earlier.*step='date'"):
        read(shuffled)


def gappy(**changes):
    """A lab value that is missing twice in the first episode."""
    return log(**{"observation.x": [1.0, None, None, 4.0, 5.0], **changes})


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
def test_missing_values(tmp_path, kind):
    source = {
        "csv": lambda: write_text(tmp_path / "log.csv", gappy()),
        "parquet": lambda: write_parquet(tmp_path / "log.parquet", gappy()),
        "pandas": lambda: pd.DataFrame(gappy()),
    }[kind]()
    with pytest.raises(DataError, match=r"'observation\.x', row 1 is (null|nan).*would join"):
        read(source)
    carried = read(source, missing="forward")
    np.testing.assert_array_equal(carried.observations[:, 0], [1, 1, 1, 4, 5])
    shown = read(source, missing="indicator")
    assert shown.observation_names == ("x", "x missing", "y")
    # The median of 1, 4 and 5.
    np.testing.assert_array_equal(shown.observations[:, 0], [1, 4, 4, 4, 5])
    np.testing.assert_array_equal(shown.observations[:, 1], [0, 1, 1, 0, 0])
    assert len(carried) == len(shown) == 5
    with pytest.raises(SettingsError, match="missing: expected one of refuse, indicator, forward"):
        read(source, missing="drop")


def test_nothing_is_carried_from_another_episode():
    columns = gappy(**{"observation.x": [1.0, 2.0, 3.0, None, 5.0]})
    with pytest.raises(DataError, match=r"row 3 is missing, and nothing before it in its episode"):
        read(pd.DataFrame(columns), missing="forward")
    # In the order of the steps, not of the file.
    order = [2, 1, 0, 4, 3]
    shuffled = pd.DataFrame(gappy()).iloc[order].reset_index(drop=True)
    data, _ = read_with_warnings(shuffled, missing="forward")
    np.testing.assert_array_equal(data.observations[:, 0], [1, 1, 1, 4, 5])


def test_missing_categories():
    wards = ["icu", None, "icu", "surgery", None]
    columns = pd.DataFrame(hospital(step=None)).assign(**{"observation.ward": wards})
    data = read(columns, missing="forward")
    assert data.observation_names == ("y", "ward=icu", "ward=surgery")
    np.testing.assert_array_equal(data.observations[:, 1], [1, 1, 1, 0, 0])
    shown = read(columns, missing="indicator")
    assert shown.observation_names == ("y", "ward=icu", "ward=surgery", "ward missing")
    np.testing.assert_array_equal(shown.observations[1, 1:], [0, 0, 1])


@pytest.mark.parametrize("column", ["action", "reward"])
def test_an_episode_is_cut_where_an_action_or_a_reward_is_missing(column):
    """Rows 0 to 2 are one episode; without row 1, row 0 must not be followed by row 2."""
    cells = list(log()[column])
    cells[1] = None
    frame = pd.DataFrame(log(**{column: pd.Series(cells, dtype=object)}))
    with pytest.raises(DataError, match=f"column '{column}', row 1 is null"):
        read(frame)
    data, messages = read_with_warnings(frame, missing="forward")
    assert "1 rows have no action or no reward" in messages[0]
    assert "1 rows after them are left out" in messages[0]
    np.testing.assert_array_equal(data.source_rows, [0, 3, 4])
    np.testing.assert_array_equal(data.truncations, [True, False, False])
    np.testing.assert_array_equal(data.next_observations[0], [2, 20])
    np.testing.assert_array_equal(data.initial_observations[:, 0], [1, 4])
    _, complete = data.observed_returns(1.0)
    np.testing.assert_array_equal(complete, [False, True])


def test_no_next_observation_is_needed_after_the_end():
    frame = pd.DataFrame(
        log(
            **{
                "next_observation.x": [2.0, 3.0, None, 5.0, None],
                "next_observation.y": [20.0, 30.0, None, 50.0, None],
            }
        )
    ).convert_dtypes()
    assert len(read(frame)) == 5
    frame.loc[0, "next_observation.x"] = None
    with pytest.raises(DataError, match=r"'next_observation\.x', row 0 is null \(1 nulls\)"):
        read(frame)


def test_booleans_decimals_nullable_integers_and_words_for_flags(tmp_path):
    frame = pd.DataFrame(log(terminated=np.array(["no", "No", "yes", "no", "YES"])))
    frame["observation.x"] = frame["observation.x"].astype("Int64")
    frame["observation.y"] = frame["observation.y"] > 20
    data = read(frame)
    np.testing.assert_array_equal(data.terminations, [0, 0, 1, 0, 1])
    np.testing.assert_array_equal(data.observations, [[1, 0], [2, 0], [3, 1], [4, 1], [5, 1]])


def test_booleans_from_the_middle_of_a_byte():
    flags = np.random.default_rng(0).random(100) < 0.5
    column = pa.chunked_array([pa.array(flags).slice(3, 50), pa.array(flags).slice(72)])
    blocks, missing = column_blocks("log", "ends", column)
    np.testing.assert_array_equal(np.concatenate(blocks), [*flags[3:53], *flags[72:]])
    assert missing is None
    gaps = pa.chunked_array([pa.array([True, None, False] * 9).slice(2, 20)])
    (values,), missing = column_blocks("log", "ends", gaps)
    np.testing.assert_array_equal(values, ([False, True, False] * 7)[:20])
    np.testing.assert_array_equal(missing, ([False, False, True] * 7)[:20])
