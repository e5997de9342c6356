"""Every bad table and episode, on the command line: exit 2, one line, nothing written."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_runs import EPISODES, LENGTH, ROWS, log, run, with_value, write


def refused(capsys, folder, data, *words):
    """The error of an evaluation that must not begin."""
    out = folder / "run"
    files = data if isinstance(data, list) else [data]
    given = ("--policy", "behaviour", "--gamma", "0.5", "--out", out, *words)
    answer = run(capsys, "evaluate", *files, *given)
    assert (answer.code, answer.out) == (2, "")
    assert not out.exists()
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    return errors[0]


def spoilt_columns():
    nested = [[1.0, 2.0]] * ROWS
    return {
        "nan reward": (with_value("reward", 7, np.nan), "'reward', row 7"),
        "infinite observation": (with_value("observation.x", 7, np.inf), "'observation.x', row 7"),
        "nan action": (with_value("action", 7, np.nan), "'action', row 7"),
        "null": (with_value("reward", 7, None), "'reward', row 7 is null"),
        "missing column": (log(reward=None, rewrd=np.zeros(ROWS)), "'rewrd'"),
        "text": (log(reward=np.array(["good"] * ROWS)), "'reward', row 0 is the text 'good'"),
        "ragged observation": (
            log(
                **{"observation.x": None, "observation.y": None},
                observation=[*nested[:-1], [1.0]],
            ),
            f"'observation', row {ROWS - 1} has a list of 1",
        ),
        "reward dimension varies": (
            log(reward=[*nested[:9], [1.0], *nested[10:]]),
            "'reward', row 9",
        ),
        "action dimension varies": (
            log(action=[*nested[:9], [1.0], *nested[10:]]),
            "'action', row 9",
        ),
        "one transition": ({k: v[:1] for k, v in log().items()}, "at least 2"),
        "integer beyond 32 bits": (with_value("action", 3, 2**40 + 5), f"row 3 is {2**40 + 5}"),
        "negative action": (with_value("action", 3, -2), "row 3 is -2"),
        "missing step": ({k: np.delete(v, 5) for k, v in log().items()}, "step 1 is missing"),
        "duplicate step": (
            {k: np.insert(v, 5, v[5]) for k, v in log().items()},
            "episode 1 has step 1 twice",
        ),
        "rows after terminated": (with_value("terminated", 1, True), "episode 0 is terminated"),
        "no initial states": (
            log(
                episode=None,
                step=None,
                terminated=None,
                truncated=None,
                **{
                    "next_observation.x": log()["observation.x"],
                    "next_observation.y": log()["observation.y"],
                },
            ),
            "no initial observations",
        ),
    }


@pytest.mark.parametrize("case", spoilt_columns())
def test_a_table_that_cannot_be_used(capsys, tmp_path, case):
    columns, message = spoilt_columns()[case]
    policy = () if case != "no initial states" else ("--policy", "m:f", "--allow-code")
    if policy:
        (tmp_path / "m.py").write_text("def f(x):\n    return [[0.5, 0.5]] * len(x)\n")
    path = write(tmp_path, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        error = refused(capsys, tmp_path, path, *policy)
    assert message in error
    # The rules for episodes speak of episodes, and have no file left to name.
    assert "log.parquet" in error or "episode" in error


@pytest.mark.parametrize(
    ("action", "message"),
    [(7, "row 3 is 7; expected 0 to 1"), (0.5, "row 3 is 0.5; expected a whole number")],
)
def test_an_action_outside_its_space(capsys, tmp_path, action, message):
    path = write(tmp_path, with_value("action", 3, action))
    assert message in refused(capsys, tmp_path, path, "--number-of-actions", 2)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz", ".h5", ".arrow"])
@pytest.mark.parametrize("content", [b"", b"\x00\xffnothing of the kind\x00" * 9])
def test_empty_and_foreign_files(capsys, tmp_path, suffix, content):
    path = tmp_path / f"log{suffix}"
    path.write_bytes(content)
    assert f"log{suffix}" in refused(capsys, tmp_path, path)


def test_a_torn_file(capsys, tmp_path):
    path = write(tmp_path, log())
    path.write_bytes(path.read_bytes()[:-20])
    assert "log.parquet" in refused(capsys, tmp_path, path)


def test_no_file_and_an_unknown_format(capsys, tmp_path):
    assert "no such file" in refused(capsys, tmp_path, tmp_path / "nothing.parquet")
    (tmp_path / "log.txt").write_text("hello")
    assert "unknown format" in refused(capsys, tmp_path, tmp_path / "log.txt")


def test_a_duplicate_column(capsys, tmp_path):
    table = pa.table(log())
    pq.write_table(table.append_column("reward", table["reward"]), tmp_path / "log.parquet")
    assert "'reward' appears 2 times" in refused(capsys, tmp_path, tmp_path / "log.parquet")


def test_shards_that_do_not_fit_together(capsys, tmp_path):
    first = write(tmp_path, log(), "a.parquet")
    second = write(tmp_path, log(extra=np.zeros(ROWS)), "b.parquet")
    error = refused(capsys, tmp_path, [first, second])
    assert "a.parquet" in error
    assert "b.parquet" in error
    write(tmp_path, log(), "b.parquet")
    assert "episode" in refused(capsys, tmp_path, [first, second])


def test_a_stranger_s_pickle_is_not_loaded(capsys, tmp_path):
    objects = np.array([{"a": 1}] * 3, dtype=object)
    np.savez(tmp_path / "log.npz", observations=objects, actions=[0, 1, 0], rewards=[1.0, 2, 3])
    assert "Python objects" in refused(capsys, tmp_path, tmp_path / "log.npz")


def test_a_mapping_of_columns_that_are_not_there(capsys, tmp_path):
    path = write(tmp_path, log())
    error = refused(capsys, tmp_path, path, "--reward", "rewards_total")
    assert "no column 'rewards_total' for reward" in error
    columns = log(terminated=None, truncated=None, done=log()["terminated"])
    error = refused(capsys, tmp_path, write(tmp_path, columns))
    # The Python spelling of the way out is put as an option.
    assert "--terminated 'done'" in error


def reservations():
    """Tables that are read, each with a warning or a note that carries the figure."""
    last = np.tile(np.arange(LENGTH) == LENGTH - 1, EPISODES)
    none = np.zeros(ROWS, dtype=bool)
    shuffled = np.random.default_rng(3).permutation(ROWS)
    following = {
        f"next_observation.{name}": np.append(log()[f"observation.{name}"][1:], 0.0)
        for name in "xy"
    }
    differing = following["next_observation.x"].copy()
    differing[[0, 1]] += 0.5
    once = {name: values[:LENGTH] for name, values in log().items()}
    return {
        "one episode": (once, "one episode only: no interval"),
        "float64 loss": (
            log(**{"observation.x": 1e9 + 31 * (np.arange(ROWS) % 7)}),
            # Float32 moves in steps of 64 there, so 31 beyond a multiple is lost.
            "'observation.x' loses up to 31 in float32",
        ),
        "unsorted": ({k: v[shuffled] for k, v in log().items()}, "rows were moved to sort"),
        "terminated and truncated": (
            log(truncated=last),
            f"{EPISODES} rows are both terminated and truncated",
        ),
        "neither at the end": (
            log(terminated=last & (np.arange(ROWS) < ROWS - 1), **following),
            f"1 of {EPISODES} episodes end with a row that is neither",
        ),
        "no terminals": (log(terminated=none, truncated=None, **following), "no row is terminated"),
        "bandit": (
            log(episode=np.arange(ROWS), step=None, terminated=~none),
            "bandit",
        ),
        "next observation differs": (
            log(**{**following, "next_observation.x": differing}),
            "the next observation of 2 rows differs",
        ),
        "truncated without next observation": (
            log(terminated=none, truncated=last),
            f"{EPISODES} truncated rows have no next observation and were dropped",
        ),
    }


@pytest.mark.parametrize("case", reservations())
def test_reservations_are_short_lines_on_stderr(capsys, tmp_path, case):
    columns, message = reservations()[case]
    answer = run(capsys, "check", write(tmp_path, columns))
    assert answer.code == 0
    said = answer.out if case in ("bandit", "unsorted") else answer.err
    assert message in said
    assert ("above" in answer.out) == bool(answer.err)


def test_what_looks_odd_and_works(capsys, tmp_path):
    odd = {
        "observation.größe": log()["observation.x"],
        "observation.x": None,
        "observation.y": np.ones(ROWS),
        "episode": log()["episode"] + 2**40,
    }
    answer = run(capsys, "check", write(tmp_path, log(**odd)))
    assert (answer.code, answer.err) == (0, "")
    assert "2 features, 1 of them constant" in answer.out
    assert f"{EPISODES} of {LENGTH} steps" in answer.out
