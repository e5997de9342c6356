import builtins

import numpy as np
import pytest
from scipy import stats

from fle.errors import DataError, FLEError, FLEWarning, SettingsError
from fle.returns import (
    ReturnDistribution,
    distances_to_truth,
    energy_distance,
    sampling_floor,
    sliced_wasserstein,
    total_variation,
    total_variation_from_samples,
    wasserstein,
)


@pytest.mark.parametrize(("shift", "std"), [(0.5, 1.0), (1.0, 0.3), (0.0, 1.0)])
def test_total_variation_of_two_gaussians(shift, std):
    # TV(N(0, s^2), N(d, s^2)) = 2 Phi(|d| / 2s) - 1.
    truth = 2 * stats.norm.cdf(abs(shift) / (2 * std)) - 1
    measured = total_variation(
        lambda z: stats.norm.pdf(z, 0, std), lambda z: stats.norm.pdf(z, shift, std), low=-8, high=8
    )
    assert measured == pytest.approx(truth, abs=1e-6)


def test_total_variation_in_two_dimensions():
    # Only the distance of the means along their difference matters: |d| = 1.
    shift = np.array([0.6, 0.8])
    measured = total_variation(
        lambda z: stats.multivariate_normal.pdf(z, mean=[0.0, 0.0]),
        lambda z: stats.multivariate_normal.pdf(z, mean=shift),
        low=[-6, -6],
        high=[7, 7],
    )
    assert measured == pytest.approx(2 * stats.norm.cdf(0.5) - 1, abs=1e-4)


def test_total_variation_warns_when_mass_is_missing():
    with pytest.warns(FLEWarning, match="integrates to"):
        total_variation(stats.norm.pdf, stats.norm.pdf, low=-1, high=1)
    with pytest.raises(SettingsError, match="1 or 2 dimensions"):
        total_variation(stats.norm.pdf, stats.norm.pdf, low=[0] * 3, high=[1] * 3)


def test_histogram_distance_by_hand():
    # Two bins on [0, 2]; a: 3/4 and 1/4, b: 1/2 and 1/2; -9 and 9 go to the edge bins.
    a, b = [-9.0, 0.5, 0.6, 1.5], [0.1, 9.0]
    assert total_variation_from_samples(a, b, bins=2, low=0, high=2) == pytest.approx(0.25)


def test_histogram_distance_in_two_and_many_dimensions():
    # a is uniform on two opposite quarters of the square, b on all four: TV = 1/2.
    a = [[0.2, 0.2], [0.8, 0.8]]
    b = [[0.2, 0.2], [0.2, 0.8], [0.8, 0.2], [0.8, 0.8]]
    assert total_variation_from_samples(a, b, bins=2, low=0, high=1) == pytest.approx(0.5)
    many = np.random.default_rng(0).random((50, 30))
    assert total_variation_from_samples(many, many, bins=50, low=0, high=1) == 0.0


@pytest.mark.parametrize("order", [1, 2, 3])
def test_wasserstein_of_a_shift_is_the_shift(order):
    # The same sample shifted: exact for every order.
    samples = np.random.default_rng(0).normal(size=500)
    assert wasserstein(samples, samples + 0.7, order=order) == pytest.approx(0.7)


def test_wasserstein_of_shifted_gaussians():
    # W1 = W2 = |shift|. The means differ by shift + N(0, 2/n); the rest of the empirical W2 is of
    # the order of the sampling floor, about sqrt(log log n / n): 6 / sqrt(n) covers both.
    n = 20_000
    generator = np.random.default_rng(1)
    a, b = generator.normal(0, 1, n), generator.normal(1.5, 1, n)
    for order in (1, 2):
        assert abs(wasserstein(a, b, order=order) - 1.5) < 6 / np.sqrt(n)


def test_wasserstein_with_unequal_sizes():
    # Quantile functions of {0, 1} and {0, 1, 5}: on levels (0, 1/3, 1/2, 2/3, 1) the pairs are
    # (0,0), (0,1), (1,1), (1,5) with widths 1/3, 1/6, 1/6, 1/3.
    assert wasserstein([1, 0], [5, 0, 1]) == pytest.approx(1 / 6 + 4 / 3)
    assert wasserstein([1, 0], [5, 0, 1], order=2) == pytest.approx(np.sqrt(1 / 6 + 16 / 3))
    generator = np.random.default_rng(2)
    a, b = generator.normal(size=333), generator.exponential(size=1000)
    assert wasserstein(a, b) == pytest.approx(stats.wasserstein_distance(a, b))


def test_wasserstein_in_two_dimensions():
    generator = np.random.default_rng(3)
    a = generator.normal(size=(300, 2))
    shift = np.array([0.3, -0.4])
    for order in (1, 2):
        assert wasserstein(a, a + shift, order=order) == pytest.approx(0.5, abs=1e-9)
    # Subsampling is fixed by the seed.
    big = generator.normal(size=(3000, 2))
    assert wasserstein(a, big, max_points=200) == wasserstein(a, big, max_points=200)


