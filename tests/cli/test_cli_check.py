"""`fle check` on a log with many faults at once, its table of columns, and the file it writes."""

import json
import tomllib

import numpy as np
import pandas as pd
from cli_runs import LENGTH, QUICK, ROWS, log, run, write


def faulty():
    """Seven faults, each of another kind."""
    columns = {name: pd.Series(np.asarray(v)).astype(object) for name, v in log().items()}
    columns["observation.x"][11] = None  # a missing value
    columns["observation.y"][21] = np.inf  # no finite number
    columns["reward"][31] = "n.a."  # text among numbers
    columns["action"][41] = -2  # no action
    columns["terminated"][50] = True  # rows after the end
    columns["step"][63] = 9  # a step that is left out
    columns["propensity"] = pd.Series(np.full(ROWS, 0.5)).astype(object)
    columns["propensity"][70] = 1.5  # no probability
    return columns


def write_csv(path, columns):
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_seven_faults_are_named_at_once(capsys, tmp_path):
    path = write_csv(tmp_path / "log.csv", faulty())
    answer = run(capsys, "check", path)
    assert answer.code == 2
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    expected = [
        "'observation.x', row 11 is null",
        "'observation.y', row 21 is inf",
        "'reward', row 31 is the text 'n.a.'",
        "row 41 is -2",
        "is terminated at row 50 but has rows after it",
        "step 3 is missing; row 63 has step 9",
        "row 70 is 1.5; expected a probability",
    ]
    for text in expected:
        assert sum(text in error for error in errors) == 1, (text, errors)
    assert len(errors) == 7
    assert "7 problems, above" in answer.out
    document = json.loads(run(capsys, "check", path, "--json").out)
    assert len(document["problems"]) == document["exit_code"] + 5 == 7


def test_missing_columns_are_named_together(capsys, tmp_path):
    answer = run(capsys, "check", write(tmp_path, log(reward=None, action=None)))
    assert "no action column" in answer.err
    assert "no reward column" in answer.err


def test_a_table_of_columns_with_the_suspicious_ones_first(capsys, tmp_path):
    """A heart rate of -40 among values from 60 to 100."""
    rates = np.random.default_rng(0).uniform(60, 100, ROWS)
    rates[33] = -40.0
    columns = log(**{"observation.rate": rates, "note": np.array(["seen"] * ROWS)})
    answer = run(capsys, "check", write(tmp_path, columns))
    assert answer.code == 0
    lines = answer.out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("column "))
    assert lines[heading + 1].startswith("observation.rate")
    assert "row 33 is -40; 98% lie from 6" in lines[heading + 1]
    assert any(line.startswith("note") and "not used" in line for line in lines)
    # Uniform values have none that stand apart.
    assert not any("row" in line for line in lines[heading + 2 :] if "observation." in line)


def test_the_file_that_is_written_is_taken_by_evaluate(capsys, tmp_path):
    drugs = np.array(["A", "none"])[log()["action"]]
    dates = np.datetime64("2024-01-01") + 3 * np.tile(np.arange(LENGTH), ROWS // LENGTH)
    frame = pd.DataFrame(log(action=drugs, step=None)).assign(date=dates)
    frame = frame.sample(frac=1, random_state=0)
    path = write_csv(tmp_path / "log.csv", frame)
    mapping = tmp_path / "mapping.toml"
    assert "step=" not in (answer := run(capsys, "check", path)).err
    assert answer.code == 2
    assert "--step 'date'" in answer.err
    given = ("--step", "date", "--elapsed", "days", "--write", mapping)
    answer = run(capsys, "check", path, *given)
    assert answer.code == 0
    assert "A: " in answer.out
    written = tomllib.loads(mapping.read_text(encoding="utf-8"))
    assert written["step"] == "date"
    # The command as it can be typed where this one was.
    assert mapping.read_text().startswith(f"# fle evaluate --config {mapping}\n")
    assert written["observation"] == ["observation.x", "observation.y"]
    out = tmp_path / "run"
    words = ("--config", mapping, "--policy", "behaviour", "--horizon", "2", "--out", out, *QUICK)
    answer = run(capsys, "evaluate", *words)
    assert answer.code == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "2 discrete (A, none)" in page
    assert "is there already" in run(capsys, "check", path, "--write", mapping).err
