"""Every bad policy, on the command line."""

import json

import numpy as np
import pytest
from cli_runs import ROWS, log, onnx_policy, run, write
from onnx import helper

from fle.cli import main

PROBABILITIES = {"probability.0": np.full(ROWS, 0.25), "probability.1": np.full(ROWS, 0.75)}


def refused(capsys, folder, policy, *words, columns=None):
    out = folder / "run"
    data = write(folder, log() if columns is None else columns)
    given = ("--policy", policy, "--gamma", "0.5", "--out", out, *words)
    answer = run(capsys, "evaluate", data, *given)
    assert (answer.code, answer.out) == (2, "")
    assert not out.exists()
    return answer.err


def changed(row, values):
    columns = {name: column.copy() for name, column in PROBABILITIES.items()}
    for column, value in zip(columns.values(), values, strict=True):
        column[row] = value
    return log(**columns)


@pytest.mark.parametrize(
    ("values", "message"),
    [((0.5, 0.6), "1.1"), ((-0.5, 1.5), "-0.5"), ((np.nan, 1.0), "nan")],
)
def test_probabilities_that_are_none(capsys, tmp_path, values, message):
    error = refused(capsys, tmp_path, "columns", columns=changed(6, values))
    assert message in error
    assert "row" in error


def test_columns_that_are_not_there(capsys, tmp_path):
    assert "probability" in refused(capsys, tmp_path, "columns")
    error = refused(capsys, tmp_path, "columns:newpolicy", columns=log(**PROBABILITIES))
    assert "newpolicy" in error
    assert "columns:PREFIX" in refused(capsys, tmp_path, "columns:")


def test_a_policy_of_another_shape(capsys, tmp_path):
    three = onnx_policy(tmp_path, actions=3)
    error = refused(capsys, tmp_path, three)
    assert "2" in error
    assert "3" in error
    wide = onnx_policy(tmp_path, width=5)
    error = refused(capsys, tmp_path, wide)
    assert "5" in error
    assert "2" in error


def test_an_action_of_another_width(capsys, tmp_path):
    columns = log(action=np.linspace(-1.0, 1.0, ROWS))
    error = refused(capsys, tmp_path, onnx_policy(tmp_path, outputs=["action"]), columns=columns)
    assert "expected shape (n, 1)" in error


def test_a_std_that_is_not_positive(capsys, tmp_path):
    columns = log(action=np.linspace(-1.0, 1.0, ROWS))
    policy = onnx_policy(tmp_path, outputs=["mean", "std"], actions=1)
    assert "std" in refused(capsys, tmp_path, policy, columns=columns)


@pytest.mark.parametrize(
    ("node", "domain", "message"),
    [
        (helper.make_node("Twist", ["obs"], ["logits"], domain="evil"), "evil", "evil"),
        (helper.make_node("RandomNormalLike", ["obs"], ["logits"]), "", "RandomNormalLike"),
        (helper.make_node("Loop", ["obs"], ["logits"]), "", "Loop"),
    ],
)
def test_operators_that_are_refused(capsys, tmp_path, node, domain, message):
    policy = onnx_policy(tmp_path, nodes=[node], domain=domain)
    assert message in refused(capsys, tmp_path, policy)