def test_transport_names_the_extra(monkeypatch):
    real_import = builtins.__import__

    def without_pot(name, *arguments, **options):
        if name == "ot":
            raise ImportError(name)
        return real_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_pot)
    with pytest.raises(FLEError, match=r"fle\[transport\]"):
        wasserstein(np.zeros((2, 2)), np.ones((2, 2)))


def test_sliced_wasserstein_of_a_shift():
    # SW2^2 of a shift v is mean (u.v)^2 over the directions, |v|^2 / d in expectation. For d = 2,
    # (u.v)^2 / |v|^2 has mean 1/2 and variance 1/8; 5 standard errors over 2000 directions.
    a = np.random.default_rng(4).normal(size=(50, 2))
    squared = sliced_wasserstein(a, a + np.array([3.0, 4.0]), order=2, projections=2000) ** 2 / 25
    assert abs(squared - 0.5) < 5 * np.sqrt(1 / 8 / 2000)
    line = a[:, 0]
    assert sliced_wasserstein(line, line + 2.0) == pytest.approx(2.0)


def test_energy_distance_of_two_points():
    # 2 * 3 - 0 - 0.
    assert energy_distance([0.0], [3.0]) == pytest.approx(np.sqrt(6))


def test_sampling_floor():
    # A law that is a point has floor 0; that of a normal halves when n is quadrupled.
    point = sampling_floor(wasserstein, lambda generator, n: np.zeros(n), 10)
    assert point == (0.0, 0.0)
    floors = [
        sampling_floor(wasserstein, lambda generator, n: generator.normal(size=n), size, 40)
        for size in (500, 2000)
    ]
    # 5 standard errors of the difference: false alarm 6e-7.
    error = 5 * np.hypot(floors[0].std, 2 * floors[1].std) / np.sqrt(40)
    assert abs(floors[0].mean - 2 * floors[1].mean) < error
    sizes = []
    sampling_floor(lambda a, b: sizes.append((len(a), len(b))) or 0.0, _zeros, (3, 5), 2)
    assert sizes == [(3, 5), (3, 5)]


def _zeros(generator, n):
    return np.zeros(n)


def test_unusable_input():
    with pytest.raises(DataError, match="share a dimension"):
        wasserstein(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(DataError, match="finite"):
        wasserstein([np.nan], [0.0])
    with pytest.raises(SettingsError, match="order"):
        wasserstein([1.0], [0.0], order=0)
    with pytest.raises(SettingsError, match="low < high"):
        total_variation_from_samples([0.0], [0.0], bins=2, low=1, high=0)


def test_distance_to_the_truth_of_a_weighted_sample():
    # Weights 3:1 on 0 and 1 against the truth 1:1: W1 is 1/4, and the true deviation 1/2.
    n = 20_000
    estimate = ReturnDistribution.from_samples(
        np.repeat([0.0, 1.0], n // 2), weights=np.repeat([3.0, 1.0], n // 2)
    )
    truth = ReturnDistribution.from_samples(np.repeat([0.0, 1.0], n // 2))
    (found,) = distances_to_truth(estimate, truth)
    # A share of n draws, drawn again from the weights: 5 standard errors, false alarm 6e-7.
    assert abs(found.distance - 0.5) < 5 * np.sqrt(0.25 * 0.75 / n) / 0.5
    # Two samples of a fair coin: |difference of shares| / (1/2), of mean sqrt(2/pi) / sqrt(n / 2).
    # Ten repetitions of a half-normal: its deviation is 0.6 of its scale; 6 standard errors.
    scale = np.sqrt(2 / (4 * n)) / 0.5
    assert abs(found.floor.mean - np.sqrt(2 / np.pi) * scale) < 6 * 0.61 * scale / np.sqrt(10)
    assert f"{found.distance:.3f} standard deviations away from the truth" in found.in_words()


def test_a_few_weighted_atoms_are_not_a_small_sample():
    """Shares 0.5, 0.1, 0.4 against themselves: what is left is the scatter of 20,000 draws."""
    shares = np.array([0.5, 0.1, 0.4])
    atoms = np.array([-1.0, 0.0, 1.0])
    estimate = ReturnDistribution.from_samples(atoms, weights=shares)
    truth = ReturnDistribution.from_samples(np.repeat(atoms, (5_000, 1_000, 4_000)))
    (found,) = distances_to_truth(estimate, truth)
    # Each of the two cumulative shares scatters by at most 0.5 / sqrt(20,000); four of these each.
    spread = float(truth.std())
    assert found.distance <= 2 * 4 * 0.5 / np.sqrt(20_000) / spread
    assert found.floor.mean <= 2 * 4 * 0.5 * np.sqrt(1 / 20_000 + 1 / 10_000) / spread
