"""`fle prepare`, and a prepared folder as the data of other commands."""

import json

import numpy as np
from cli_runs import QUICK, ROWS, log, run, write

from fle.cli.evaluate_command import DATA


def test_a_prepared_log_is_evaluated_as_its_source(capsys, tmp_path):
    source, folder = write(tmp_path, log()), tmp_path / "log"
    answer = run(capsys, "prepare", source, folder, "--json")
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    assert document["data"]["rows"] == ROWS
    assert len(document["statistics"]["observations"]) == sum("observation" in n for n in log())
    words = ("--policy", "behaviour", "--horizon", 2, *QUICK, "--anyway", "--json")
    runs = {data: tmp_path / f"of-{data.name}" for data in (source, folder)}
    answers = [run(capsys, "evaluate", data, *words, "--out", runs[data]) for data in runs]
    assert [one.code for one in answers] == [0, 0], answers[1].err
    first, second = (json.loads(one.out)["returns"] for one in answers)
    assert first == second
    # A copy of what may be very large would be none of a run's business.
    assert [(out / DATA).exists() for out in runs.values()] == [True, False]


def test_what_is_missing_is_said(capsys, tmp_path):
    answer = run(capsys, "prepare", tmp_path / "log")
    assert answer.code == 2
    assert "SOURCE OUT: expected files and then a folder" in answer.err
    answer = run(capsys, "prepare", tmp_path / "none.parquet", tmp_path / "log")
    assert answer.code == 2
    assert "no such file" in answer.err
    words = write(tmp_path, log(action=np.array(["A", "B"])[log()["action"]]))
    answer = run(capsys, "prepare", words, tmp_path / "log")
    assert "name all actions with --action-labels ..." in answer.err
    given = ("--action-labels", "A", "--action-labels", "B")
    answer = run(capsys, "prepare", words, tmp_path / "log", *given)
    assert answer.code == 0, answer.err
    assert "MiB" in answer.out
    assert not any(line.startswith("action ") for line in answer.out.splitlines())
