"""Rows that lie far out are drawn more often."""

import numpy as np
import pytest

from fle.evaluation.leverage import MOST, with_leverage

FEW = np.array([[0.0], [0.0], [0.0], [4.0]])


def test_weights_follow_the_squared_distance():
    # Mean 1 and variance 3: squared distances 1/3, 1/3, 1/3 and 3 standard deviations.
    weights = with_leverage(None, FEW, 0.25)
    assert weights == pytest.approx([0.75 + 0.25 / 3] * 3 + [0.75 + 0.75])


def test_given_weights_count_as_copies_of_a_row():
    copies = with_leverage(None, np.repeat(FEW, [1, 1, 1, 3], axis=0), 0.5)
    weighted = with_leverage(np.array([1.0, 1.0, 1.0, 3.0]), FEW, 0.5)
    assert weighted == pytest.approx([*copies[:3], 3 * copies[3]])


def test_units_and_directions_do_not_matter():
    generator = np.random.default_rng(0)
    observations = generator.standard_normal((500, 3))
    turned = observations @ generator.standard_normal((3, 3)) + 7
    assert with_leverage(None, turned, 0.5) == pytest.approx(
        with_leverage(None, observations, 0.5), rel=1e-6
    )


def test_constant_and_repeated_coordinates_change_nothing():
    doubled = np.hstack([FEW, np.ones((4, 1)), 2 * FEW])
    assert with_leverage(None, doubled, 0.5) == pytest.approx(with_leverage(None, FEW, 0.5))


def test_constant_observations_are_drawn_evenly():
    assert np.ptp(with_leverage(None, np.ones((10, 2)), 0.5)) == 0


def test_one_outlier_does_not_fill_the_batches():
    observations = np.zeros((100_000, 1))
    observations[0] = 1e6
    assert with_leverage(None, observations, 1.0).max() <= MOST


@pytest.mark.parametrize(("observations", "share"), [(FEW, 0.0), (np.arange(4), 0.5)])
def test_nothing_changes_without_a_share_or_for_indices(observations, share):
    assert with_leverage(None, observations, share) is None
