"""The tutorial's own commands, from files to reports, with fits that take a moment."""

import json
import runpy

import numpy as np
import pytest
from doc_pages import ROOT, pages

from fle.cli import main

PAGE = pages("docs/tutorial.md")["docs/tutorial.md"]
COMMANDS = list(PAGE.commands())
# A linear model, trained for a moment.
QUICK = [
    *("--model", "gaussian", "--hyperparameter", "hidden=[]", "--hyperparameter", "std=1.0"),
    *("--recipe", "steps=20", "--recipe", "batch_size=100", "--recipe", "weight_decay=0.0"),
]
SCRIPT = ROOT / "examples" / "make_messy_logs.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tutorial")
    runpy.run_path(str(SCRIPT))["main"](made / "messy")
    return made


def test_every_log_becomes_a_report(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FLE_COMPILATION_CACHE", "off")
    # Other tests are about the process that a policy has for its own.
    monkeypatch.setattr("fle.cli.inputs.POLICY_MEMORY", None)
    codes = [
        main([*words, *(QUICK if words[0] == "evaluate" else [])])
        for words in COMMANDS
        if words[0] in ("check", "evaluate")
    ]
    # Only the first look at the hospital's file finds anything wrong: one corrective round.
    assert codes == [2, *[0] * (len(COMMANDS) - 1)]
    said = capsys.readouterr()
    assert said.err.count("error: ") == 3
    for name in ("visits", "robot", "shop"):
        assert (folder / "messy" / f"run-{name}" / "report.html").exists()
    page = (folder / "messy" / "run-visits" / "report.html").read_text(encoding="utf-8")
    assert "3 discrete (A, B, none)" in page


def test_the_truth_is_what_the_script_simulates(folder):
    """The shop's, by another way: the policy's chances times the expected reactions.

    Both are means over visitors: 50,000 drawn ones there, and the 6,000 logged ones here. Clicks
    and their chances are in [0, 1], with standard deviations of at most 0.5; five standard errors
    are exceeded less than once in a million times.
    """
    import pandas as pd

    import fle

    truth = json.loads((folder / "messy" / "truth.json").read_text())
    table = pd.read_parquet(folder / "messy" / "shop.parquet")
    data = fle.read(table)
    policy = fle.load_policy(folder / "messy" / "shop.onnx")
    chances = fle.policies.tabulated(policy, data).initial.probabilities
    # The draws of the script, in their order: tastes, what items are like, and their quality.
    generator = np.random.default_rng(2)
    taste = generator.normal(0, 1, (len(table), 3))
    np.testing.assert_allclose(data.observations, taste)
    suits = taste @ (0.3 * generator.normal(0, 1, (3, 50))) + generator.normal(0, 1, 50)
    clicks = (chances / (1 + np.exp(1 - suits))).sum(axis=1).mean()
    assert abs(clicks - truth["shop"]["click"]) < 5 * 0.5 * np.sqrt(1 / 50_000 + 1 / 6_000)
