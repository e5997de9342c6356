"""The runner runs a task end to end, goes on where it was, and writes one table."""

import json
import queue
import sys
from pathlib import Path

import numpy as np
import pytest

import fle

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS)]

from tasks import measurement, run, table  # noqa: E402
from tasks.register import FAMILIES  # noqa: E402
from tasks.task import below  # noqa: E402

SMALL = ["--task", "bandit-even", "--rows", "300", "--setting", "steps=2", "model=categorical"]


def test_a_tiny_task_runs_goes_on_and_is_tabulated(tmp_path):
    arguments = [*SMALL, "--out", str(tmp_path), "--truth", str(tmp_path / "truth")]
    assert run.main(arguments) == 0
    (file,) = (tmp_path / "runs").glob("*.json")
    first = file.read_bytes()
    made = json.loads(first)
    assert made["task"] == "bandit-even"
    assert made["rows"] == 300
    assert made["settings"] == {"steps": 2, "model": "categorical"}
    assert len(made["mean_error"]) == 1
    when = file.stat().st_mtime_ns
    assert run.main(arguments) == 0
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (first, when)
    assert "| bandit-even | development | 0 | 300 |" in (tmp_path / "table.md").read_text()
    assert len(json.loads((tmp_path / "table.json").read_text())["runs"]) == 1


def test_a_run_that_fails_is_named_and_not_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run.sys, "executable", "false")
    assert run.main([*SMALL, "--out", str(tmp_path)]) == 1
    assert "failed: exit code 1" in capsys.readouterr().out
    assert list((tmp_path / "runs").iterdir()) == []
    assert "failed: exit code 1" in (tmp_path / "table.md").read_text()


def test_runs_differ_by_all_that_decides_their_figures(tmp_path):
    request = {"task": "a-b", "seed": 0, "rows": 10, "settings": {}, "fqe": False, "code": "c"}
    changes = [{}, {"seed": 1}, {"rows": 11}, {"settings": {"steps": 1}}, {"code": "d"}]
    files = {run.file_of(request | change, tmp_path) for change in changes}
    assert len(files) == len(changes)


def test_each_process_has_a_core_while_it_runs(tmp_path, monkeypatch):
    cores = queue.Queue()
    cores.put(1)
    seen = []

    class Answer:
        returncode, stderr = 1, "no"

    def instead(command, **_):
        seen.append((json.loads(command[2])["core"], cores.empty()))
        return Answer

    monkeypatch.setattr(run.subprocess, "run", instead)
    run.carried_out({"task": "a-b", "seed": 0}, tmp_path, tmp_path, cores)
    assert seen == [(1, True)]
    assert cores.get_nowait() == 1


def test_settings_are_those_of_plan_and_recipe():
    given = measurement.parsed_settings(["steps=20", "model=gmm", "weight_decay=held-out"])
    assert given == {"steps": 20, "model": "gmm", "weight_decay": "held-out"}
    for wrong in ("stepz=20", "steps"):
        with pytest.raises(SystemExit, match="expected NAME=VALUE with model, stages"):
            measurement.parsed_settings([wrong])


def test_truth_is_drawn_once(tmp_path):
    bandit = next(family for family in FAMILIES if family.name == "bandit").tasks()[0]
    first = measurement.true_returns(bandit, tmp_path)
    (file,) = tmp_path.iterdir()
    assert first.shape == (bandit.truth_size, 1)
    np.save(file, first + 1)
    np.testing.assert_array_equal(measurement.true_returns(bandit, tmp_path), first + 1)


def test_errors_are_in_standard_deviations():
    # Half of all returns are -1 and half 1, so the standard deviation is 1; all moved by 0.5.
    truth = np.repeat([[-1.0], [1.0]], 5_000, axis=0)
    estimate = fle.ReturnDistribution.from_samples(truth + 0.5)
    figures = measurement.held_against(estimate, truth, (below(0.0, "a loss"),))
    # 100,000 draws: 4.5 standard errors of a mean are 0.015.
    assert figures["mean_error"][0] == pytest.approx(0.5, abs=0.015)
    assert figures["std_ratio"][0] == pytest.approx(1.0, abs=0.015)
    assert figures["cvar_10_error"] == pytest.approx([0.5])
    assert figures["w1"] == pytest.approx(0.5, abs=0.05)
    assert figures["events"][0]["truth"] == 0.5


def example(**changes):
    made = {
        "task": "a-b",
        "set": "development",
        "covered": True,
        "seed": 0,
        "rows": 100_000,
        "w1": 0.03,
        "floor": 0.01,
        "mean_error": [0.01, -0.2],
        "std_ratio": [1.0, 0.5],
        "cvar_10_error": [0.1, 0.0],
        "cvar_1_error": [0.1, 0.0],
        "events": [{"text": "bad", "estimate": 0.01, "truth": 0.02, "logged": 60}],
        "second_mean_error": [0.02, -0.03],
        "processor_seconds": 3.0,
        "verdict": "caution",
    }
    return made | changes


def test_the_table_shows_every_run_and_judges_covered_ones():
    runs = [
        example(),
        example(seed=1, w1=0.2),
        example(task="c-d", covered=False, w1=9.0),
        example(task="e-f", failed="it broke"),
    ]
    text = table.markdown(runs, ["hopper: needs mujoco"], "About.")
    assert "| a-b | development | 0 | 100,000 | 0.030 [0.010] | -0.200 | 0.50 | +0.100 |" in text
    assert "| (-0.030) | 3 | caution |" in text
    assert "c-d (not covered)" in text
    assert "failed: it broke" in text
    assert "Failed, and in no figure: e-f." in text
    assert "Not run: hopper: needs mujoco." in text
    # Of 0.03 and 0.2.
    assert "| W1/std | 0.115 (0.04: missed) | 0.200 (0.12: missed), a-b |" in text
    assert "| factor of the worst event | 2.000 | 2.000 (1.3: missed), a-b |" in text


def test_the_chance_of_an_event_is_judged_where_the_log_has_it():
    assert table.factor(example()) == pytest.approx(2.0)
    none = {"text": "bad", "estimate": 0.0, "truth": 0.02, "logged": 60}
    assert table.factor(example(events=[none])) == float("inf")
    assert table.factor(example(events=[none | {"logged": 49}])) is None
    assert table.factor(example(events=[none | {"truth": 0.0}])) is None
    assert table.factor(example(events=[])) is None
