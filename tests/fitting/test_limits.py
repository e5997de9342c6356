"""What returns the logged rewards allow."""

import jax.numpy as jnp
import numpy as np
import pytest

from fle.fitting.encoding import Rows, return_limits


def rows(rewards, continues):
    rewards = np.asarray(rewards, np.float32).reshape(len(rewards), -1)
    nothing = jnp.zeros(len(rewards))
    return Rows(
        observations=nothing,
        actions=nothing,
        rewards=jnp.asarray(rewards),
        continues=jnp.asarray(continues, jnp.float32),
        next_observations=nothing,
        next_actions=nothing[:, None],
        probabilities=nothing[:, None],
    )


def limits(rewards, continues, discounts):
    return [
        (np.asarray(low), np.asarray(high))
        for low, high in return_limits(rows(rewards, continues), discounts)
    ]


def test_constant_rewards_add_up_until_the_end():
    # Nothing before the first stage; then 1; then 1 (ended) to 1 + 0.5; then 1 to 1 + 0.5 * 1.5.
    found = limits([1.0, 1.0], [1, 0], [0.0, 0.5, 0.5, 0.5])
    expected = [(0, 0), (1, 1), (1, 1.5), (1, 1.75)]
    assert np.allclose([[low[0], high[0]] for low, high in found], expected)


def test_without_an_end_the_least_return_grows_too():
    found = limits([1.0], [1], [0.0, 0.5, 0.5])
    assert np.allclose([[low[0], high[0]] for low, high in found], [(0, 0), (1, 1), (1.5, 1.5)])


def test_rewards_may_exceed_those_logged_by_a_share_of_their_range():
    # Range 2, so 0.1 on either side; the end earns -1, the way 1.
    (_, (low, high)) = limits([1.0, -1.0], [1, 0], [0.0, 0.0])
    assert (low[0], high[0]) == pytest.approx((-1.1, 1.1))


def test_every_coordinate_has_limits_of_its_own():
    found = limits([[1.0, -2.0], [1.0, -2.0]], [1, 1], [0.0, 1.0, 1.0])
    assert np.allclose(found[2], [[2, -4], [2, -4]])
