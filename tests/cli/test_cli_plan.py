"""`fle evaluate --plan`, and one recipe however it is given."""

import dataclasses
import json

import numpy as np
import pytest
from cli_runs import ROWS, log, run, write
from recipe_changes import changed

import fle
from fle.cli.messages import in_options

# How far the log is followed decides the number of stages, and that the steps of each.
PROBLEMS = {"finite": ("--horizon", "4"), "discounted": ("--gamma", "0.5", "--stages", "9")}
ARGUMENTS = {"finite": {"horizon": 4}, "discounted": {"gamma": 0.5, "stages": 9}}


@pytest.fixture
def nothing_is_built(monkeypatch):
    def build(*_):
        raise AssertionError("a law was built")

    monkeypatch.setattr(fle.GMM, "build", build)


def recipe_of(capsys, *words):
    answer = run(capsys, "evaluate", *words, "--policy", "behaviour", "--plan", "--json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)["plan"]["recipe"]


# The log has a horizon, which a discounted problem is warned of.
@pytest.mark.filterwarnings("ignore:Every logged episode terminates after exactly 4")
@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_one_recipe_from_python_a_file_and_the_command_line(capsys, tmp_path, problem):
    path = write(tmp_path, log())
    data, policy = fle.read(path), fle.load_policy("behaviour")
    usual = fle.plan(data, policy, **ARGUMENTS[problem]).recipe
    assert recipe_of(capsys, path, *PROBLEMS[problem]) == dataclasses.asdict(usual)
    config = tmp_path / "recipe.toml"
    for name, value in changed(usual).items():
        expected = dataclasses.asdict(usual) | {name: value}
        written = json.dumps(value)
        ours = fle.plan(data, policy, **ARGUMENTS[problem], recipe={name: value})
        assert dataclasses.asdict(ours.recipe) == expected
        words = (path, *PROBLEMS[problem])
        # Quoted as in a file, or plain.
        assert recipe_of(capsys, *words, "--recipe", f"{name}={written}") == expected
        plain = written.strip('"')
        assert recipe_of(capsys, *words, "--recipe", f"{name}={plain}") == expected
        config.write_text(f"[recipe]\n{name} = {written}\n")
        assert recipe_of(capsys, *words, "--config", config) == expected


@pytest.mark.usefixtures("nothing_is_built")
def test_the_plan_in_words(capsys, tmp_path):
    out = tmp_path / "run"
    words = ("evaluate", write(tmp_path, log()), "--policy", "behaviour", "--horizon", "4")
    answer = run(capsys, *words, "--plan", "--recipe", "weight_decay=held-out", "--out", out)
    assert (answer.code, answer.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in answer.out.splitlines()]
    shown = dict(lines)
    assert shown["problem"] == "return over 4 steps"
    assert shown["model"].startswith("GMM(")
    assert "weight_decay held-out" in shown["recipe"]
    assert "optimiser steps" in shown["cost"]
    assert not out.exists()


def test_a_plan_says_what_would_be_withheld(capsys, tmp_path):
    columns = log(
        action=np.zeros(ROWS, int),
        **{"probability.0": np.zeros(ROWS), "probability.1": np.ones(ROWS)},
    )
    words = ("evaluate", write(tmp_path, columns), "--policy", "columns", "--horizon", "4")
    given = (*words, "--number-of-actions", "2")
    answer = run(capsys, *given, "--plan", "--json")
    assert answer.code == 1
    plan = json.loads(answer.out)["plan"]
    assert "100.0% of its actions were never logged" in plan["withheld"]
    assert not plan["coverage"]["enough"]
    assert run(capsys, *given, "--plan", "--anyway").code == 0
    # Without --plan, the same words and nothing else.
    answer = run(capsys, *given)
    assert answer.code == 1
    assert answer.out.startswith(f"no estimate for columns: {plan['withheld']}\n")
    assert "--anyway" in answer.out


def test_a_run_remembers_its_recipe_and_not_that_a_plan_was_asked_for(capsys, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("plan = true\n")
    answer = run(capsys, "evaluate", "x.parquet", "--policy", "behaviour", "--config", config)
    assert answer.code == 2
    assert "has no option 'plan'" in answer.err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("or see it with anyway=True.", "or see it with --anyway."),
        ("use rows=\"all\" or rows='step'", "use --rows \"all\" or --rows 'step'"),
        ("give recipe={'steps': 5}", "give --recipe {'steps': 5}"),
        ('go on with resume="previous"', 'go on with --resume "previous"'),
        ("Evaluate it without `out`.", "Evaluate it without --out."),
        ("set `allow_code`", "set --allow-code"),
        ("draws: expected an integer", "--action-draws: expected an integer"),
        ("weights: expected 2 finite numbers", "--weights: expected 2 finite numbers"),
        ("Give `gamma` (below 1)", "Give --gamma (below 1)"),
        ("the timeout=3 is over", "the --policy-timeout 3 is over"),
        # What is no argument stays as it is.
        ("gamma = 0: one stage", "gamma = 0: one stage"),
        ("my_rows=3, data.rows=3", "my_rows=3, data.rows=3"),
    ],
)
def test_arguments_are_said_as_options(said, shown):
    assert in_options(said) == shown
