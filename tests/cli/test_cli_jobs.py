"""`--jobs`, `--cluster`, `--slurm` and `fle job`; `--from` an earlier run."""

import json

import numpy as np
import pytest
from cli_runs import LENGTH, QUICK, ROWS, log, run, write

from fle.cli import inputs
from fle.executors import Outcome, work
from fle.fitting import load

SAME = (*QUICK, "--no-second-opinions")


@pytest.fixture
def words(tmp_path):
    data = write(tmp_path, log())
    return ("evaluate", data, "--policy", "behaviour", "--horizon", "4", *SAME)


def test_slurm_waits_and_gathers(capsys, tmp_path, words):
    out, script = tmp_path / "run", tmp_path / "jobs.sbatch"
    told = (*words, "--out", out, "--slurm", script, "--json")
    waiting = run(capsys, *told)
    assert waiting.code == 6
    assert "1 jobs are in" in json.loads(waiting.out)["waiting"]
    (file,) = (out / ".jobs").glob("jobs-*.json")
    assert str(file) in script.read_text()
    assert run(capsys, "job", file, 0).out.strip() == str(
        next((out / ".jobs").glob("*/model*")).parent
    )
    gathered = run(capsys, *told)
    assert gathered.code == 0
    assert run(capsys, *words, "--out", tmp_path / "here").code == 0
    ours, theirs = load(out), load(tmp_path / "here")
    assert np.array_equal(ours.returns.samples, theirs.returns.samples)


class Inline:
    """Stands for processes, whose start takes seconds; they have tests of their own."""

    asked, folder, shared = 0, None, False

    def __init__(self, number):
        type(self).asked = number

    def run(self, jobs):
        for number in range(len(jobs.jobs)):
            yield Outcome(number, work(str(jobs.path), number))


def test_policies_are_compared_as_jobs(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "Processes", Inline)
    shares = {"probability.0": np.full(ROWS, 0.4), "probability.1": np.full(ROWS, 0.6)}
    data = write(tmp_path, log(**shares))
    words = ("compare", data, "--policy", "behaviour", "--policy", "columns", "--horizon", "4")
    shown = [
        run(capsys, *words, *SAME, "--anyway", "--json", *how).out for how in ((), ("--jobs", "2"))
    ]
    assert Inline.asked == 2
    here, there = (json.loads(text)["ranking"] for text in shown)
    assert [one["returns"] for one in here] == [one["returns"] for one in there]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--jobs", "2", "--slurm", "a.sbatch"), "expected --jobs, --cluster or --slurm, got"),
        (("--jobs", "0"), "--jobs: expected a whole number of at least 1"),
        (("--cluster", "here"), 'expected the address "auto"'),
        (("--slurm", "a.sbatch"), "needs a folder that all machines see. Give"),
        (("--job-gpus", "-1"), "--job-gpus: expected a number of at least 0"),
    ],
)
def test_wrong_executors_are_refused(capsys, words, message, tmp_path):
    data = write(tmp_path, log())
    answer = run(capsys, "evaluate", data, "--policy", "behaviour", "--horizon", "4", *SAME, *words)
    assert answer.code == 2
    assert message in answer.err


@pytest.mark.parametrize("given", [("jobs.json",), ("jobs.json", "one")])
def test_wrong_jobs_are_refused(capsys, given):
    answer = run(capsys, "job", *given)
    assert (answer.code, "expected FILE and whole numbers" in answer.err) == (2, True)


def test_a_job_that_fails_says_which(capsys, tmp_path):
    (tmp_path / "jobs.json").write_text('{"format": 1, "jobs": []}')
    answer = run(capsys, "job", tmp_path / "jobs.json", 3)
    assert answer.code == 1
    assert "job 3 failed" in answer.err
    assert "there is no job 3" in answer.err


def test_a_grown_log_goes_on_by_the_settings_of_its_run(capsys, tmp_path, words):
    whole = log()
    rows = ROWS - 10 * LENGTH
    (tmp_path / "short").mkdir()
    short = write(tmp_path / "short", {name: values[:rows] for name, values in whole.items()})
    first = (words[0], short, *words[2:])
    assert run(capsys, *first, "--out", tmp_path / "first").code == 0
    answer = run(
        capsys, "evaluate", words[1], "--from", tmp_path / "first", "--out", tmp_path / "next"
    )
    assert answer.code == 0
    assert f"since the earlier run: {10 * LENGTH} more rows, {ROWS} in all" in answer.out
    assert "unchanged" in answer.out
    assert load(tmp_path / "next").provenance.settings["horizon"] == 4
