"""Wrong usage and wrong settings are refused before anything is read; faults end in one line."""

import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from cli_runs import log, run, write

from fle.cli import main

HEAVY = ("jax", "equinox", "scipy", "pyarrow", "onnxruntime", "altair")


def refused(capsys, *words):
    answer = run(capsys, *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    return answer.err


# The file does not exist: these are found before it is looked for.
EVALUATE = ("evaluate", "nothing.parquet", "--policy", "behaviour")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*EVALUATE, "--gamma", "1.5"), "--gamma: expected a number from 0 to 1, got 1.5"),
        ((*EVALUATE, "--gamma", "-0.1"), "--gamma: expected a number from 0 to 1, got -0.1"),
        ((*EVALUATE, "--gamma", "nan"), "--gamma: expected a number"),
        ((*EVALUATE, "--gamma", "much"), "--gamma: expected a number, got 'much'"),
        ((*EVALUATE, "--gamma", "1"), "gamma = 1 without a horizon"),
        (EVALUATE, "Give --gamma (below 1) or --horizon, or both; neither was given"),
        ((*EVALUATE, "--horizon", "0"), "--horizon: expected a whole number of at least 1"),
        ((*EVALUATE, "--horizon", "2.5"), "--horizon: expected a whole number"),
        (
            (*EVALUATE, "--horizon", "3", "--stages", "4"),
            "stages is for discounted problems, got 4",
        ),
        ((*EVALUATE, "--gamma", ".5", "--measure", "cvar:1.5"), "strictly between 0 and 1"),
        ((*EVALUATE, "--gamma", ".5", "--measure", "cvra:0.1"), "did you mean cvar?"),
        ((*EVALUATE, "--gamma", ".5", "--measure", "cvar"), "cvar:LEVEL"),
        ((*EVALUATE, "--gamma", ".5", "--seed", "-1"), "--seed"),
        ((*EVALUATE, "--gamma", ".5", "--model", "gausian"), "did you mean gaussian?"),
        ((*EVALUATE, "--gama", ".5"), "unknown option --gama; did you mean --gamma?"),
        ((*EVALUATE, "--gam", ".5"), "unknown option --gam"),
        ((*EVALUATE, "--gamma"), "--gamma: expected one argument"),
        ((*EVALUATE, "--gamma", ".5", "--hyperparameter", "hidden=[8]"), "name a model"),
        ((*EVALUATE, "--gamma", ".5", "--recipe", "steps=0"), "steps: expected a whole number"),
        ((*EVALUATE, "--gamma", ".5", "--weights", "1,b"), "expected a number, got 'b'"),
        (("evaluate", "--gamma", ".5"), "DATA is missing"),
        (("evaluate", "a.csv", "--gamma", ".5"), "--policy is missing"),
        (("evalute", "a.csv"), "unknown command 'evalute'; did you mean evaluate?"),
        (("--gamma", ".5"), ""),
        ((), "a command is missing"),
        (("compare", "a.csv", "--policy", "x", "--gamma", ".5"), "at least two"),
        (
            ("compare", "a.csv", "--policy", "x", "--policy", "x", "--gamma", ".5"),
            "expected different policies, got x twice",
        ),
        (("report", "nothing"), "nothing is not a run directory"),
        (("report", "a", "b"), "expected one run directory"),
        (("demo", "--example", "cartpol"), "cartpole"),
        (("completion", "bsh"), "did you mean bash?"),
    ],
)
def test_wrong_usage(capsys, words, message):
    assert message in refused(capsys, *words)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("--recipe", "stps=9"), "--recipe: A recipe has no 'stps'; did you mean steps?"),
        (
            ("--recipe", "steps=many"),
            "--recipe: steps: expected a whole number of at least 1, got 'many'",
        ),
        (("--recipe", "steps=0"), "steps: expected a whole number of at least 1, got 0"),
        (("--recipe", "trend=3"), "trend: expected True or False, got 3"),
        (("--recipe", "steps"), "expected NAME=VALUE"),
        (("--hyperparameter", "hiden=[8]"), "did you mean hidden?"),
        (("--hyperparameter", "hidden=[1.5]"), "--hyperparameter hidden: expected tuple"),
    ],
)
def test_wrong_hyperparameters(capsys, tmp_path, setting, message):
    data = write(tmp_path, log())
    given = ("--policy", "behaviour", "--gamma", ".5", "--model", "gaussian", *setting)
    answer = run(capsys, "evaluate", data, *given, "--out", tmp_path / "run")
    assert answer.code == 2
    assert message in answer.err
    assert not (tmp_path / "run").exists()


