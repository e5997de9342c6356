import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import (
    build,
    condition,
    draw,
    loss_of_row,
    prepared,
    transition,
    with_outputs,
)

import fle
from fle.errors import ModelError
from fle.models.families.quantile import WeightedPoints, pairwise_huber


def test_huber_loss_by_hand():
    # Points 0 and 2 at levels 1/4 and 3/4, threshold 1, targets 0.5 and 3 of weights 0.4 and 0.6.
    # Errors of point 0: 0.5 (inside, 0.125) and 3 (outside, 2.5), both above: tilt 1/4.
    #   1/4 (0.4 * 0.125 + 0.6 * 2.5) = 0.3875
    # Errors of point 2: -1.5 (outside, 1.0, below: tilt 1/4) and 1 (the edge, 0.5, tilt 3/4).
    #   0.4 * 1/4 * 1.0 + 0.6 * 3/4 * 0.5 = 0.325
    spec = fle.Quantile(quantiles=2, huber=1.0, hidden=())
    law = with_outputs(build(spec), [0.0, 2.0])
    target = WeightedPoints(jnp.asarray([0.5, 3.0]), jnp.asarray([0.4, 0.6]))
    assert float(loss_of_row(spec, law, target)) == pytest.approx(0.3875 + 0.325, rel=1e-5)


def test_derivative_is_that_of_the_loss_written_out():
    generator = np.random.default_rng(0)
    points, places = (jnp.asarray(generator.standard_normal(n)) for n in (7, 13))
    weights = jnp.asarray(generator.dirichlet(np.ones(13)))
    levels = (jnp.arange(7)[:, None] + 0.5) / 7

    def written_out(points):
        error = places - points[:, None]
        size = jnp.abs(error)
        huber = jnp.where(size <= 0.3, error**2 / 0.6, size - 0.15)
        return jnp.sum(jnp.where(error < 0, 1 - levels, levels) * huber * weights)

    def ours(points):
        return pairwise_huber(points, WeightedPoints(places, weights), 0.3)

    expected, found = (jax.jit(jax.value_and_grad(loss))(points) for loss in (written_out, ours))
    assert np.allclose(found[0], expected[0], rtol=1e-5)
    assert np.allclose(found[1], expected[1], atol=1e-5)


def test_target_holds_all_moved_points_of_all_actions():
    # Action a moves both points by a.
    spec = fle.Quantile(quantiles=2, hidden=())
    law = with_outputs(build(spec), [0.0, 2.0], [[0.0, 0.0], [1.0, 1.0]])
    row = transition(0.5, 0.1, probabilities=(0.25, 0.75), next_actions=[10.0, 20.0])
    target = prepared(spec, law, row)
    assert np.allclose(target.points, [1.5, 1.7, 2.5, 2.7], atol=1e-5)
    assert np.allclose(target.weights, [0.125, 0.125, 0.375, 0.375])


def test_draws_are_the_points_in_equal_shares():
    law = with_outputs(build(fle.Quantile(quantiles=4, hidden=())), [1.0, 2.0, 3.0, 4.0])
    points = condition(law, np.zeros(2))
    levels = [0.0, 0.2, 0.3, 0.6, 0.76, 1 - 2**-24]
    draws = [float(draw(law, points, np.array([level]))[0]) for level in levels]
    assert draws == [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]


def test_vector_returns_are_refused():
    with pytest.raises(ModelError, match="scalar returns only, and these returns have 2"):
        build(fle.Quantile(), returns=2)