def test_external_data_is_refused(capsys, tmp_path):
    import onnx

    path = onnx_policy(tmp_path)
    model = onnx.load(path)
    onnx.save_model(
        model, path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    assert "policy.onnx" in refused(capsys, tmp_path, path)


def test_a_policy_that_takes_too_long(capsys, tmp_path):
    error = refused(capsys, tmp_path, onnx_policy(tmp_path), "--policy-timeout", "1e-9")
    assert "policy.onnx" in error
    assert "more time (--policy-timeout)" in error


def test_a_fixed_batch_is_looped_over(capsys, tmp_path):
    policy = onnx_policy(tmp_path, batch=1)
    answer = run(capsys, "check", write(tmp_path, log()), "--policy", policy)
    assert answer.code == 0
    assert "warning: " in answer.err
    assert "batch" in answer.err


def test_names_of_inputs_and_outputs(capsys, tmp_path):
    policy = onnx_policy(tmp_path, outputs=["output_0"])
    data = write(tmp_path, log())
    error = refused(capsys, tmp_path, policy)
    assert 'as in --policy-output "logits=NAME"' in error
    mapped = ("--policy-output", "logits=output_0", "--policy-input", "obs")
    assert run(capsys, "check", data, "--policy", policy, *mapped).code == 0
    assert run(capsys, "check", data, "--policy", policy, "--policy-input", "x").code == 2


def test_code_runs_only_if_it_is_allowed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spoken.py").write_text(
        "print('imported')\n"
        "def half(x):\n    print('called')\n    return [[0.5, 0.5]] * len(x)\n"
        "def broken(x):\n    raise KeyError('oh')\n"
    )
    assert "--allow-code" in refused(capsys, tmp_path, "spoken:half")
    data = write(tmp_path, log())
    words = ["check", str(data), "--policy", "spoken:half", "--allow-code", "--json"]
    assert main(words) == 0
    captured = capsys.readouterr()
    # What the policy prints is not part of the document.
    assert json.loads(captured.out)["policy"]["coverage"]["enough"]
    assert captured.err.startswith("imported\ncalled\n")
    assert "oh" in refused(capsys, tmp_path, "spoken:broken", "--allow-code")
    assert "no such policy" in refused(capsys, tmp_path, "polcy.onx")


def test_actions_that_the_data_never_shows(capsys, tmp_path):
    columns = log(
        action=np.zeros(ROWS, dtype=int),
        **{"probability.0": np.zeros(ROWS), "probability.1": np.ones(ROWS)},
    )
    data = write(tmp_path, columns)
    given = (data, "--policy", "columns", "--number-of-actions", 2)
    answer = run(capsys, "check", *given)
    assert answer.code == 1
    assert "100.0% of its actions were never logged there" in answer.err
    out = tmp_path / "run"
    answer = run(capsys, "evaluate", *given, "--gamma", "0.5", "--out", out)
    assert answer.code == 1
    assert "no estimate" in answer.out
    assert "mean" not in answer.out
    assert "--anyway" in answer.out
    assert not out.exists()
    document = json.loads(run(capsys, "evaluate", *given, "--gamma", "0.5", "--json").out)
    assert document["returns"] is None
    assert not document["policy"]["coverage"]["enough"]
    assert document["exit_code"] == 1
    assert document["warnings"]


@pytest.mark.own_process
def test_a_policy_from_a_file_runs_apart_from_us(capsys, tmp_path, monkeypatch):
    """It is parsed and asked elsewhere; what it may take is said on the command line."""
    monkeypatch.setattr("fle.policies.loading.load_onnx", None)
    data, policy = write(tmp_path, log()), onnx_policy(tmp_path)
    assert run(capsys, "check", data, "--policy", policy).code == 0
    answer = run(capsys, "check", data, "--policy", policy, "--policy-memory", "1K")
    assert answer.code == 2
    assert "--policy-memory: expected at least 268,435,456 bytes" in answer.err


def test_several_outputs_are_mapped_by_repeating_the_option(capsys, tmp_path):
    doses = np.random.default_rng(2).normal(size=len(log()["reward"]))
    data = write(tmp_path, log(action=doses))
    policy = onnx_policy(tmp_path, outputs=("a", "b"), actions=1)
    mapped = ("--policy-output", "mean=a", "--policy-output", "log_std=b")
    assert run(capsys, "check", data, "--policy", policy, *mapped).code in (0, 1)
    answer = run(capsys, "check", data, "--policy", policy, *mapped[:2])
    assert answer.code == 2
    assert "mean does not make a policy" in answer.err
