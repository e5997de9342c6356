"""The bounds against numbers derived by hand, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fle.errors import SettingsError
from fle.returns import cvar
from fle.trust import bounds

GAMMAS = st.floats(0.01, 0.99)
ORDERS = st.floats(1, 10)
COVERAGES = st.floats(1, 100)


def test_finite_horizon_reduction():
    # sqrt(4) * (0.1 + 0.2)
    assert bounds.total_variation_bound([0.1, 0.2], 4) == pytest.approx(0.6)
    assert bounds.total_variation_bound([0.1], math.inf) == math.inf


def test_finite_class():
    # log(50 * 2 / 0.1) = log 1000, 4H/n = 8/400.
    zeta = math.sqrt(8 / 400 * math.log(1000))
    zetas = bounds.finite_class_zetas(400, 2, math.log(50), 0.1)
    assert zetas == pytest.approx([zeta, zeta])
    assert bounds.finite_class_bound(400, 2, math.log(50), 0.1, 9) == pytest.approx(6 * zeta)
    # Classes of 50 and 5: log 1000 and log 100.
    by_step = bounds.finite_class_zetas(400, 2, np.log([50, 5]), 0.1)
    assert by_step[1] / by_step[0] == pytest.approx(math.sqrt(2 / 3))


def test_bracketing_class():
    zeta = math.sqrt(20 / 400 * math.log(1000))
    assert bounds.bracketing_zetas(400, 2, math.log(50), 0.1) == pytest.approx([zeta, zeta])
    # log(1 / 0.9) = 0.1 is below 1, where 4 + 6 L <= 10 L fails.
    assert bounds.bracketing_zetas(10, 1, 0.0, 0.9) == pytest.approx([1.0])
    # [0, 3]^2 has volume 9.
    assert bounds.bracket_width(10, 3**2) == pytest.approx(1 / 90)


def test_finite_class_sample_size_is_the_least_that_suffices():
    setting = {"horizon": 3, "log_sizes": np.log([10, 20, 30]), "delta": 0.05, "coverage": 2.5}
    n = bounds.finite_class_sample_size(0.2, **setting)
    assert bounds.finite_class_bound(n, **setting) <= 0.2
    assert bounds.finite_class_bound(n - 1, **setting) > 0.2


def test_sample_size_grows_as_the_cube_of_the_horizon():
    # 4 C H³ log(|F| H / delta) / error² with one class size; the logarithm is kept equal.
    short = bounds.finite_class_sample_size(0.01, 1, math.log(200), 0.1, 1)
    long = bounds.finite_class_sample_size(0.01, 2, math.log(100), 0.1, 1)
    assert long / short == pytest.approx(8, rel=1e-4)


def test_bracketing_sample_size_suffices_and_one_row_less_does_not():
    def log_brackets(width):
        return 3 * math.log(1 / width)

    n = bounds.bracketing_sample_size(0.3, 2, log_brackets, 0.1, 1.5, return_volume=2.0)

    def bound(rows):
        numbers = log_brackets(bounds.bracket_width(rows, 2.0))
        return bounds.bracketing_bound(rows, 2, numbers, 0.1, 1.5)

    assert bound(n) <= 0.3 < bound(n - 1)


def test_refined_discounted_bound():
    # γ = 1/4, p = 1: κ = γ^(1/2) = 1/2. (C / (1 - γ))^(1/2) = (3 / 0.75)^(1/2) = 2.
    # 2 * (1/2 * 1 + 2) = 5, and κ² D / sqrt(1 - γ) = (1/4) * 6 / sqrt(0.75).
    bound = bounds.wasserstein_bound([1, 2], 3, 0.25, diameter=6)
    assert bound == pytest.approx(5 + 1.5 / math.sqrt(0.75))
    # p = 2, γ = 1/16: κ = γ^(3/4) = 1/8, (C / (1 - γ))^(1/4) = (1.5 / 0.9375)^(1/4).
    bound = bounds.wasserstein_bound([1, 2], 1.5, 1 / 16, diameter=0, order=2)
    assert bound == pytest.approx(1.6**0.25 * (1 / 8 + 2))


def test_simplified_discounted_bound():
    # γ = 1/4, T = 2, p = 2, C = 16: 2 * 16^(1/4) / 0.75^1.5 * 0.1 + 1/4 * 6 / sqrt(0.75).
    bound = bounds.simplified_wasserstein_bound(0.1, 2, 16, 0.25, diameter=6, order=2)
    assert bound == pytest.approx(0.4 / 0.75**1.5 + 1.5 / math.sqrt(0.75))


@given(GAMMAS, ORDERS, COVERAGES, st.integers(1, 50), st.floats(0, 10))
def test_the_simplified_bound_is_never_below_the_refined_one(gamma, order, coverage, stages, zeta):
    diameter = bounds.return_diameter(gamma)
    refined = bounds.wasserstein_bound(np.full(stages, zeta), coverage, gamma, diameter, order)
    simple = bounds.simplified_wasserstein_bound(zeta, stages, coverage, gamma, diameter, order)
    assert refined <= simple * (1 + 1e-9)


def test_discounted_zetas():
    # D (4T/n log(|F| T / δ))^(1/2p): T = 5, |F| T / δ = 1000, 4T/n = 0.02.
    zeta = bounds.discounted_finite_class_zeta(1000, 5, math.log(20), 0.1, diameter=2, order=2)
    assert zeta == pytest.approx(2 * (0.02 * math.log(1000)) ** 0.25)
    zeta = bounds.discounted_bracketing_zeta(1000, 5, math.log(20), 0.1, diameter=2)
    assert zeta == pytest.approx(2 * math.sqrt(0.05 * math.log(1000)))


@given(GAMMAS, ORDERS, COVERAGES, st.integers(1, 10**9))
def test_the_number_of_stages_is_the_least_that_balances(gamma, order, coverage, n):
    iota = math.log(20 / 0.1)
    accuracy = (coverage * iota / n) ** (1 / (2 * order))
    setting = (n, math.log(20), 0.1, coverage, gamma, order)
    for stages, factor, left_out in (
        (
            bounds.balanced_stages(*setting),
            gamma ** (1 - 1 / (2 * order)),
            accuracy / (1 - math.sqrt(gamma)),
        ),
        (bounds.simplified_balanced_stages(*setting), gamma**0.5, accuracy / (1 - gamma)),
    ):
        assert stages >= 1
        assert factor**stages <= left_out * (1 + 1e-9) or left_out >= 1
        assert stages == 1 or factor ** (stages - 1) > left_out * (1 - 1e-9)


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_the_corollary_has_the_rate_it_claims(order):
    # A hundred times the n^(1/2p) is a hundredth of the bound, up to logarithms: T and
    # log(|F| T / δ) grow by less than a factor 10 together.
    for bound in (bounds.discounted_finite_class_bound, bounds.discounted_bracketing_bound):
        few, many = (
            bound(round(accuracy ** (2 * order)), 5.0, 0.1, 2.0, 0.9, 10.0, order)
            for accuracy in (1e4, 1e6)
        )
        assert 0.01 <= many / few <= 0.01 * 10 ** (1 / (2 * order))


def test_total_variation_to_wasserstein():
    assert bounds.wasserstein_from_total_variation(0.25, 3, order=2) == pytest.approx(1.5)


def test_the_sharp_cvar_constant_is_attained_and_the_papers_is_twice_that():
    # A certain 5, against 5 with a share t moved to 0: CVaR falls by 5 t / level.
    level, share = 0.2, 0.1
    fall = 5 - cvar([0, 5], level, weights=[share, 1 - share])
    assert bounds.sharp_cvar_bound(share, 5, level) == pytest.approx(fall)
    assert bounds.cvar_bound(share, 5, level) == pytest.approx(2 * fall)


def test_cvar_from_rows():
    # The paper's 4 sqrt(C) H^2.5 / level sqrt(log(|F| H / δ) / n), with the H in the logarithm.
    bound = bounds.cvar_finite_class_bound(500, 3, math.log(20), 0.1, 2, 0.25)
    expected = 4 * math.sqrt(2) * 3**2.5 / 0.25 * math.sqrt(math.log(20 * 3 / 0.1) / 500)
    assert bound == pytest.approx(expected)


def test_return_diameter():
    # Rewards in [0, 2]^4, γ = 1/2: a cube of side 4 in 4 dimensions.
    assert bounds.return_diameter(0.5, 4, 2.0) == pytest.approx(8)


WRONG = [
    (bounds.total_variation_bound, ([0.1], 0.99), "coverage: expected a number of at least 1"),
    (bounds.total_variation_bound, ([0.1], math.nan), "coverage: expected a number of at least 1"),
    (bounds.total_variation_bound, ([-0.1], 1), "zetas: expected a non-empty 1-d array"),
    (bounds.total_variation_bound, ([], 1), "zetas: expected a non-empty 1-d array"),
    (bounds.total_variation_bound, ([math.nan], 1), "zetas: expected a non-empty 1-d array"),
    (bounds.finite_class_zetas, (-5, 1, 1.0, 0.1), "n: expected a number that is whole"),
    (bounds.finite_class_zetas, (2.5, 1, 1.0, 0.1), "n: expected a number that is whole"),
    (bounds.finite_class_zetas, ("many", 1, 1.0, 0.1), "n: expected a number .* got 'many'"),
    (bounds.finite_class_zetas, (5, 0, 1.0, 0.1), "horizon: expected a number that is whole"),
    (bounds.finite_class_zetas, (5, 3, [1.0, 2.0], 0.1), r"one a step \(3\), got 2"),
    (bounds.finite_class_zetas, (5, 1, -1.0, 0.1), "log of the class size"),
    (bounds.bracketing_zetas, (5, 1, 1.0, 0.0), "delta: expected a number strictly"),
    (bounds.bracketing_zetas, (5, 1, 1.0, 1.0), "delta: expected a number strictly"),
    (bounds.bracket_width, (5, 0.0), "return_volume: expected a number that is positive"),
    (
        bounds.finite_class_sample_size,
        (0.0, 1, 1.0, 0.1, 1),
        "error: expected a number that is positive",
    ),
    (
        bounds.finite_class_sample_size,
        (0.1, 1, 1.0, 0.1, math.inf),
        "coverage: expected a finite number",
    ),
    (bounds.bracketing_sample_size, (0.1, 1, lambda w: 1 / w, 0.1, 1), "some n up to"),
    (bounds.wasserstein_bound, ([0.1], 1, 1.0, 1.0), r"gamma: expected a number in \[0, 1\)"),
    (bounds.wasserstein_bound, ([0.1], 1, -0.1, 1.0), r"gamma: expected a number in \[0, 1\)"),
    (
        bounds.wasserstein_bound,
        ([0.1], 1, 0.5, 1.0, 0.5),
        "order: expected a number that is at least 1",
    ),
    (bounds.wasserstein_bound, ([0.1], 1, 0.5, -1.0), "diameter: expected a number of at least 0"),
    (
        bounds.simplified_wasserstein_bound,
        (0.1, 0, 1, 0.5, 1.0),
        "stages: expected a number that is whole",
    ),
    (bounds.balanced_stages, (10, 1.0, 0.1, math.inf, 0.5), "coverage: expected a finite number"),
    (bounds.cvar_bound, (0.1, 1.0, 1.0), "level: expected a number strictly"),
    (bounds.cvar_bound, (0.1, -1.0, 0.1), "span: expected a number that is positive"),
    (bounds.tabular_log_brackets, (0.1, 2, 0, 1.0), "actions: expected a number that is whole"),
    (bounds.density_ratio, ([-0.1, 1.1], [0.5, 0.5]), "expected probabilities"),
    (bounds.relative_condition_number, (np.eye(2), np.eye(3)), "one shape"),
    (bounds.relative_condition_number, (np.ones((2, 3)), np.eye(2)), "symmetric matrix"),
    (bounds.gaussian_zeta, (0.1, 0.0), "std: expected a number that is positive"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), WRONG)
def test_wrong_inputs_are_refused(function, arguments, message):
    with pytest.raises(SettingsError, match=message):
        function(*arguments)
