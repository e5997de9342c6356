"""The report opened in headless Chromium, as its reader will."""

import dataclasses
import re
from itertools import pairwise

import numpy as np
import pytest
from browser import CHROMIUM, browser_page
from sample_evaluations import HOSTILE, compared, scalar, vector

from fle.report import Extras, gather, write_comparison, write_report
from fle.report.style import NumberStyle, percent
from fle.returns import ReturnDistribution, cvar
from fle.returns.intervals import Replicates

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
pytest.importorskip("websocket")

PHONE = 375


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser_page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def one(folder):
    data, evaluation = scalar()
    # As many draws as the page needs, a little off the estimate.
    truth = evaluation.returns.sample(2000, seed=1) + 0.1
    write_report(evaluation, folder / "one.html", data=data, truth=truth)
    return folder / "one.html"


@pytest.fixture(scope="module")
def two(folder):
    data, evaluation = vector()
    write_report(
        evaluation,
        folder / "two.html",
        data=data,
        title=HOSTILE,
        command=HOSTILE,
        extras=Extras(warnings=(HOSTILE,)),
    )
    return folder / "two.html"


@pytest.fixture(scope="module")
def several(folder):
    write_comparison(compared(), folder / "several.html", title=HOSTILE)
    return folder / "several.html"


@pytest.fixture
def opened(page):
    """Opens a file in a fresh state: light, on a wide screen."""

    def open_file(path, scheme="light", medium="screen", width=1100):
        page.problems.clear()
        page.requests.clear()
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.call("Emulation.setEmulatedMedia", media=medium, features=features)
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        page.open(path)
        return page

    return open_file


@pytest.mark.parametrize(("name", "charts"), [("one", 4), ("two", 9), ("several", 1)])
def test_no_console_errors_and_no_network(opened, request, name, charts):
    path = request.getfixturevalue(name)
    page = opened(path)
    assert page.problems == []
    outside = [url for url in page.requests if url != path.as_uri() and not url.startswith("data:")]
    assert outside == []
    drawn = page.evaluate(
        "[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('svg').length)"
    )
    assert len(drawn) == charts
    assert set(drawn) == {1}


