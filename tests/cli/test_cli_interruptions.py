"""A run that stops goes on when the command is repeated; what cannot be written is refused."""

import errno
import json
import os
import sys

import numpy as np
import pytest
from cli_runs import QUICK, ROWS, log, run, write

from fle.data import read_cache
from fle.files import sole_writer
from fle.fitting import Silent, checkpoints, load


class Stop(Silent):
    """Ctrl-C after the second stage."""

    def advance(self, stage, loss):
        if stage == 2:
            raise KeyboardInterrupt


@pytest.fixture
def words(tmp_path):
    data = write(tmp_path, log())
    return ("evaluate", data, "--policy", "behaviour", "--horizon", "4", "--no-copy", *QUICK)


@pytest.fixture
def stopped(capsys, tmp_path, words, monkeypatch):
    """A run with two of its four stages."""
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0.0)
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["fle.fitting.plans"], "default_progress", Stop)
        answer = run(capsys, *words, "--out", out)
    assert answer.code == 130
    assert "goes on when the command is repeated" in answer.err
    assert run(capsys, "report", out).code == 2
    return out


def test_a_stopped_run_goes_on_to_the_same_result(capsys, tmp_path, words, stopped):
    assert run(capsys, *words, "--out", stopped).code == 0
    whole = tmp_path / "whole"
    assert run(capsys, *words, "--out", whole).code == 0
    ours, theirs = load(stopped).returns.samples, load(whole).returns.samples
    assert np.array_equal(ours, theirs)


def test_a_stopped_run_goes_on_by_its_own_options(capsys, stopped):
    assert run(capsys, "evaluate", "--config", stopped / "run.toml").code == 0
    assert (stopped / "report.html").exists()


def test_a_run_that_fails_leaves_its_options_and_data(capsys, tmp_path, words):
    out = tmp_path / "run"
    copied = [word for word in words if word != "--no-copy"]
    assert run(capsys, *copied, "--recipe", "learning_rate=1e38", "--out", out).code == 1
    assert len(read_cache(out / "data.arrow")) == ROWS
    before = (out / "run.toml").read_bytes()
    # What another run began there is not touched by one that is refused.
    assert run(capsys, *copied, "--out", out).code == 0
    assert run(capsys, *copied, "--seed", "1", "--out", out).code == 2
    assert b"seed = 1" not in (out / "run.toml").read_bytes()
    assert before != (out / "run.toml").read_bytes()


def test_a_damaged_checkpoint(capsys, words, stopped):
    last = max((stopped / "checkpoints").glob("*.safetensors"))
    content = bytearray(last.read_bytes())
    content[-3] ^= 1
    last.write_bytes(content)
    answer = run(capsys, *words, "--out", stopped)
    assert (answer.code, answer.out) == (2, "")
    assert last.name in answer.err
    assert "--resume" in answer.err
    assert run(capsys, *words, "--out", stopped, "--resume", "previous").code == 0


def test_two_writers(capsys, tmp_path, words):
    (tmp_path / "run").mkdir()
    with sole_writer(tmp_path / "run"):
        answer = run(capsys, *words, "--out", tmp_path / "run")
    assert answer.code == 2
    assert f"Process {os.getpid()} is writing" in answer.err


def test_an_output_that_cannot_be_written(capsys, tmp_path, words):
    (tmp_path / "file").write_text("in the way")
    answer = run(capsys, *words, "--out", tmp_path / "file" / "run")
    assert answer.code == 2
    assert "cannot be made" in answer.err
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_full_disk(capsys, tmp_path, words, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fle.files.os.fsync", full)
    answer = run(capsys, *words, "--out", tmp_path / "run")
    assert answer.code == 2
    assert "The disk is full" in answer.err
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name != ".lock"] == []


def test_a_loss_that_is_no_number(capsys, tmp_path, words):
    out = tmp_path / "run"
    given = ("--recipe", "learning_rate=1e38", "--out", out, "--json")
    answer = run(capsys, *words, *given)
    assert answer.code == 1
    document = json.loads(answer.out)
    assert "stage" in document["error"]
    assert document["exit_code"] == 1
    assert not (out / "report.html").exists()
