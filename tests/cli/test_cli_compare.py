"""`fle compare` ranks policies; `fle demo` shows the truth."""

import json
import time

import numpy as np
import pytest
from cli_runs import QUICK, ROWS, log, run, write

from fle.cli.compare_command import run_folders


def two_policies(**changes):
    """A policy that mostly takes action 1, which earns 1 more, and one that avoids it."""
    return log(
        **{
            "good.0": np.full(ROWS, 0.1),
            "good.1": np.full(ROWS, 0.9),
            "bad.0": np.full(ROWS, 0.9),
            "bad.1": np.full(ROWS, 0.1),
            **changes,
        }
    )


TRAINED = ("--recipe", "steps=200", "--recipe", "learning_rate=0.05")


def test_policies_are_ranked_and_paired(capsys, tmp_path):
    data = write(tmp_path, two_policies())
    policies = ("--policy", "columns:bad", "--policy", "columns:good")
    given = ("compare", data, *policies, "--horizon", "4", "--rows", "step", *QUICK, *TRAINED)
    out = tmp_path / "runs"
    answer = run(capsys, *given, "--by", "cvar:0.1", "--out", out)
    assert answer.code == 0
    assert answer.err == ""
    assert "ranked by  mean of the worst 10%, highest first" in answer.out
    assert answer.out.index("columns:good") < answer.out.index("columns:bad")
    assert "both of a pair begin at the same one of the 60 logged starts" in answer.out
    assert "columns:good dominates columns:bad in the first order" in answer.out
    assert (out / "columns_good" / "report.html").exists()
    # The data once, however many policies there are.
    assert [path.parent for path in out.rglob("data.arrow")] == [out]
    assert [path.parent for path in out.rglob("run.toml")] == [out]
    page = (out / "comparison.html").read_text(encoding="utf-8")
    assert f"report: {out / 'comparison.html'}" in answer.out
    assert "Ranked by mean of the worst 10%, highest first." in page
    assert page.index(">columns:good</th>") < page.index(">columns:bad</th>")
    document = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert [entry["policy"] for entry in document["ranking"]] == ["columns:good", "columns:bad"]
    pair = document["differences"][0]
    # Four steps, 0.8 more of an action that earns 1 more: 3.2. A stage has 60 rows, half of each
    # action, with noise of variance 1/3: a standard error of 0.8 sqrt(4 * 4 / (3 * 60)) = 0.24.
    assert pair["mean"] == pytest.approx(3.2, abs=4 * 0.24)
    # The spread of a return is at least 1, the fixed one of the last fit, and at most
    # sqrt(4 * (1 + 0.09)) = 2.1, so the first wins between Phi(3.2 / 3) and Phi(3.2 / 1.4).
    assert 0.8 < pair["beats"] < 0.997
    means = [entry["returns"]["return"]["mean"] for entry in document["ranking"]]
    assert pair["mean"] == pytest.approx(means[0] - means[1], abs=0.1)
    # The finished runs are found again, and ranked the other way round by what is bad.
    answer = run(capsys, *given, "--by", "loss", "--out", out, "--json")
    again = json.loads(answer.out)
    assert again["ranking"][0]["policy"] == "columns:good"
    assert again["differences"] == document["differences"]


def test_a_thousand_policies_of_one_name_get_a_folder_each(tmp_path):
    names = [f"{number}/policy.onnx" for number in range(3000)]
    began = time.monotonic()
    folders = run_folders(tmp_path, names)
    assert len(set(folders.values())) == len(names)
    assert folders[names[1]].name == "policy.onnx-2"
    assert time.monotonic() - began < 5


def test_a_policy_without_coverage_is_not_ranked(capsys, tmp_path):
    alone = np.zeros(ROWS, dtype=int)
    shown = {"good.0": np.ones(ROWS), "good.1": np.zeros(ROWS)}
    unseen = {"bad.0": np.zeros(ROWS), "bad.1": np.ones(ROWS)}
    data = write(tmp_path, two_policies(action=alone, **shown, **unseen))
    policies = ("--policy", "columns:bad", "--policy", "columns:good")
    given = ("--horizon", "4", "--number-of-actions", "2", *QUICK)
    answer = run(capsys, "compare", data, *policies, *given)
    assert answer.code == 1
    assert "no estimate for columns:bad" in answer.out
    assert "1  columns:good" in answer.out
    assert "first wins" not in answer.out
    assert "dominates" not in answer.out


def test_nothing_is_kept_of_a_policy_that_is_refused(capsys, tmp_path):
    columns = {"good.0": np.ones(ROWS), "good.1": np.zeros(ROWS)}
    unseen = {"bad.0": np.zeros(ROWS), "bad.1": np.ones(ROWS)}
    data = write(tmp_path, two_policies(action=np.zeros(ROWS, dtype=int), **columns, **unseen))
    policies = ("--policy", "columns:bad", "--policy", "columns:good")
    given = ("--horizon", "4", "--number-of-actions", "2", *QUICK, "--out", tmp_path / "runs")
    assert run(capsys, "compare", data, *policies, *given).code == 1
    assert not (tmp_path / "runs" / "columns_bad").exists()
    assert (tmp_path / "runs" / "columns_good" / "manifest.json").exists()
    page = (tmp_path / "runs" / "comparison.html").read_text(encoding="utf-8")
    assert "No estimate" in page
    assert '<th scope="row">columns:bad</th>' in page


def test_the_demo_shows_the_truth(capsys, tmp_path):
    words = ("demo", "--example", "reservoir", "--out", tmp_path / "demo", *QUICK, "--json")
    answer = run(capsys, *words)
    assert answer.code == 0
    document = json.loads(answer.out)
    # Trained for a moment, so only that there is a distance with its floor.
    assert all(entry["w1_over_std"] > 0 for entry in document["truth"].values())
    assert all(0 < entry["floor"] < 0.2 for entry in document["truth"].values())
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "standard deviations away from the truth" in page
    again = tmp_path / "again.html"
    assert run(capsys, "report", tmp_path / "demo", "--out", again).code == 0
    assert again.read_text(encoding="utf-8") == page
    assert (tmp_path / "demo" / "run.toml").exists()