ODD = {
    "constant": np.full(1000, -3.0),
    "huge": 1e9 * np.random.default_rng(0).standard_normal(1000),
    "tiny offset": 1e6 + 1e-3 * np.random.default_rng(0).standard_normal(1000),
    "far from the log": np.random.default_rng(0).standard_normal(1000) - 1000,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_returns_draw_without_complaint(opened, folder, name):
    evaluation = dataclasses.replace(scalar()[1])
    returns = ReturnDistribution.from_samples(ODD[name])
    # What the property would find, had the model been of this kind.
    vars(evaluation)["returns"] = returns
    write_report(evaluation, folder / "odd.html", truth=ODD[name])
    page = opened(folder / "odd.html")
    page.slide("level", 40)
    style = NumberStyle.of(float(returns.mean()), float(returns.std()))
    number = "[data-panel='estimate'][data-measure='tailMean']"
    assert page.text(number) == style.text(returns.cvar(0.4))
    page.slide("threshold-0", 0)
    assert page.text("[data-panel='estimate'][data-measure='below']") == "0.0%"
    assert page.problems == []


def test_the_level_slider_moves_the_numbers_and_the_tail(opened, one):
    returns = scalar()[1].returns
    style = NumberStyle.of(returns.mean(), returns.std())
    page = opened(one)
    number = "[data-panel='estimate'][data-measure='tailMean']"
    assert page.text(number) == style.text(returns.cvar(0.1))
    tail = "document.querySelectorAll('#density-0 .mark-area path')[1].getAttribute('d')"
    before = page.evaluate(tail)
    page.slide("level", 25)
    assert page.text(number) == style.text(returns.cvar(0.25))
    assert page.text("[data-panel='estimate'][data-measure='edge']") == style.text(
        returns.value_at_risk(0.25)
    )
    assert page.text("[data-show='level']") == "25%"
    page.wait_for(f"{tail} !== {before!r}")


def test_the_threshold_slider_moves_the_chance(opened, one):
    data, evaluation = scalar()
    axis = gather(evaluation, data=data).coordinates[0].axis
    page = opened(one)
    chance = "[data-panel='estimate'][data-measure='below']"
    assert page.text(chance) == percent(evaluation.returns.probability(below=0))
    for position in (0, 60, len(axis.thresholds) - 1):
        page.slide("threshold-0", position)
        # The axis with truth in it may be wider, so the threshold is read off the page.
        shown = float(page.text("[data-show='threshold']").replace("\N{MINUS SIGN}", "-"))
        expected = evaluation.returns.probability(below=shown)
        assert float(page.text(chance).rstrip("%")) == pytest.approx(100 * expected, abs=0.051)


def test_the_weights_move_the_weighted_sum(opened, two):
    data, evaluation = vector()
    contents = gather(evaluation, data=data)
    page = opened(two)
    page.slide("weight-1", -0.5)
    page.slide("weighted-level", 20)
    for key, rows in (("estimate", contents.draws), ("behaviour", contents.episodes)):
        estimate = contents.draws @ [1.0, -0.5]
        style = NumberStyle.of(float(estimate.mean()), float(estimate.std()))
        sums = rows @ [1.0, -0.5]
        expected = {
            "mean": style.text(float(sums.mean())),
            "std": style.text(float(sums.std())),
            "tailMean": style.text(cvar(sums, 0.2)),
            "below": percent(float(np.mean(sums < 0))),
        }
        for measure, text in expected.items():
            assert page.text(f"[data-sum='{key}'][data-measure='{measure}']") == text
    assert page.evaluate("document.getElementById('level').value") == "20"


def test_the_weights_move_the_intervals_of_the_weighted_sum(opened, folder):
    """Two replicates, the first return 1 larger and 1 smaller: Student's 2.92, times its weight."""
    evaluation = dataclasses.replace(vector()[1])
    law = evaluation.returns
    shifted = [
        ReturnDistribution.from_samples(law.samples + np.array([by, 0]), law.names)
        for by in (1.0, -1.0)
    ]
    replicates = Replicates(lambda: shifted, 0.9)
    vars(evaluation)["returns"] = dataclasses.replace(law, replicates=replicates)
    write_report(evaluation, folder / "intervals.html")
    page = opened(folder / "intervals.html")
    for weight in (1.0, -0.5):
        page.slide("weight-0", weight)
        shown = page.text("[data-sum-ends='mean']").replace("\N{MINUS SIGN}", "-")
        low, high = (float(end) for end in shown.split(" to "))
        # Ends are rounded to a hundredth.
        assert high - low == pytest.approx(2 * 2.92 * abs(weight), abs=0.011)


def test_what_the_user_named_stays_text(opened, two):
    page = opened(two)
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    assert page.text("h1") == HOSTILE
    items = "[...document.querySelectorAll('.warnings li')].map(item => item.textContent)"
    assert HOSTILE in page.evaluate(items)
    assert page.text("pre") == HOSTILE
    titles = page.evaluate("document.querySelector('#density-1').textContent")
    assert "</script>" in titles


def test_dark_scheme(opened, one):
    light = opened(one)
    colours = [light.styled("body", "background-color"), _chart_colour(light)]
    dark = opened(one, scheme="dark")
    assert _brightness(colours[0]) > 200 > 60 > _brightness(dark.styled("body", "background-color"))
    assert _chart_colour(dark) != colours[1]
    assert _brightness(dark.styled("#density-0 .role-axis-label text", "fill")) > 120


def test_paper_is_white_even_in_the_dark(opened, one):
    page = opened(one, scheme="dark", medium="print")
    assert _brightness(page.styled("body", "background-color")) == 255
    assert page.styled(".slider input", "display") == "none"
    # Print emulation is the last step of a page; the next one starts afresh.
    assert page.problems == []


@pytest.mark.parametrize("name", ["one", "two"])
def test_phone_width(opened, request, name):
    page = opened(request.getfixturevalue(name), width=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    widths = page.evaluate(
        "[...document.querySelectorAll('.chart svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert all(200 < width <= PHONE for width in widths)


def test_headings_captions_and_labels(opened, two):
    page = opened(two)
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    bare = "[...document.querySelectorAll('table')].filter(t => !t.caption).length"
    assert page.evaluate(bare) == 0
    unlabelled = "[...document.querySelectorAll('input')].filter(i => !i.labels.length).length"
    assert page.evaluate(unlabelled) == 0
    assert page.evaluate("document.querySelectorAll('[aria-live=polite]').length") >= 3
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def _chart_colour(page):
    return page.styled("#density-0 .mark-area path", "fill")


def _brightness(colour):
    return np.mean([float(part) for part in re.findall(r"[\d.]+", colour)[:3]])
