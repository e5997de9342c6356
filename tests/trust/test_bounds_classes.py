"""Complexity and coverage: the derivations behind the formulas, checked on numbers."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from fle.trust import bounds


def test_tabular_brackets_cover_the_class_and_are_as_narrow_as_they_say():
    generator = np.random.default_rng(0)
    laws = [stats.norm(0.2, 0.1), stats.norm(0.5, 0.2), stats.beta(2, 3)]
    grid = np.linspace(-1, 2, 20_001)
    densities = np.array([law.pdf(grid) for law in laws])
    peak = densities.max()
    for width in (0.5, 2.0):
        # One pair, three laws: each weight is put on a grid of cells of this side.
        cells = math.ceil(3 * peak / width)
        number = bounds.tabular_log_brackets(width, 1, 1, peak, laws=3)
        assert number == pytest.approx(3 * math.log(cells))
        weights = generator.dirichlet(np.ones(3), size=50)
        lower = np.floor(weights * cells) / cells
        upper = lower + 1 / cells
        assert np.all((lower <= weights) & (weights <= upper))
        assert np.max((upper - lower) @ densities) <= width
        # And by integral: the same cells, width Σ_k 1/cells.
        by_integral = bounds.tabular_log_brackets_by_integral(3 / cells, 1, 1, laws=3)
        assert by_integral == pytest.approx(number)


def test_the_papers_tabular_class_has_as_many_laws_as_pairs():
    # |X|²|A|² log(r |X||A| / ε), without rounding up: 36 log(6 * 2 / 0.5).
    assert bounds.tabular_log_brackets(0.5, 3, 2, 2.0) == pytest.approx(36 * math.log(24))


def mean_gap(log_number, bound):
    """How far means may lie apart in one bracket, from log N of a problem with dx = da = 1.

    States and actions of norm 1: three matrices, each covered by 3 m / (gap / 3) points.
    """
    return 9 * bound / math.exp(log_number / 3)


@pytest.mark.parametrize("remaining", [1, 4])
def test_lqr_brackets_are_as_narrow_as_they_say(remaining):
    width, noise, bound = 0.02, 0.3, 5.0
    std = noise * math.sqrt(remaining)
    arguments = (width, 1.0, 1.0, (bound,) * 3, noise, 1, 1, remaining)
    # In supremum norm the bracket is f ± width/2, so densities in it differ by width/2.
    gap = mean_gap(bounds.lqr_log_brackets(*arguments), bound)
    grid = np.linspace(-8 * std, 8 * std, 20_001)
    apart = np.max(np.abs(stats.norm.pdf(grid, 0, std) - stats.norm.pdf(grid, gap, std)))
    assert 0.95 * width / 2 < apart <= width / 2 * (1 + 1e-9)
    # By integral it lies between the least and the largest density of means within the gap.
    gap = mean_gap(bounds.lqr_log_brackets_by_integral(*arguments), bound)
    means = np.linspace(-gap, gap, 41)[:, None]
    family = stats.norm.pdf(np.linspace(-8 * std, 8 * std, 20_001), means, std)
    span = (family.max(axis=0) - family.min(axis=0)).sum() * (grid[1] - grid[0])
    assert 0.95 * width < span <= width * (1 + 1e-6)


def test_lqr_brackets_count_the_entries_of_the_matrices():
    # Ten times narrower: log 10 more for each of dx² + dx da + da² = 9 + 6 + 4 entries.
    arguments = (2.0, 1.5, (1.0, 2.0, 3.0), 0.1, 3, 2)
    for function in (bounds.lqr_log_brackets, bounds.lqr_log_brackets_by_integral):
        more = function(1e-4, *arguments) - function(1e-3, *arguments)
        assert more == pytest.approx(19 * math.log(10))
        # One bracket holds a class whose members are all close.
        assert function(1e9, *arguments) == 0


def test_density_ratio():
    data = np.array([[0.25, 0.25], [0.5, 0.0]])
    # Step 0: 0.5 / 0.25; step 1: 0.6 / 0.5. The pair that nobody visits does not count.
    steps = np.array([[[0.5, 0.1], [0.4, 0.0]], [[0.2, 0.2], [0.6, 0.0]]])
    assert bounds.density_ratio(steps, data) == pytest.approx(2)
    assert bounds.density_ratio(np.full((2, 2), 0.25), data) == math.inf


def test_relative_condition_number_is_the_largest_ratio_of_mean_squares():
    generator = np.random.default_rng(1)
    policy, data = generator.normal(size=(2, 50, 3)) @ np.diag([1.0, 0.3, 2.0])
    number = bounds.relative_condition_number(policy.T @ policy / 50, data.T @ data / 50)
    directions = generator.normal(size=(100_000, 3))
    ratios = np.sum((directions @ policy.T) ** 2, 1) / np.sum((directions @ data.T) ** 2, 1)
    # 100,000 directions on a sphere come within 0.02 of the best; the loss is quadratic in that.
    assert ratios.max() <= number * (1 + 1e-9)
    assert ratios.max() > 0.99 * number


def test_relative_condition_number_with_repeated_and_with_unseen_features():
    generator = np.random.default_rng(2)
    policy, data = generator.normal(size=(2, 50, 3))
    number = bounds.relative_condition_number(policy.T @ policy, data.T @ data)
    # z ⊗ z lists every product of two different coordinates twice.
    policy2, data2 = (np.hstack([rows, rows[:, :1]]) for rows in (policy, data))
    assert bounds.relative_condition_number(policy2.T @ policy2, data2.T @ data2) == pytest.approx(
        number
    )
    data[:, 1] = 0
    assert bounds.relative_condition_number(policy.T @ policy, data.T @ data) == math.inf


def test_the_relative_condition_number_alone_is_not_the_coverage_of_gaussian_classes():
    # One step, mean w x². The policy sits at x² = 1; the data at 0, and at x² = 10 with
    # probability 0.01. E_policy x⁴ = E_data x⁴ = 1, so the condition number is 1.
    share, feature, std = 0.01, 10.0, 1.0
    number = bounds.relative_condition_number([[1.0]], [[share * feature**2]])
    assert number == pytest.approx(1)
    error = 5.0
    measured = bounds.gaussian_total_variation(error, std)
    zeta = math.sqrt(share) * bounds.gaussian_total_variation(error * feature, std)
    # The paper's claim, C = 1 with ζ of total variation, is false: 0.99 against 0.1.
    assert bounds.total_variation_bound([zeta], number) < 0.2 * measured
    # Right: ζ of the gaps, or the coverage that knows how large a gap can be.
    gap_zeta = bounds.gaussian_zeta(math.sqrt(share) * error * feature, std)
    assert bounds.total_variation_bound([gap_zeta], number) >= measured
    coverage = bounds.gaussian_coverage(number, error * feature, std)
    assert bounds.total_variation_bound([zeta], coverage) >= measured


def test_gaussian_total_variation_and_zeta():
    # ½ ∫ |N(0, 2²) - N(1, 2²)|
    grid = np.linspace(-20, 21, 200_001)
    difference = np.abs(stats.norm.pdf(grid, 0, 2) - stats.norm.pdf(grid, 1, 2))
    integral = 0.5 * difference.sum() * (grid[1] - grid[0])
    assert bounds.gaussian_total_variation(1, 2) == pytest.approx(integral, abs=1e-6)
    # gap / (√(2π) std) is the tangent at 0, and above.
    assert bounds.gaussian_zeta(1e-4, 2) == pytest.approx(
        bounds.gaussian_total_variation(1e-4, 2), rel=1e-6
    )
    worst = minimize_scalar(
        lambda gap: bounds.gaussian_zeta(gap, 2) - bounds.gaussian_total_variation(gap, 2),
        bounds=(0, 20),
        method="bounded",
    )
    assert worst.fun >= 0


def test_gaussian_coverage_bounds_the_ratio_of_squared_total_variations():
    generator = np.random.default_rng(3)
    for _ in range(200):
        policy, data = generator.exponential(size=(2, 30, 2))
        number = bounds.relative_condition_number(policy.T @ policy, data.T @ data)
        weights = generator.normal(size=2) * generator.exponential(3)
        far = np.abs(data @ weights)
        squares = [
            np.mean([bounds.gaussian_total_variation(gap, 1.0) ** 2 for gap in rows @ weights])
            for rows in (policy, data)
        ]
        assert squares[0] <= bounds.gaussian_coverage(number, far.max(), 1.0) * squares[1]
