"""What the page shows of a sample agrees with fle.returns, for samples of any kind."""

import numpy as np
import pytest

from fle.report.contents import BINS, LEVELS, START_LEVEL, Axis, Panel
from fle.report.style import NumberStyle, percent
from fle.returns import ReturnDistribution, cvar, quantile

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


def panel_of(sample, weights=None, beside=()):
    returns = ReturnDistribution.from_samples(sample, weights=weights)
    axis = Axis.around(returns, beside)
    return axis, Panel.of(returns, axis)


def test_tails_agree_with_the_risk_functionals(sample):
    _, panel = panel_of(sample)
    scale = np.abs(sample).max() or 1.0
    for level in (0, 9, 49, 98):
        assert panel.value_at_risk[level] == quantile(sample, LEVELS[level])
        assert panel.cvar[level] == pytest.approx(cvar(sample, LEVELS[level]), abs=1e-9 * scale)


def test_tails_without_draws_are_not_shown():
    _, panel = panel_of(np.arange(50.0))
    # A tenth of fifty is five, and what tables ask for; 9% is less.
    assert panel.tail_mean(START_LEVEL) == panel.measure("cvar:0.1") == 2.0
    assert panel.edge(START_LEVEL) == 4.0
    assert panel.tail_mean(START_LEVEL - 1) is panel.edge(START_LEVEL - 1) is None
    assert panel.measure("cvar:0.09") is None


def test_weights_are_the_same_as_repetition():
    values, counts = np.array([-2.0, 0.0, 1.0, 5.0]), np.array([30, 20, 40, 10])
    repeated = ReturnDistribution.from_samples(np.repeat(values, counts))
    weighted = ReturnDistribution.from_samples(values, weights=counts)
    axis = Axis.around(repeated, [])
    assert Axis.around(weighted, []) == axis
    ours, theirs = Panel.of(weighted, axis), Panel.of(repeated, axis)
    for name in ("value_at_risk", "cvar", "below"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name))
    # Four values are few, so the bars are wider, but they hold the same.
    assert ours.heights @ np.diff(ours.edges) == pytest.approx(1.0)
    assert ours.mean == pytest.approx(theirs.mean)


def test_chances_are_those_of_the_sample(sample):
    axis, panel = panel_of(sample)
    for position in (0, len(axis.thresholds) // 2, -1):
        assert panel.below[position] == np.mean(sample < axis.thresholds[position])


def test_the_histogram_holds_all_but_what_is_outside(sample):
    _, panel = panel_of(sample)
    beyond = np.mean((sample < panel.edges[0]) | (sample > panel.edges[-1]))
    assert panel.outside == pytest.approx(beyond, abs=1e-12)
    # At most one in a thousand beyond each end, and a value more for rounding.
    assert panel.outside <= 0.002 + 2 / sample.size
    assert len(panel.heights) <= BINS


def test_zero_is_a_threshold_where_it_is_on_the_chart():
    axis, _ = panel_of(np.linspace(-1.7, 3.3, 100))
    assert axis.thresholds[axis.position(0.0)] == 0.0


def test_a_distant_distribution_does_not_flatten_the_estimate():
    far = ReturnDistribution.from_samples(np.linspace(1000, 1001, 100))
    axis, _ = panel_of(np.linspace(0, 1, 100), beside=[far])
    # At most 4 widths further, and 3% and a step at the ends.
    assert axis.thresholds[-1] < 5 * 1.1
    assert Panel.of(far, axis).outside == 1.0


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
