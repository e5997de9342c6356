"""What the page shows of a sample agrees with fle.returns, for samples of any kind."""

import numpy as np
import pytest

from fle.report.laws import BINS, LEVELS, Axis, Law, tail_means
from fle.report.numbers import NumberStyle, percent
from fle.returns import cvar, value_at_risk

GENERATOR = np.random.default_rng(0)
SAMPLES = {
    "normal": GENERATOR.standard_normal(5_000),
    "large offset": 1e9 + GENERATOR.standard_normal(1_000),
    "tiny": 1e-9 * GENERATOR.standard_normal(1_000),
    "atoms": GENERATOR.choice([-1.0, 0.0, 2.5], 1_001),
    "constant": np.full(50, -3.0),
    "zero": np.zeros(10),
    "single": np.array([2.0]),
    "heavy": GENERATOR.standard_cauchy(3_000),
}


@pytest.fixture(params=SAMPLES, ids=str)
def sample(request):
    return SAMPLES[request.param]


def test_tails_agree_with_the_risk_functionals(sample):
    law = Law.of(sample, Axis.around(sample, []))
    scale = np.abs(sample).max() or 1.0
    for level in (0, 9, 49, 98):
        assert law.value_at_risk[level] == value_at_risk(sample, LEVELS[level])
        assert law.cvar[level] == pytest.approx(cvar(sample, LEVELS[level]), abs=1e-9 * scale)


def test_tail_means_by_hand():
    # Worst 30% of 1, 2, 3, 4: all of the 1 (mass 0.25) and 0.05 of the 2: (0.25 + 0.1) / 0.3.
    assert tail_means(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.3]))[0] == pytest.approx(
        0.35 / 0.3
    )


def test_chances_are_those_of_the_sample(sample):
    axis = Axis.around(sample, [])
    law = Law.of(sample, axis)
    for position in (0, len(axis.thresholds) // 2, -1):
        assert law.below[position] == np.mean(sample < axis.thresholds[position])


def test_the_histogram_holds_all_but_what_is_outside(sample):
    axis = Axis.around(sample, [])
    law = Law.of(sample, axis)
    assert law.heights @ np.diff(law.edges) == pytest.approx(1 - law.outside)
    # At most one in a thousand beyond each end, and a value more for rounding.
    assert law.outside <= 0.002 + 2 / sample.size
    assert len(law.heights) <= BINS


def test_zero_is_a_threshold_where_it_is_on_the_chart():
    axis = Axis.around(np.linspace(-1.7, 3.3, 100), [])
    assert axis.thresholds[axis.position(0.0)] == 0.0


def test_a_distant_law_does_not_flatten_the_estimate():
    near, far = np.linspace(0, 1, 100), np.linspace(1000, 1001, 100)
    axis = Axis.around(near, [far])
    # At most 4 widths further, and 3% and a step at the ends.
    assert axis.thresholds[-1] < 5 * 1.1
    assert Law.of(far, axis).outside == 1.0


@pytest.mark.parametrize(
    ("mean", "std", "value", "text"),
    [
        (5.0, 2.0, 5.291, "5.29"),
        (-1500.0, 300.0, -1234.56, "\N{MINUS SIGN}1,235"),
        (0.0, 0.02, -0.00001, "0.0000"),
        (0.0, 0.02, 0.012345, "0.0123"),
        (0.0, 1e9, 1.5e9, "1.50e9"),
        (0.0, 1e-9, -1.234e-9, "\N{MINUS SIGN}1.23e\N{MINUS SIGN}9"),
        (1e9, 1.0, 1e9 + 1, "1.00000000100e9"),
        (3.0, 0.0, 3.0, "3.00"),
        (0.0, 0.0, 0.0, "0.00"),
    ],
)
def test_numbers_show_three_figures_of_the_spread(mean, std, value, text):
    assert NumberStyle.of(mean, std).text(value) == text


def test_rounding_stays_below_what_is_shown():
    style = NumberStyle.of(0.0, 0.02)
    assert abs(style.rounded(0.0123456789) - 0.0123456789) < 1e-6


def test_percent():
    assert [percent(p) for p in (0.0, 0.1234, 1.0)] == ["0.0%", "12.3%", "100.0%"]
