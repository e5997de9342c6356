"""A measure that is registered is found wherever measures are shown, asked for or ranked by."""

import json
import re

import numpy as np
import pytest
from cli_runs import QUICK, ROWS, log, run, write

from fle.cli.messages import risk_table
from fle.fitting import load
from fle.report import gather
from fle.report.wording import usual_rows
from fle.returns import Family, ReturnDistribution
from fle.returns.measures import REGISTER


@pytest.fixture(autouse=True)
def range_measure(monkeypatch):
    """The distance between the outermost returns, less of which is better."""
    family = Family(
        "range",
        "range of returns",
        "max Z − min Z",
        lambda samples, weights=None: np.ptp(samples),
        direction=-1,
        shown=((),),
    )
    monkeypatch.setitem(REGISTER, family.name, family)


def test_the_summary_shows_it():
    text = ReturnDistribution.from_samples(np.arange(1001.0)).summary()
    assert re.search(r"^range of returns +1000$", text, re.MULTILINE)


def test_the_command_line_and_the_report_show_it_and_rank_by_it(capsys, tmp_path):
    columns = {
        "sure.0": np.zeros(ROWS),
        "sure.1": np.ones(ROWS),
        "mixed.0": np.full(ROWS, 0.5),
        "mixed.1": np.full(ROWS, 0.5),
    }
    data, out = write(tmp_path, log(**columns)), tmp_path / "runs"
    policies = ("--policy", "columns:mixed", "--policy", "columns:sure")
    words = ("compare", data, *policies, "--horizon", "4", *QUICK, "--by", "range", "--out", out)
    assert "ranked by  range of returns, lowest first" in run(capsys, *words).out
    ranking = json.loads((out / "compare.json").read_text(encoding="utf-8"))["ranking"]
    found = {entry["policy"]: entry["returns"]["return"]["range"] for entry in ranking}
    assert list(found.values()) == sorted(found.values())
    evaluation = load(out / "columns_mixed")
    assert found["columns:mixed"] == np.ptp(evaluation.returns.samples)
    assert any(re.match(r"range of returns +\d", line) for line in risk_table(evaluation, (), None))
    labels = [label for label, _ in usual_rows(gather(evaluation).coordinates[0])]
    assert labels[-1] == "Range of returns"
    page = (out / "columns_mixed" / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">Range of returns</th>' in page
