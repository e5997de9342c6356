"""The network that models share."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from fle.models.network import FURTHEST, Network


def network(trends):
    """Two inputs, three outputs; no trend yet."""
    return Network(2, (4,), np.array([1.0, 2.0, 3.0]), np.random.default_rng(0), trends=trends)


def with_trend(model, linear, quadratic, gates):
    return eqx.tree_at(
        lambda m: (m.linear, m.quadratic, m.gates),
        model,
        (
            jnp.asarray([linear], jnp.float32),
            jnp.asarray(quadratic, jnp.float32),
            jnp.asarray([gates], jnp.float32),
        ),
    )


def test_a_trend_is_a_quadratic_of_the_gated_inputs():
    plain = with_trend(network(1), [0.0, 0.0], np.zeros((2, 2)), [0.5, 1.0])
    bent = with_trend(plain, [10.0, -1.0], [[1.0, 2.0], [0.0, 3.0]], [0.5, 1.0])
    inputs = jnp.asarray([2.0, 3.0])
    # Gated inputs are (1, 3): 10 * 1 - 1 * 3 + (1 * 1 + 2 * 1 * 3 + 3 * 3 * 3) = 41.
    assert bent(inputs) - plain(inputs) == pytest.approx([41.0, 0.0, 0.0], abs=1e-4)


def test_every_trend_has_coefficients_of_its_own():
    model = with_trend(network(2), [1.0, 0.0, 0.0, 2.0], np.zeros((2, 4)), [1.0, 1.0])
    # The first is x_1, the second 2 x_2.
    assert model.trend(jnp.asarray([3.0, 4.0])) == pytest.approx([3.0, 8.0])


def test_a_trend_ends_far_out():
    model = with_trend(network(1), [1.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], [1.0, 1.0])
    far, furthest = (model.trend(jnp.asarray([x, 0.0])) for x in (1e6, FURTHEST))
    # 4 + 4².
    assert far == furthest == pytest.approx([20.0])


def test_a_fresh_network_says_its_bias():
    outputs = network(3)(jnp.asarray([0.3, -0.2]))
    # The last layer's weights start at a twentieth and less.
    assert outputs == pytest.approx([1.0, 2.0, 3.0], abs=0.3)


@pytest.mark.parametrize("hidden", [(), (4,), (4, 5)])
@pytest.mark.parametrize("trends", [0, 1, 3])
def test_columns_are_the_outputs_of_each_row(hidden, trends):
    generator = np.random.default_rng(1)
    model = Network(2, hidden, np.array([1.0, 2.0, 3.0]), generator, trends=trends)
    linear, quadratic = (generator.standard_normal((n, 2 * trends)) for n in (1, 2))
    model = with_trend(model, linear[0], quadratic, [0.5, 2.0])
    inputs = jnp.asarray(3 * generator.standard_normal((7, 2)), jnp.float32)
    each = np.stack([model(row) for row in inputs], axis=1)
    assert np.ptp(each, axis=1).min() > 0.01
    assert np.allclose(model.columns(inputs), each, rtol=1e-5, atol=1e-5)
