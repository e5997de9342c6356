import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import (
    build,
    condition,
    draw,
    log_prob,
    loss_of_row,
    prepared,
    transition,
    with_outputs,
)

import fle
from fle.recipe import ONE_FIT


def histogram_with(mass):
    mass = np.asarray(mass)
    law = build(fle.Histogram(bins=mass.shape[0], hidden=()), mass.ndim)
    return with_outputs(law, np.log(mass).reshape(-1) + 0.7)


@pytest.mark.parametrize(
    ("z", "density"),
    # Four cells of width 1/2 on [-1, 1]: mass divided by the width.
    [(-0.9, 0.2), (-0.5, 0.4), (-0.01, 0.4), (0.3, 0.6), (0.99, 0.8)],
)
def test_density_in_one_dimension_by_hand(z, density):
    law = histogram_with([0.1, 0.2, 0.3, 0.4])
    found = log_prob(law, np.zeros(2), np.array([z]))
    assert np.exp(float(found)) == pytest.approx(density, rel=1e-4)


def test_density_in_two_dimensions_by_hand():
    # Cells of area 1; the first coordinate picks the row.
    law = histogram_with([[0.1, 0.2], [0.3, 0.4]])
    for z, density in {
        (-0.5, -0.5): 0.1,
        (-0.5, 0.5): 0.2,
        (0.5, -0.5): 0.3,
        (0.5, 0.5): 0.4,
    }.items():
        found = log_prob(law, np.zeros(2), np.array(z))
        assert np.exp(float(found)) == pytest.approx(density, rel=1e-4)


def test_draws_lie_in_the_picked_cell():
    law = histogram_with([[0.1, 0.2], [0.3, 0.4]])
    cumulative = condition(law, np.zeros(2))
    # Level 0.5 lies in the third cell (0.3 to 0.6): first coordinate above 0, second below.
    # A quarter of the way along the first, half along the second.
    found = draw(law, cumulative, np.array([0.5, 0.25, 0.5]))
    assert np.allclose(found, [0.25, -0.5], atol=1e-6)


def test_density_vanishes_outside_the_range():
    # The cells hold all of the mass, so that nothing is left for the rest of the line.
    law = histogram_with([0.1, 0.2, 0.3, 0.4])
    assert float(log_prob(law, np.zeros(2), np.array([7.0]))) == -np.inf


def test_training_counts_a_target_outside_the_range_for_the_edge_cell():
    law = histogram_with([0.1, 0.2, 0.3, 0.4])
    objective, row = fle.Histogram().objective(ONE_FIT), transition(7.0, 0.0)
    uniforms = jnp.full(objective.target_noise_size(law), 0.5)
    target = objective.target(law, law, prepared(fle.Histogram(), law, row), uniforms, 1)
    outside = loss_of_row(fle.Histogram(), law, target)
    assert float(outside) == pytest.approx(-np.log(0.8), rel=1e-4)
