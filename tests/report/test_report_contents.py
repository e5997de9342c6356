"""What a report is made of, and the file that comes out."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sample_evaluations import HOSTILE, scalar, vector

import fle
from fle.errors import FLEError, SettingsError
from fle.policies.answers import Coverage
from fle.report import Extras, gather, save_density, write_report
from fle.report.charts import page_charts
from fle.report.page import render, script_json
from fle.report.wording import headline, sentences


class Parsed(HTMLParser):
    """Elements with their attributes, and the visible text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.scripts = [], [], []
        self._inside = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        (self.scripts if self._inside else self.text).append(data)


@pytest.fixture(scope="module")
def contents():
    data, evaluation = scalar()
    return gather(evaluation, data=data)


@pytest.fixture(scope="module")
def page(contents):
    return render(contents)


def test_behaviour_is_what_the_episodes_earned(contents):
    data, _ = scalar()
    returns, _ = data.observed_returns(1.0)
    panel = contents.coordinates[0].behaviour
    assert panel.size == len(returns)
    assert panel.mean == pytest.approx(float(returns.mean()))


def test_the_evaluation_alone_is_enough(contents):
    alone = gather(scalar()[1])
    assert alone.data_lines == contents.data_lines
    assert alone.coordinates[0].behaviour.mean == contents.coordinates[0].behaviour.mean


def test_the_shown_call_gives_the_same_result(contents):
    data, evaluation = scalar()
    names = {"fle": fle, "data": data, "policy": [0.25, 0.75]}
    call = contents.command.split("result.report")[0]
    exec(call, names)  # noqa: S102
    assert np.array_equal(names["result"].returns.samples, evaluation.returns.samples)


def test_warnings_come_once_and_coverage_first():
    data, evaluation = scalar()
    covered = Coverage(0.2, 100.0, 360, True, ("thin coverage",))
    evaluation = dataclasses.replace(
        evaluation, warnings=("heavy tail", "unsorted rows"), coverage=covered
    )
    extras = Extras(warnings=("heavy tail", "one more"))
    told = gather(evaluation, data=data, extras=extras).warnings
    assert told == ("thin coverage", "heavy tail", "unsorted rows", "one more")
    page = render(gather(evaluation, data=data, extras=extras))
    assert page.index("thin coverage") < page.index("In short") < page.index("The distribution")


def test_no_headline_number_without_coverage(contents):
    covered = Coverage(0.9, 3.0, 360, False, ("too little",))
    uncovered = gather(dataclasses.replace(scalar()[1], coverage=covered).anyway())
    assert headline(contents)
    assert headline(uncovered) == ()
    assert not any(re.search(r"\d", sentence) for sentence in sentences(uncovered))


def test_the_headline_in_words(contents):
    panel, text = contents.coordinates[0].estimate, contents.coordinates[0].style.text
    assert sentences(contents)[0].startswith(
        f"Under the target policy, the return is {text(panel.mean)} on average."
    )
    returns = scalar()[1].returns
    figures = headline(contents)[0].figures
    assert [figure.value for figure in figures] == [
        text(returns.mean()),
        text(returns.cvar(0.1)),
        f"{100 * returns.probability(below=0):.1f}%",
    ]


def test_intervals_are_shown_where_there_are_some():
    extras = Extras(intervals={("reward", "mean"): (2.0, 2.5), ("reward", "loss"): (0.01, 0.02)})
    intervals = [f.interval for f in headline(gather(scalar()[1], extras=extras))[0].figures]
    assert intervals == ["interval 2.00 to 2.50", None, "interval 1.0% to 2.0%"]
    unknown = Extras(intervals={("reward", "cvar"): (2.0, 2.5)})
    with pytest.raises(SettingsError, match=r"mean, cvar:0.1, loss, got \('reward', 'cvar'\)"):
        gather(scalar()[1], extras=unknown)


def test_truth_has_a_distance_and_a_floor():
    evaluation = scalar()[1]
    returns = evaluation.returns
    # A shift by one standard deviation is a W1 of 1; the floor of 4000 draws is far below 0.1.
    truth = returns.sample(4000, seed=5) + returns.std()
    (compared,) = gather(evaluation, truth=truth).comparisons
    # 5 standard errors of 4000 draws: a false alarm in 2e6.
    assert compared.distance == pytest.approx(1.0, abs=5 / np.sqrt(4000))
    assert 0 < compared.floor.mean < 0.1


def test_truth_of_vectors_is_sliced_first():
    evaluation = vector()[1]
    compared = gather(evaluation, truth=evaluation.returns.sample(1000, seed=5)).comparisons
    assert len(compared) == 3
    assert "sliced" in compared[0].name
    assert all(c.distance < c.floor.mean + 6 * c.floor.std for c in compared)


def test_truth_of_another_dimension():
    with pytest.raises(SettingsError, match=r"truth: expected 2 columns, for speed, .* got 1"):
        gather(vector()[1], truth=np.zeros(10))


def test_user_text_is_escaped_everywhere():
    data, evaluation = vector()
    contents = gather(
        evaluation, data=data, title=HOSTILE, command=HOSTILE, extras=Extras(warnings=(HOSTILE,))
    )
    page = render(contents)
    parsed = Parsed(page)
    assert [tag for tag, _ in parsed.elements].count("script") == 3
    assert "img" not in {tag for tag, _ in parsed.elements}
    assert not any("onerror" in attributes for _, attributes in parsed.elements)
    report = json.loads(parsed.scripts[1])
    assert report["charts"].keys() == page_charts(contents).keys()


def test_script_json_cannot_leave_its_element():
    written = script_json({"name": HOSTILE})
    assert not set(written) & set("<>&\u2028\u2029")
    assert json.loads(written) == {"name": HOSTILE}


def test_the_page_refers_to_nothing_outside(page):
    parsed = Parsed(page)
    addresses = [
        value
        for _, attributes in parsed.elements
        for name, value in attributes.items()
        if name in ("src", "href", "action", "data")
    ]
    assert addresses == ["data:,"]
    policy = next(a["content"] for t, a in parsed.elements if a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_every_chart_compiles(contents):
    import vl_convert

    data, evaluation = vector()
    for spec in (page_charts(contents) | page_charts(gather(evaluation, data=data))).values():
        assert vl_convert.vegalite_to_vega(spec)["marks"]


def test_the_page_without_a_script_has_the_numbers(contents, page):
    text = " ".join("".join(Parsed(page).text).split())
    returns, style = scalar()[1].returns, contents.coordinates[0].style
    assert f"and average {style.text(returns.cvar(0.1))}." in text


def test_writing_replaces_the_file_whole(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(scalar()[1], path, title="New")
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert "<title>New</title>" in page
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    # Vega is 0.9 MB of it.
    assert path.stat().st_size < 1_300_000


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FLEError, match="cannot be written"):
        write_report(scalar()[1], tmp_path / "missing" / "report.html")


def test_a_loaded_run_gives_the_same_page(page, tmp_path):
    evaluation = scalar()[1]
    evaluation.save(tmp_path / "run")
    assert render(gather(fle.fitting.load(tmp_path / "run"))) == page


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<svg")])
def test_density_as_an_image(tmp_path, suffix, start):
    returns = vector()[1].returns
    path = tmp_path / f"density{suffix}"
    save_density(path, returns, truth=returns, behaviour=returns)
    assert path.read_bytes().startswith(start)


def test_density_in_a_format_that_is_not_there(tmp_path):
    with pytest.raises(SettingsError, match=r"\.png or \.svg, got '\.gif'"):
        save_density(tmp_path / "density.gif", scalar()[1].returns)
