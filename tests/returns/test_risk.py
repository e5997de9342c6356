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


def test_many_levels_at_once_are_those_one_by_one():
    samples = np.random.default_rng(3).standard_normal(100)
    weights = np.random.default_rng(4).random(100)
    levels = np.arange(1, 100) / 100
    for function in (risk.cvar, risk.upper_cvar, risk.quantile):
        for masses in (None, weights):
            single = [float(function(samples, level, masses)) for level in levels]
            # Sums of 100 values of about 1, each rounded at 2e-16 of it.
            assert function(samples, levels, masses) == pytest.approx(single, abs=1e-13)


def test_the_two_tails_are_each_others_mirror():
    # Atoms -4, 1, 2, 3, 10: the best 0.3 is all of 10 (0.2) and half of 3 (0.1): 2.3 / 0.3.
    samples = [2.0, 10.0, -4.0, 3.0, 1.0]
    assert risk.upper_cvar(samples, 0.3) == pytest.approx(2.3 / 0.3, abs=1e-12)
    # The mean is made of both tails: 0.3 * upper(0.3) + 0.7 * lower(0.7).
    lower = risk.cvar(samples, 0.7)
    assert 0.3 * risk.upper_cvar(samples, 0.3) + 0.7 * lower == pytest.approx(2.4, abs=1e-12)


def test_large_offsets_do_not_drown_the_tail():
    # 1e9 + (0, 1, ..., 99): the worst tenth is 1e9 + 4.5, and a double at 1e9 resolves 1.2e-7.
    samples = 1e9 + np.arange(100.0)
    assert risk.cvar(samples, 0.1) - 1e9 == pytest.approx(4.5, abs=2.4e-7)
    assert risk.expectile(samples, 0.5) - 1e9 == pytest.approx(49.5, abs=2.4e-7)


def test_weights_equal_repetition():
    samples, counts = np.array([3.0, -1.0, 0.5, 7.0]), np.array([2, 3, 1, 4])
    repeated = np.repeat(samples, counts)
    for level in (0.05, 0.1, 0.3, 0.35, 0.4, 0.6, 0.9):
        assert risk.cvar(samples, level, counts) == pytest.approx(risk.cvar(repeated, level))
        assert risk.quantile(samples, level, counts) == risk.quantile(repeated, level)
        assert risk.upper_cvar(samples, level, counts) == pytest.approx(
            risk.upper_cvar(repeated, level)
        )
        assert risk.expectile(samples, level, counts) == pytest.approx(
            risk.expectile(repeated, level)
        )
    for function in (risk.mean, risk.std, risk.median, risk.loss):
        assert function(samples, counts) == pytest.approx(function(repeated))
    for function in (risk.below, risk.above, risk.distribution_function):
        for threshold in (-1.0, 0.0, 3.0, 8.0):
            assert function(samples, threshold, counts) == function(repeated, threshold)
    assert risk.entropic(samples, 0.5, counts) == pytest.approx(risk.entropic(repeated, 0.5))
    assert risk.lower_partial_moment(samples, 1.0, 2, counts) == pytest.approx(
        risk.lower_partial_moment(repeated, 1.0, 2)
    )


def test_a_sample_of_weight_zero_is_not_there():
    with_it = ([-1e9, 0.0, 1.0], [0.0, 1.0, 1.0])
    for function, parameters in (
        (risk.cvar, (0.1,)),
        (risk.quantile, (0.01,)),
        (risk.entropic, (2.0,)),
        (risk.expectile, (0.1,)),
    ):
        assert function(with_it[0], *parameters, weights=with_it[1]) == pytest.approx(
            function([0.0, 1.0], *parameters)
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
        assert abs(risk.quantile(samples, level) - (mean + std * cut)) < 5 * quantile_error


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


def test_entropic_values_by_hand():
    # -log((1 + exp(-2)) / 2) / 2.
    assert risk.entropic([0.0, 1.0], 2.0) == pytest.approx(-np.log((1 + np.exp(-2)) / 2) / 2)
    # mean - aversion * variance / 2 + ... for small aversions, without loss of figures.
    assert risk.entropic([0.0, 1.0], 1e-8) == pytest.approx(0.5 - 1e-8 / 8, abs=1e-15)
    # The worst return, and what its share costs, for large ones: nothing overflows.
    assert risk.entropic([-3.0, 700.0], 1e4) == pytest.approx(-3.0 + np.log(2) / 1e4)


def test_expectiles_solve_their_equation():
    samples = np.random.default_rng(5).standard_t(3, size=58)
    weights = np.random.default_rng(6).random(58)
    for level in (0.01, 0.3, 0.5, 0.9):
        e = risk.expectile(samples, level, weights)
        over = np.average(np.maximum(samples - e, 0), weights=weights)
        short = np.average(np.maximum(e - samples, 0), weights=weights)
        assert level * over == pytest.approx((1 - level) * short, abs=1e-13)
    assert risk.expectile(samples, 0.5) == pytest.approx(samples.mean(), abs=1e-13)
    assert risk.expectile([3.0, 3.0], 0.2) == 3.0
    # Atoms 0 and 1: level (1 - e) = (1 - level) e, so e is the level.
    assert risk.expectile([0.0, 1.0], 0.2) == pytest.approx(0.2, abs=1e-15)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 10, float("nan")])
def test_level_outside_the_unit_interval(level):
    with pytest.raises(SettingsError, match="strictly between 0 and 1"):
        risk.cvar([1.0, 2.0], level)


def test_unusable_samples_weights_and_orders():
    with pytest.raises(DataError, match="non-empty"):
        risk.cvar([], 0.1)
    with pytest.raises(DataError, match="weights"):
        risk.cvar([1.0, 2.0], 0.1, weights=[1.0, -1.0])
    with pytest.raises(DataError, match="not all zero"):
        risk.mean([1.0, 2.0], weights=[0.0, 0.0])
    with pytest.raises(DataError, match=r"expected 2 finite.*got shape \(3,\)"):
        risk.mean([1.0, 2.0], weights=[1.0, 1.0, 1.0])
    with pytest.raises(SettingsError, match=r"order: expected .* got 0\.0; .*probability"):
        risk.lower_partial_moment([1.0], 0.0, order=0)
    with pytest.raises(SettingsError, match="aversion: expected a finite number above 0"):
        risk.entropic([1.0], -1.0)
    with pytest.raises(SettingsError, match="threshold: expected numbers, got nan"):
        risk.below([1.0], np.nan)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_the_effective_size_has_no_unit(scale):
    """Squares of products of a hundred ratios may be zero. (1 + 2 + 1)² / (1 + 4 + 1)."""
    weights = scale * np.array([1.0, 2.0, 1.0])
    assert risk.effective_size(np.zeros(3), weights) == pytest.approx(16 / 6)
