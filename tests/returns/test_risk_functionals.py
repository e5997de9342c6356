import numpy as np
import pytest
from scipy import stats

from fle.errors import DataError, SettingsError
from fle.returns import risk


def test_cvar_of_five_atoms_by_hand():
    # Atoms -4, 1, 2, 3, 10, each 0.2. The worst 0.3 is all of -4 (0.2) and half of 1 (0.1):
    # (0.2 * -4 + 0.1 * 1) / 0.3 = -0.7 / 0.3.
    samples = [2.0, 10.0, -4.0, 3.0, 1.0]
    assert risk.cvar(samples, 0.3) == pytest.approx(-0.7 / 0.3, abs=1e-12)
    # At 0.4 both whole atoms: (-4 + 1) / 2. At 0.1 only half of the worst atom.
    assert risk.cvar(samples, 0.4) == pytest.approx(-1.5, abs=1e-12)
    assert risk.cvar(samples, 0.1) == -4.0


def test_cvar_with_weights_by_hand():
    # P(0) = 1/2, P(4) = 1/4, P(8) = 1/4; the worst 3/5 is 0 (1/2) and 4 (1/10): 0.4 / 0.6.
    assert risk.cvar([4.0, 0.0, 8.0], 0.6, weights=[1, 2, 1]) == pytest.approx(2 / 3, abs=1e-12)


@pytest.mark.parametrize("level", [0.03, 0.1, 0.25, 0.5, 0.87])
def test_cvar_is_the_maximum_over_b(level):
    samples = np.random.default_rng(1).standard_t(3, size=57)
    # b - E[(b - z)+]/level is concave and piecewise linear with kinks at the samples.
    brute = max(b - np.maximum(b - samples, 0).mean() / level for b in samples)
    assert risk.cvar(samples, level) == pytest.approx(brute, abs=1e-12)


def test_weights_equal_repetition():
    samples, counts = np.array([3.0, -1.0, 0.5, 7.0]), np.array([2, 3, 1, 4])
    repeated = np.repeat(samples, counts)
    for level in (0.05, 0.1, 0.3, 0.35, 0.4, 0.6, 0.9):
        assert risk.cvar(samples, level, counts) == pytest.approx(risk.cvar(repeated, level))
        assert risk.quantile(samples, level, counts) == risk.quantile(repeated, level)
    assert risk.lower_partial_moment(samples, 1.0, 2, counts) == pytest.approx(
        risk.lower_partial_moment(repeated, 1.0, 2)
    )


def test_cvar_and_quantile_of_a_normal():
    # CVaR = mean - std * pdf(ppf(level)) / level. The estimator's standard error is
    # sqrt(Var[(q - Z)+]) / (level sqrt(n)); 5 of them: false alarm 6e-7 a level.
    mean, std, n = 2.0, 3.0, 200_000
    samples = np.random.default_rng(2).normal(mean, std, n)
    for level in (0.01, 0.1, 0.5):
        cut = stats.norm.ppf(level)
        truth = mean - std * stats.norm.pdf(cut) / level
        shortfall = np.maximum(mean + std * cut - samples, 0)
        error = shortfall.std() / (level * np.sqrt(n))
        assert abs(risk.cvar(samples, level) - truth) < 5 * error
        quantile_error = std * np.sqrt(level * (1 - level) / n) / stats.norm.pdf(cut)
        assert abs(risk.value_at_risk(samples, level) - (mean + std * cut)) < 5 * quantile_error


def test_quantile_is_the_generalised_inverse():
    # P(Z <= 1) = 0.5 exactly, so the 0.5-quantile is 1 and just above it 5.
    samples = [5.0, 1.0]
    assert risk.quantile(samples, [0.5, 0.500001]).tolist() == [1.0, 5.0]
    # k/n is reached exactly for every k, without rounding onto the next value.
    ramp = np.arange(1, 1001)
    levels = np.arange(1, 1000) / 1000
    assert np.array_equal(risk.quantile(ramp, levels), np.arange(1, 1000))
    assert np.array_equal(risk.quantile(ramp, levels, np.full(1000, 0.1)), np.arange(1, 1000))


def test_lower_partial_moments_by_hand():
    # Shortfalls below 2 of (0, 1, 5): 2, 1, 0.
    assert risk.lower_partial_moment([0, 1, 5], 2.0) == pytest.approx(1.0)
    assert risk.lower_partial_moment([0, 1, 5], 2.0, order=2) == pytest.approx(5 / 3)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 10, float("nan")])
def test_level_outside_the_unit_interval(level):
    with pytest.raises(SettingsError, match="strictly between 0 and 1"):
        risk.cvar([1.0, 2.0], level)


def test_unusable_samples_weights_and_orders():
    with pytest.raises(DataError, match="non-empty"):
        risk.cvar([], 0.1)
    with pytest.raises(DataError, match="weights"):
        risk.cvar([1.0, 2.0], 0.1, weights=[1.0, -1.0])
    with pytest.raises(SettingsError, match="probability"):
        risk.lower_partial_moment([1.0], 0.0, order=0)
