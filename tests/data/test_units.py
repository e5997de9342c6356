"""Centres and spreads of columns in any units."""

import numpy as np
import pytest

from fle.data.passes import centre_and_scale

COLUMN = np.random.default_rng(0).standard_normal((500, 1))


@pytest.mark.parametrize("offset", [0.0, 1.0, -1e6])
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-9, 1.0, 1e9, 1e160, 1e290])
def test_units_and_offsets_make_no_difference(scale, offset):
    centre, spread = centre_and_scale(scale * (COLUMN + offset))
    # Each value is off by half a rounding step of its size, a few steps in all.
    error = 8 * 2.0**-52 * (1 + abs(offset))
    assert spread[0] / scale == pytest.approx(COLUMN.std(), rel=error)
    assert centre[0] / scale == pytest.approx(COLUMN.mean() + offset, abs=error)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e-7, 1e4 + 1e-3, 1e300, 5e-324])
@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_only_equal_values_are_constant(value, rows):
    """The mean of equal numbers need not be that number, so their spread may come out above 0."""
    column = np.full((rows, 1), value)
    centre, spread = centre_and_scale(column)
    assert (centre[0], spread[0]) == (value, 1.0)
    column[0] = np.nextafter(value, np.inf)
    spread = centre_and_scale(column)[1][0]
    assert 0 < spread < 1e-15 * max(abs(value), 1)


def test_float32_and_whole_numbers():
    for dtype in (np.float32, np.int64, np.uint8):
        centre, spread = centre_and_scale(np.array([[1, 7], [3, 7]], dtype=dtype))
        assert centre.dtype == spread.dtype == np.float64
        np.testing.assert_array_equal((centre, spread), [[2, 7], [1, 1]])