def test_several_rewards_need_weights_to_be_ranked(capsys, tmp_path):
    data = write(
        tmp_path, log(reward=None, **{"reward.a": log()["reward"], "reward.b": [1.0, 2] * 120})
    )
    policies = ("--policy", "behaviour", "--policy", "columns", "--gamma", ".5")
    assert "--weights" in refused(capsys, "compare", data, *policies)
    error = refused(capsys, "compare", data, *policies, "--weights", "-1,2,3")
    assert "expected 2 finite numbers, for a, b; got [-1.0, 2.0, 3.0]" in error


def test_weights_need_several_rewards(capsys, tmp_path):
    words = ("evaluate", write(tmp_path, log()), "--policy", "behaviour", "--gamma", ".5")
    assert "weights is for several rewards" in refused(capsys, *words, "--weights", "2")


def test_files_go_together(capsys):
    error = refused(capsys, "check", "a.parquet", "--policy", "behaviour", "b.parquet")
    assert "unexpected argument 'b.parquet'" in error


def test_reproduce_brings_its_own_parser(capsys, monkeypatch):
    def add_parser(subparsers):
        subparsers.add_parser("reproduce", help="tables").add_argument("--table", type=int)

    module = ModuleType("fle.paper.command")
    module.__spec__ = ModuleSpec("fle.paper.command", None)
    module.add_parser = add_parser
    module.run = lambda options: 10 + options.table
    monkeypatch.setitem(sys.modules, "fle.paper.command", module)
    assert run(capsys, "reproduce", "--table", "3").code == 13
    assert "did you mean --table?" in refused(capsys, "reproduce", "--tabel", "3")
    assert "reproduce" in run(capsys, "--help").out
    assert "--table" in run(capsys, "completion", "bash").out


def test_a_name_that_the_terminal_cannot_show(tmp_path):
    data = write(tmp_path, log(reward=None, **{"reward.größe": log()["reward"]}))
    answer = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "fle", "check", str(data)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert "reward gr\\xf6\\xdfe" in answer.stdout


def test_an_error_is_a_document_too(capsys):
    answer = run(capsys, "check", "nothing.parquet", "--json")
    document = json.loads(answer.out)
    assert document["exit_code"] == answer.code == 2
    assert "nothing.parquet" in document["error"]
    assert json.loads(run(capsys, "check", "--json", "--nope").out)["exit_code"] == 2


def test_a_fault_of_ours_is_one_line(capsys, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("a\nb \x1b[31m")

    monkeypatch.setattr("fle.cli.check_command.inspect_data", broken)
    answer = run(capsys, "check", "log.parquet")
    assert answer.code == 3
    assert "please report it" in answer.err
    # Nothing that a file says can move the cursor.
    assert "RuntimeError: a b \\x1b[31m; FLE_TRACEBACK=1" in answer.err
    monkeypatch.setenv("FLE_TRACEBACK", "1")
    assert main(["check", "log.parquet"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_other_endings(capsys, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fle.cli.check_command.inspect_data", stopped)
    assert run(capsys, "check", "log.parquet").code == 130

    def full(*_):
        raise OSError(28, "No space left on device", "run/run.json")

    monkeypatch.setattr("fle.cli.check_command.inspect_data", full)
    answer = run(capsys, "check", "log.parquet")
    assert (answer.code, answer.err) == (2, "error: run/run.json: No space left on device\n")


def test_help_has_examples_and_exit_codes(capsys):
    for command in ("check", "evaluate", "compare", "report", "demo", "bench", "completion"):
        answer = run(capsys, command, "--help")
        assert answer.code == 0
        assert f"  fle {command} " in answer.out.split("examples:")[1]
        assert "no estimate" in answer.out
        assert max(len(line) for line in answer.out.splitlines()) <= 100
    assert run(capsys, "--version").out.startswith("fle ")


def test_help_and_check_are_light():
    """Neither imports JAX; help not even what reads files."""
    for words, heavy in ((["--help"], HEAVY), (["check", "nothing.parquet"], HEAVY[:2])):
        code = (
            "import sys\nfrom fle.cli import main\n"
            f"main({words!r})\nprint('heavy:', [n for n in {heavy!r} if n in sys.modules])"
        )
        answer = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
        )
        assert answer.stdout.endswith("heavy: []\n")


def test_a_closed_pipe_is_no_fault(tmp_path):
    """As in `fle completion fish | head -1`: the reader is gone before all is written."""
    command = f'"{sys.executable}" -m fle completion fish | head -c 1'
    answer = subprocess.run(  # noqa: S602
        command, shell=True, capture_output=True, text=True, check=True, timeout=120
    )
    assert answer.stdout == "c"
    assert answer.stderr == ""
