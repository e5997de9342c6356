"""Calibration of predictions: uniform where they are right, denied where they are not."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fle.returns.distances import DENIED, Calibration, crps, transform


def predicted(mean, std, *, episodes=400, seed=0):
    """Draws of N(mean, std²) for each of standard normal returns."""
    generator = np.random.default_rng(seed)
    seen = generator.standard_normal((episodes, 1))
    drawn = mean + std * generator.standard_normal((episodes, 99, 1))
    others = generator.standard_normal((500, 1))
    return Calibration.of(("return",), drawn, seen, others, 0, generator)


def test_right_predictions_are_denied_as_rarely_as_stated():
    """A chance of DENIED each: more than 7 of 200 is one false alarm in 1,000."""
    assert sum(predicted(0.0, 1.0, episodes=60, seed=s).denied for s in range(200)) <= 7
    assert DENIED == 0.01


@pytest.mark.parametrize(("mean", "std"), [(0.5, 1.0), (0.0, 0.6), (0.0, 2.0)])
def test_wrong_predictions_are_denied(mean, std):
    """Each is 0.11 or more from uniform in its distribution function; 400 returns deny 0.082."""
    found = predicted(mean, std)
    assert found.denied
    assert "are not calibrated" in found.in_words()


def test_the_interval_is_hit_as_often_as_it_should():
    """400 hits of chance 0.9: four standard deviations are 0.06. Half as wide: 2Φ(0.822) - 1."""
    assert predicted(0.0, 1.0).coordinates[0].hits == pytest.approx(0.9, abs=0.06)
    narrow = 2 * norm.cdf(0.5 * norm.ppf(0.95)) - 1
    assert predicted(0.0, 0.5).coordinates[0].hits == pytest.approx(narrow, abs=0.1)


def test_atoms_are_spread_evenly():
    """Returns and predictions of three values only: still uniform."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(3, size=(2_000, 99)).astype(float)
    levels = transform(drawn, generator.integers(3, size=2_000).astype(float), generator)
    # Kolmogorov: 1.95 / √n is one false alarm in 1,000.
    assert np.abs(np.sort(levels) - (np.arange(2_000) + 0.5) / 2_000).max() < 1.95 / np.sqrt(2_000)


def test_crps_is_the_integral_of_squared_differences():
    """∫ (Φ(y) - 1{z ≤ y})² dy; 4,000 draws of standard deviation 1 know it to 0.03 (two errors)."""
    z = 0.7
    below, above = (
        quad(lambda y: norm.cdf(y) ** 2, -8, z)[0],
        quad(lambda y: norm.sf(y) ** 2, z, 8)[0],
    )
    drawn = np.random.default_rng(0).standard_normal((1, 4_000))
    assert crps(drawn, np.array([z])) == pytest.approx(below + above, abs=0.04)
    assert crps(np.array([[0.0, 2.0]]), np.array([1.0])) == pytest.approx(0.0)


def test_it_survives_a_file():
    found = predicted(0.0, 1.0, episodes=50)
    assert Calibration.from_plain(found.as_plain()) == found
