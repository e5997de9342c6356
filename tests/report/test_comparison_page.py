"""The page of a comparison: what it says, and that it is drawn without a network."""

import re

import numpy as np
import pytest
from sample_evaluations import HOSTILE, MODEL, compared

import fle
from fle.errors import FLEWarning, SettingsError
from fle.report import write_comparison
from fle.report.comparison_page import _stroke, render_comparison
from fle.report.style import NumberStyle
from fle.returns import measure


@pytest.fixture(scope="module")
def page():
    return render_comparison(compared(), measure("std"), "Title <b>")


def texts(page):
    """What stands between the tags before the scripts."""
    body = page.split("<body>")[1].split("<script")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


def test_the_ranking_and_its_order(page):
    text = texts(page)
    assert "Ranked by standard deviation, lowest first." in text
    assert page.count('aria-sort="ascending"') == 1
    places = [text.index(name) for name, _ in compared().ranking("std") if name != HOSTILE]
    assert places == sorted(places)
    # Decimals that suit the first of the ranking.
    first = compared().returns[compared().ranking("std")[0][0]]
    style = NumberStyle.of(float(first.mean()), float(first.std()))
    assert style.text(float(compared().returns["cautious"].mean())) in text


def test_pairs_dominance_and_caution(page):
    text = texts(page)
    pair = compared().differences(["cautious", "behaviour"])[0]
    assert f"{100 * pair.beats:.1f}%" in text or f"{100 * (1 - pair.beats):.1f}%" in text
    assert "dominates cautious in the first order" in text
    assert "the error of the fits is not in them" in text
    assert "120 logged starts" in text
    assert "it logged the data" in text


def test_names_cannot_break_the_page(page):
    assert HOSTILE not in page
    assert "<img src=x" not in page
    assert "<title>Title &lt;b&gt;</title>" in page


def test_one_measure_more_is_one_column_more():
    plain = render_comparison(compared(), measure("mean"), "t")
    more = render_comparison(compared(), measure("expectile:0.3"), "t")
    assert more.count('<th scope="col"') == plain.count('<th scope="col"') + 1
    assert "30% expectile" in more


def test_what_is_refused_and_a_page_without_numbers(tmp_path):
    data = fle.Dataset(
        observations=np.zeros(50, int),
        actions=np.zeros(50, int),
        rewards=np.linspace(0, 1, 50),
        next_observations=np.zeros(50, int),
        terminations=np.ones(50, bool),
        truncations=np.zeros(50, bool),
        number_of_actions=2,
    )
    with pytest.warns(FLEWarning):
        found = fle.compare(data, {"unseen": [0.0, 1.0]}, horizon=1, model=MODEL)
    found.report(tmp_path / "page.html", title="Only one")
    text = texts((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "No estimate" in text
    assert "100.0% of its actions were never logged" in text
    assert "The ranking" not in text


def test_a_measure_that_is_not_known(tmp_path):
    with pytest.raises(SettingsError, match="did you mean cvar"):
        write_comparison(compared(), tmp_path / "page.html", by="cvra:0.1")
    assert not (tmp_path / "page.html").exists()


def test_every_line_looks_different():
    strokes = [str(_stroke(place)) for place in range(18)]
    assert len(set(strokes)) == 18
