"""Draws are moved to where returns can lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fle.models.support import MOST_ATOMS, Support

PROJECT = jax.jit(Support.project)


def support(low, high, *atoms_and_bands):
    """One coordinate; atoms with the band around each."""
    atoms, bands = np.full((1, MOST_ATOMS), np.inf), np.zeros((1, MOST_ATOMS))
    for place, (atom, band) in enumerate(atoms_and_bands):
        atoms[0, place], bands[0, place] = atom, band
    limits = (np.float32([limit]) for limit in (low, high))
    return Support(*limits, np.float32(atoms), np.float32(bands))


def projected(where, returns):
    return np.asarray(PROJECT(where, np.float32(returns)[:, None]))[:, 0]


def test_without_limits_and_atoms_nothing_moves():
    returns = [-1e30, -2.0, 0.0, 1e-20, 5.0, 1e30]
    assert np.array_equal(projected(support(-np.inf, np.inf), returns), np.float32(returns))


def test_what_lies_beyond_a_limit_is_reflected():
    found = projected(support(-1.0, 3.0), [-1.5, -1.0, 0.0, 3.0, 3.25, 4.0])
    assert np.array_equal(found, [-0.5, -1.0, 0.0, 3.0, 2.75, 2.0])


def test_nothing_ever_leaves_the_limits():
    returns = np.random.default_rng(0).standard_cauchy(10_000)
    found = projected(support(-1.0, 0.5), returns)
    assert found.min() >= -1
    assert found.max() <= 0.5
    inside = (returns > -1) & (returns < 0.5)
    assert np.array_equal(found[inside], np.float32(returns[inside]))


def test_a_sure_return_has_one_value():
    assert np.array_equal(projected(support(2.0, 2.0), [-7.0, 2.0, 40.0]), [2, 2, 2])


def test_a_draw_near_an_atom_is_the_atom():
    where = support(-np.inf, np.inf, (-1.0, 0.25), (0.0, 0.5), (4.0, 1.0))
    returns = [-1.5, -1.25, -0.8, -0.6, -0.45, 0.5, 0.51, 2.9, 3.0, 5.0, 5.1]
    expected = [-1.5, -1, -1, -0.6, 0, 0, 0.51, 2.9, 4, 4, 5.1]
    assert np.array_equal(projected(where, returns), np.float32(expected))


def test_an_atom_at_a_limit_takes_what_is_beyond_it():
    # Within its band; what is further out comes back inside.
    found = projected(support(0.0, np.inf, (0.0, 0.5)), [-0.4, 0.4, -0.75, 0.75])
    assert np.array_equal(found, [0, 0, 0.75, 0.75])


def test_as_many_atoms_as_fit():
    atoms = np.arange(MOST_ATOMS)
    where = support(-np.inf, np.inf, *((atom, 0.25) for atom in atoms))
    assert np.array_equal(projected(where, atoms + 0.2), atoms)
    assert np.array_equal(projected(where, atoms - 0.3), np.float32(atoms - 0.3))


def test_every_coordinate_has_a_support_of_its_own():
    first, second = support(0.0, 10.0, (5.0, 1.0)), support(-1.0, 1.0, (0.5, 0.25))
    both = Support(*(jnp.concatenate(pair) for pair in zip(first, second, strict=True)))
    returns = jnp.asarray([[[4.5, 4.5], [-2.0, 0.3]], [[0.3, 1.5], [0.5, -0.5]]])
    found = PROJECT(both, returns)
    # 4.5 is so far beyond the second limit of 1 that its reflection leaves by the other side.
    assert np.allclose(found, [[[5, -1], [2, 0.5]], [[0.3, 0.5], [0.5, -0.5]]])


def test_units_of_a_frame_change_nothing():
    where = support(-1.0, 3.0, (0.0, 0.5), (2.0, 0.25))
    centre, scale = jnp.asarray([4.0]), jnp.asarray([8.0])
    returns = np.linspace(-2, 4, 49)
    inside = where.standardised(centre, scale)
    found = projected(inside, (returns - 4) / 8) * 8 + 4
    assert found == pytest.approx(projected(where, returns), abs=1e-5)
