"""A small audit of the verdict: logs of known tasks, with overlap dialled from full to none."""

import importlib.util
import sys
from pathlib import Path

import pytest
from scipy.stats import binom

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
SEEDS, DIALS = range(100, 103), (0.0, 0.6, 0.9, 1.0)
# Rates that verdicts must keep, and the chance that this test fails where they do.
MISSED, REFUSED, FALSE_ALARM = 0.1, 0.15, 1e-3


def script():
    """By its path: a package has the same name."""
    spec = importlib.util.spec_from_file_location("verdict_audit", SCRIPT)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def audit():
    found = script()
    return found, [
        found.judged(task, model, dial, 200, seed)
        for seed in SEEDS
        for dial in DIALS
        for task in ("tabular", "lock")
        for model in ("rows", "rows, wrong")
    ]


def most(number, rate):
    """So many of a number are exceeded by chance in FALSE_ALARM of cases."""
    return binom.isf(FALSE_ALARM, number, rate)


def test_wrong_estimates_are_not_trusted(audit):
    script, runs = audit
    wrong = [run for run in runs if script.worst(run) > script.WRONG]
    assert len(wrong) >= 10
    assert sum(run["level"] == "trust" for run in wrong) <= most(len(wrong), MISSED)


def test_good_estimates_are_not_withheld(audit):
    script, runs = audit
    close = [run for run in runs if script.worst(run) <= script.CLOSE]
    assert len(close) >= 3
    withheld = sum(run["level"] == "do not use" for run in close)
    assert withheld <= most(len(close), REFUSED)


def test_verdicts_get_graver_as_overlap_vanishes(audit):
    _, runs = audit
    levels = ("trust", "caution", "do not use")
    means = [
        sum(levels.index(run["level"]) for run in runs if run["dial"] == dial) for dial in DIALS
    ]
    assert means == sorted(means)
    assert all(run["level"] == "do not use" for run in runs if run["dial"] == 1.0)
