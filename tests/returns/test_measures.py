"""The register of risk measures: texts, labels, tails, and exact answers for every one."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fle.errors import FLEWarning, SettingsError
from fle.returns import ReturnDistribution, measure
from fle.returns.measures import REGISTER, further_measures, usual_measures

N = 200_000
MEAN, STD = 1.0, 2.0
SAMPLE = np.random.default_rng(7).normal(MEAN, STD, N)
NORMAL = stats.norm(MEAN, STD)


def share_error(probability):
    return np.sqrt(probability * (1 - probability) / N)


def quantile_error(level):
    return np.sqrt(level * (1 - level) / N) / NORMAL.pdf(NORMAL.ppf(level))


def shortfall(threshold, order):
    """E[((t - Z)+)^order] of the normal, for order 1, 2 or 4."""
    d = (threshold - MEAN) / STD
    cdf, pdf = stats.norm.cdf(d), stats.norm.pdf(d)
    moments = {
        1: d * cdf + pdf,
        2: (d**2 + 1) * cdf + d * pdf,
        4: (d**4 + 6 * d**2 + 3) * cdf + (d**3 + 5 * d) * pdf,
    }
    return STD**order * moments[order]


def shortfall_error(threshold, order):
    return np.sqrt((shortfall(threshold, 2 * order) - shortfall(threshold, order) ** 2) / N)


def tail_error(level):
    """Of the mean of a tail: sd[(q - Z)+] / (level sqrt(n)), with q the true quantile."""
    return shortfall_error(NORMAL.ppf(level), 1) / level


def normal_expectile(level):
    """Bisection on level E[(Z - e)+] = (1 - level) E[(e - Z)+], and its standard error."""
    low, high = MEAN - 10 * STD, MEAN + 10 * STD
    for _ in range(80):
        e = (low + high) / 2
        short = shortfall(e, 1)
        # E[(Z - e)+] = E[(e - Z)+] + E[Z] - e.
        low, high = (e, high) if level * (short + MEAN - e) > (1 - level) * short else (low, e)
    # The estimating function's deviation over its slope in e.
    upper = shortfall(2 * MEAN - e, 2)
    second = level**2 * upper + (1 - level) ** 2 * shortfall(e, 2)
    slope = level * (1 - NORMAL.cdf(e)) + (1 - level) * NORMAL.cdf(e)
    return e, np.sqrt(second / N) / slope


TENTH = NORMAL.ppf(0.1)
TAIL_MEAN = MEAN - STD * stats.norm.pdf(stats.norm.ppf(0.1)) / 0.1
# By text: the exact value for the normal distribution and the standard error of N draws.
EXACT = {
    "mean": (MEAN, STD / np.sqrt(N)),
    "std": (STD, STD / np.sqrt(2 * N)),
    "median": (MEAN, quantile_error(0.5)),
    "quantile:0.1": (TENTH, quantile_error(0.1)),
    "value_at_risk:0.1": (TENTH, quantile_error(0.1)),
    "loss": (NORMAL.cdf(0), share_error(NORMAL.cdf(0))),
    "cvar:0.1": (TAIL_MEAN, tail_error(0.1)),
    # The normal is its own mirror image about its mean.
    "upper_cvar:0.1": (2 * MEAN - TAIL_MEAN, tail_error(0.1)),
    "below:2.5": (NORMAL.cdf(2.5), share_error(NORMAL.cdf(2.5))),
    "above:2.5": (NORMAL.sf(2.5), share_error(NORMAL.sf(2.5))),
    "lower_partial_moment:0": (shortfall(0, 1), shortfall_error(0, 1)),
    "lower_partial_moment:0:2": (shortfall(0, 2), shortfall_error(0, 2)),
    # mean - aversion var / 2; the variance of exp(-aversion Z) over its squared mean is
    # exp(aversion^2 var) - 1.
    "entropic:0.5": (MEAN - 0.5 * STD**2 / 2, np.sqrt((np.exp(0.25 * STD**2) - 1) / N) / 0.5),
    "expectile:0.1": normal_expectile(0.1),
}


def test_every_measure_has_an_exact_answer():
    assert {text.split(":")[0] for text in EXACT} == set(REGISTER)


@pytest.mark.parametrize("text", EXACT)
def test_exact_answers_of_a_normal(text):
    truth, error = EXACT[text]
    # 5 standard errors: a false alarm in 2e6 for each measure.
    assert abs(measure(text).of(SAMPLE) - truth) < 5 * error


@pytest.mark.parametrize("text", EXACT)
def test_weights_undo_a_skewed_sample(text):
    # Uniform draws on [-7, 9], four deviations to each side, weighted with the normal density: the
    # mass beyond is 6e-5. Of what is measured, a weighted draw counts with at most its density
    # times 16, so that errors are those of N / (16 max density) = N / 3.2 draws.
    draws = np.random.default_rng(8).uniform(-7, 9, N)
    truth, error = EXACT[text]
    found = measure(text).of(draws, NORMAL.pdf(draws))
    assert abs(found - truth) < 5 * np.sqrt(3.2) * error + cut_off(text)


def cut_off(text):
    """What the tails beyond four deviations can change: their mass times what is in them."""
    mass = 2 * stats.norm.sf(4)
    per_unit = {"lower_partial_moment:0:2": 81.0, "entropic:0.5": 2 * np.exp(0.5 * 9 - 1)}
    # Means of a tenth: ten times the mass, each of at most five deviations.
    return mass * per_unit.get(text, 10 * 5 * STD)


@pytest.mark.parametrize("text", EXACT)
def test_texts_are_read_and_written(text):
    found = measure(text)
    assert found.text == str(found) == text
    assert measure(found) is found
    assert measure(text) == found
    assert found.label
    assert found.family.definition
    assert found.family.compute.__doc__
    assert "{" not in found.label + found.heading


def test_a_distribution_answers_to_every_text():
    returns = ReturnDistribution.from_samples(SAMPLE)
    for text in EXACT:
        assert returns.measure(text) == measure(text).of(SAMPLE)
    assert returns.cvar(0.1) == returns.measure("cvar:0.1")
    assert returns.upper_cvar(0.1) == returns.measure("upper_cvar:0.1")
    assert returns.entropic_risk(0.5) == returns.measure("entropic:0.5")
    assert returns.expectile(0.1) == returns.measure("expectile:0.1")
    assert returns.median() == returns.measure("median")
    assert returns.lower_partial_moment(0, 2) == returns.measure("lower_partial_moment:0:2")
    assert returns.probability(above=2.5) == returns.measure("above:2.5")


def test_texts_that_mean_the_same():
    assert measure("lower_partial_moment:0:1").text == "lower_partial_moment:0"
    assert measure("cvar:1e-1") == measure("cvar:0.1")
    assert measure("below:1234567.5").text == "below:1234567.5"
    assert measure("below:1234567.5").label == "chance below 1234567.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cvra:0.1", "expected one of mean, .*cvar:LEVEL.*; got 'cvra:0.1'; did you mean cvar?"),
        ("cvar", "expected cvar:LEVEL, got 'cvar'"),
        ("cvar:0.1:2", "expected cvar:LEVEL, got 'cvar:0.1:2'"),
        ("mean:1", "expected mean, got 'mean:1'"),
        ("cvar:tenth", "expected cvar:LEVEL, got 'cvar:tenth'"),
        ("cvar:1.5", "level: expected a number strictly between 0 and 1, got 1.5; the worst 10%"),
        ("quantile:nan", "strictly between 0 and 1, got nan"),
        ("below:inf", "return: expected a finite number, got inf"),
        ("lower_partial_moment:0:0", "order: expected a finite number above 0, got 0"),
        ("entropic:0", "aversion: expected a finite number above 0, got 0"),
        ("", "expected one of mean"),
    ],
)
def test_texts_that_mean_nothing(text, message):
    with pytest.raises(SettingsError, match=message):
        measure(text)


def test_directions_and_probabilities():
    better = {name: family.direction for name, family in REGISTER.items()}
    worse = {"std", "loss", "below", "lower_partial_moment"}
    assert {name for name, direction in better.items() if direction < 0} == worse
    shares = {name for name, family in REGISTER.items() if family.probability}
    assert shares == {"loss", "below", "above"}


def test_tails_of_measures():
    tails = {"mean": 1.0, "cvar:0.1": 0.1, "upper_cvar:0.02": 0.02, "quantile:0.95": 0.05}
    for text, share in tails.items():
        assert measure(text).tail([0.0, 1.0]) == pytest.approx(share)
    # exp(0) and exp(-2): (1 + e^-2)^2 / (1 + e^-4) draws of 2.
    tilt = np.exp(-2.0)
    share = (1 + tilt) ** 2 / (1 + tilt**2) / 2
    assert measure("entropic:2").tail([0.0, 1.0]) == pytest.approx(share)
    assert measure("entropic:2").tail([0.0, 1.0], [3.0, 3.0]) == pytest.approx(share)


def test_the_thin_tail_of_a_large_aversion():
    returns = ReturnDistribution.from_samples(np.arange(1000.0))
    # exp(-100 k): all but the worst return count for nothing.
    with pytest.warns(FLEWarning, match="about 1 of 1000 draws"):
        returns.measure("entropic:100")
    assert returns.measure_if_supported("entropic:100") is None


def test_few_draws_in_a_tail():
    returns = ReturnDistribution.from_samples(np.arange(-50.0, 50.0))
    # -50 to 49: the worst twentieth is -50 to -46, just enough to be shown and too few to trust.
    assert returns.measure_if_supported("cvar:0.05") == -48.0
    assert returns.measure_if_supported("cvar:0.04") is None
    with pytest.warns(FLEWarning, match="about 5 of 100 draws lie in a tail of 0.05; at least 20"):
        returns.measure("cvar:0.05")
    # One draw with all the weight is one draw: nothing is known of a tail.
    lonely = ReturnDistribution.from_samples(
        np.arange(1000.0), weights=np.where(np.arange(1000) == 3, 1.0, 1e-9)
    )
    assert lonely.effective_size == pytest.approx(1.0, abs=1e-5)
    assert lonely.measure_if_supported("cvar:0.1") is None


def test_what_tables_show():
    assert [shown.text for shown in usual_measures()] == [
        *("mean", "std", "median", "quantile:0.05", "quantile:0.95", "loss"),
        *("cvar:0.1", "cvar:0.05"),
    ]
    both = [shown.text for shown in (*usual_measures(), *further_measures())]
    assert len(set(both)) == len(both)


def test_the_page_of_measures_is_the_register():
    page = Path(__file__).parents[2] / "docs" / "measures.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| `")]
    told = {row[0].removeprefix("| ").strip("`"): row[1] for row in rows}
    assert told == {family.form: family.definition for family in REGISTER.values()}
