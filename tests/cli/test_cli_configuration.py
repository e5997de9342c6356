"""Options from a TOML file, and the file that a run leaves behind."""

import argparse
import tomllib

import pytest
from cli_runs import log, run, write

from fle.cli.commands import COMMANDS, EVALUATE
from fle.cli.entry import as_toml, as_words, parse, resolve

WORDS = [
    *("evaluate", "a.parquet", "b c.parquet", "--policy", 'p"q\\.onnx', "--gamma", "0"),
    *("--observation", "größe", "--observation", "x\x7fy", "--measure", "cvar:0.01"),
    *("--weights", "-1,0.5", "--recipe", "steps=20", "--hyperparameter", "hidden=[8, 8]"),
    *("--anyway", "--seed", "3"),
]


def resolved(words, config=None):
    given = parse([*words, *(() if config is None else ("--config", str(config)))])
    command = next(command for command in COMMANDS if command.name == given.command)
    options = resolve(command, given)
    return vars(options) | {"config": None}


def test_what_is_written_is_read_as_the_same_options(tmp_path):
    options = resolved(WORDS)
    path = tmp_path / "run.toml"
    path.write_text(as_toml(EVALUATE, argparse.Namespace(**options)), encoding="utf-8")
    # gamma = 0 is a value, not an absence.
    assert tomllib.loads(path.read_text(encoding="utf-8"))["gamma"] == 0
    assert resolved(["evaluate"], path) == options


def test_the_spoken_command_means_the_same():
    options = resolved(WORDS)
    words = as_words(EVALUATE, argparse.Namespace(**options))
    assert words[0] == "fle"
    assert resolved(words[1:]) == options


def test_the_command_line_overrides_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'data = "a.csv"\npolicy = ["x", "y"]\ngamma = 0.5\nseed = 1\nby = "cvar:0.2"\n'
        "weights = [1, -2.5]\nno-copy = true\n[recipe]\nsteps = 9\ndraws = 2\n"
    )
    options = resolved(["compare", "--seed", "2", "--policy", "z", "--recipe", "steps=7"], path)
    assert options["data"] == ["a.csv"]
    assert options["policy"] == ["z"]
    assert (options["gamma"], options["seed"]) == (0.5, 2)
    assert options["by"].text == "cvar:0.2"
    assert options["weights"] == [1.0, -2.5]
    assert options["recipe"] == {"steps": 7, "draws": 2}
    assert options["no_copy"] is True
    assert options["model"] == "auto"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("gama = 0.5", "fle check has no option 'gama'"),
        ("polcy = 'x'", "did you mean policy?"),
        ("policy = 3", "policy: expected text, got 3"),
        ("number_of_actions = 'two'", "number_of_actions: expected a whole number"),
        ("number_of_actions = true", "number_of_actions"),
        ("allow_code = true", "type --allow-code on the command line"),
        ("json = true", "has no option 'json'"),
        ("policy =", "not a TOML file"),
        ("[policy]\na = 1", "policy"),
    ],
)
def test_a_file_that_cannot_be_used(capsys, tmp_path, content, message):
    path = tmp_path / "run.toml"
    path.write_text(content)
    answer = run(capsys, "check", write(tmp_path, log()), "--config", path)
    assert (answer.code, answer.out) == (2, "")
    assert "run.toml" in answer.err
    assert message in answer.err


def test_no_such_file(capsys, tmp_path):
    answer = run(capsys, "check", "log.parquet", "--config", tmp_path / "nothing.toml")
    assert answer.code == 2
    assert "nothing.toml: No such file" in answer.err


def test_a_file_that_is_not_text(capsys, tmp_path):
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe\x00")
    answer = run(capsys, "check", "log.parquet", "--config", tmp_path / "run.toml")
    assert answer.code == 2
    assert "not a TOML file" in answer.err


def test_choices_and_tables_in_a_file(capsys, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("model = 'gausian'")
    answer = run(capsys, "evaluate", "log.parquet", "--config", path)
    assert "did you mean gaussian?" in answer.err
    path.write_text("anyway = 'yes'")
    answer = run(capsys, "evaluate", "log.parquet", "--config", path)
    assert "anyway: expected true or false, got 'yes'" in answer.err
    path.write_text("recipe = 5")
    assert "expected a table [recipe]" in run(capsys, "evaluate", "x", "--config", path).err
