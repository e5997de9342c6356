"""What a notebook shows: tables in HTML, charts, and frames of pandas and polars."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sample_evaluations import HOSTILE, compared, scalar, vector

import fle
from fle.errors import SettingsError


def test_every_value_shows_its_result():
    data, evaluation = scalar()
    returns, comparison = evaluation.returns, compared()
    plan = fle.plan(data, [0.25, 0.75], horizon=3)
    mean, tail = f"{returns.mean():.5g}", f"{returns.cvar(0.1):.5g}"
    for shown in (returns._repr_html_(), evaluation._repr_html_()):
        assert mean in shown
        assert tail in shown
    assert evaluation.coverage.in_words() in evaluation._repr_html_()
    assert "360" in data._repr_html_()
    assert "2 discrete" in data._repr_html_()
    assert "Plan of an evaluation" in plan._repr_html_()
    page = comparison._repr_html_()
    for name, value in comparison.ranking():
        assert f"{value:.5g}" in page
        assert name in page or name == HOSTILE
    assert "the first wins" in page
    assert "caution" in page


def test_print_shows_the_verdict_then_the_measures():
    evaluation = scalar()[1]
    verdict, *lines = str(evaluation).splitlines()
    assert verdict.startswith(f"verdict: {evaluation.verdict.level}")
    shown = {line.partition("  ")[0]: line.split()[-1] for line in lines if line}
    assert shown["mean"] == f"{evaluation.returns.mean():.5g}"
    assert shown["mean of the worst 10%"] == f"{evaluation.returns.cvar(0.1):.5g}"
    assert evaluation.problem.in_words() in str(evaluation)
    # One line, for lists and error messages.
    assert "\n" not in repr(evaluation)
    vector_of = vector()[1]
    mean = vector_of.returns.mean()
    row = next(line for line in str(vector_of).splitlines() if line.startswith("mean "))
    assert row.split()[1:] == [f"{value:.5g}" for value in mean]


def test_print_moves_no_cursor():
    law = fle.ReturnDistribution.from_samples(np.zeros(10), ("a\x1b[2J\nb",))
    assert str(law).splitlines()[0].split() == ["a\\x1b[2J", "b"]


def test_names_are_escaped():
    for shown in (compared(), vector()[1], vector()[0], vector()[1].returns):
        assert "<script>" not in shown._repr_html_()


def test_intervals_stand_beside_their_numbers():
    draws = np.random.default_rng(0).standard_normal(4_000)
    law = fle.ReturnDistribution.from_samples(draws)
    assert " to " not in law._repr_html_()
    other = fle.ReturnDistribution.from_samples(draws + 1)
    from dataclasses import replace

    from fle.returns.intervals import Replicates

    law = replace(law, replicates=Replicates(lambda: [other, other], 0.9))
    low, high = law.interval("mean").ends
    assert f"({low:.4g} to {high:.4g})" in str(law).splitlines()[1]
    assert f"({low:.4g} to {high:.4g})" in law._repr_html_()
    frame = law.to_pandas().set_index("measure")
    assert frame.loc["mean", "low"] == low


def specification(chart):
    return chart.to_dict(validate=True)


def test_plots():
    evaluation = scalar()[1]
    for kind in ("density", "cdf", "quantile", "stages"):
        assert specification(evaluation.plot(kind))["config"]["font"] == "sans-serif"
    two = vector()[1]
    for kind in ("density", "cdf", "quantile", "joint", "stages"):
        assert specification(two.plot(kind))
    assert specification(two.returns.plot("joint"))
    assert specification(compared().plot())
    with pytest.raises(SettingsError, match="a joint chart needs two returns"):
        evaluation.plot("joint")
    with pytest.raises(SettingsError, match="expected one of density, cdf, quantile, joint"):
        evaluation.returns.plot("stages")


def test_the_quantiles_of_a_plot_are_those_of_the_distribution():
    """A uniform return on 0 to 100 has the quantile 100 p, within a draw's distance."""
    law = fle.ReturnDistribution.from_samples(np.linspace(0, 100, 10_001))
    points = specification(law.plot("quantile"))["data"]["values"]
    assert [round(point["z"]) for point in points] == list(range(1, 100))


def test_frames():
    data, evaluation = scalar()
    rows = data.to_frame()
    assert isinstance(rows, pd.DataFrame)
    assert list(rows) == ["episode", "observation", "action", "reward", "terminated", "truncated"]
    np.testing.assert_array_equal(rows["reward"], data.rewards[:, 0])
    assert isinstance(data.to_polars(), pl.DataFrame)
    risks = evaluation.to_pandas().set_index("measure")["value"]
    assert risks["mean"] == evaluation.returns.mean()
    assert risks["cvar:0.1"] == evaluation.returns.cvar(0.1)
    assert len(evaluation.returns.to_polars()) == len(risks)
    table = compared().to_frame()
    assert list(table["policy"]) == [name for name, _ in compared().ranking()]
    assert set(fle.plan(data, [0.5, 0.5], horizon=3).to_frame()) == {"name", "text"}


def test_a_log_is_read_again_from_its_frame():
    data = scalar()[0]
    again = fle.read(data.to_pandas())
    np.testing.assert_array_equal(again.actions, data.actions)
    np.testing.assert_array_equal(again.rewards, data.rewards)
