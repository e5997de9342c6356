"""Draws of a law, and of targets, as the loop and an evaluation use them."""

import jax.numpy as jnp
import numpy as np
import pytest

from fle.fitting.encoding import Fitted, Frame, Rows, as_vectors
from fle.fitting.following import Lines
from fle.fitting.targets import SAMPLE_BLOCK, draw_block, draw_targets
from fle.models.law import Law, Sizes
from fle.models.support import anywhere

SIZES = Sizes(3, 2, 1, discrete_observations=True, discrete_actions=True)
FRAME = Frame(jnp.array([10.0]), jnp.array([2.0]))
N = SAMPLE_BLOCK


class Told(Law):
    """At state s and action a: s + 10 a plus a uniform number, in units of the frame."""

    noise_size = 1

    def condition(self, inputs):
        return inputs @ jnp.array([0.0, 1.0, 2.0, 0.0, 10.0])

    def draw(self, conditioned, uniforms):
        return conditioned + uniforms


# State 1 follows; the policy takes action 1 with probability 1/4.
ROWS = Rows(
    observations=np.repeat([0, 1], N),
    actions=np.zeros(N, int),
    following=np.arange(N, 2 * N),
    next_actions=np.tile([0, 1], (N, 1)),
    probabilities=np.tile([0.75, 0.25], (N, 1)),
)


def one_step(rewards, discounts):
    """A line for each row, which looks one step ahead and asks the only fit."""
    index = np.arange(N, dtype=np.int32)
    return Lines(index, index, rewards[:, None], discounts, np.zeros_like(index))


def test_a_block_has_one_return_for_each_input():
    inputs = as_vectors(np.array([0, 2]), np.array([1, 0]), SIZES)
    assert inputs.tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 1, 0]]
    drawn = draw_block(Fitted(Told(), FRAME, anywhere(1)), inputs, np.random.default_rng(0))
    # 10 + 2 (10 + u) and 10 + 2 (2 + u).
    assert drawn.shape == (2, 1)
    assert np.all((drawn[:, 0] > [30, 14]) & (drawn[:, 0] < [32, 16]))


def test_vectors_stay_as_they_are():
    sizes = Sizes(2, 1, 1, discrete_observations=False, discrete_actions=False)
    inputs = as_vectors(np.array([[1.5, 2.5]]), np.array([[-1.0]]), sizes)
    assert inputs.tolist() == [[1.5, 2.5, -1.0]]
    assert inputs.dtype == np.float32


def test_targets_follow_the_policy_and_stop_where_an_episode_ends():
    index = np.arange(N)[::-1].astype(np.float32)
    ends = index % 2 == 0
    lines = one_step(index, np.where(ends, 0, 0.5).astype(np.float32))
    fits = [Fitted(Told(), FRAME, anywhere(1))]
    targets = draw_targets(fits, ROWS, lines, SIZES, np.random.default_rng(0))[:, 0]
    earned = targets - index
    assert np.all(earned[ends] == 0)
    # 0.5 (10 + 2 (1 + u)) for action 0, and 10 more for action 1.
    goes_on = earned[~ends]
    second = goes_on > 10
    assert np.all((goes_on > 6) & (goes_on < 7) | (goes_on > 16) & (goes_on < 17))
    # Five standard errors of 4,096 rows.
    assert second.mean() == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / (N / 2)))
    assert np.mean(goes_on - 10 * second) == pytest.approx(6.5, abs=5 * np.sqrt(1 / 12 / (N / 2)))


def test_every_line_asks_its_own_fit():
    lines = one_step(np.zeros(N, np.float32), np.ones(N, np.float32))
    # The second fit is a hundred higher, the third is never asked.
    frames = [Frame(FRAME.centre + 100 * number, FRAME.scale) for number in range(3)]
    fits = [Fitted(Told(), frame, anywhere(1)) for frame in frames]
    asked = np.arange(N) % 2
    lines = lines._replace(fits=asked.astype(np.int32))
    targets = draw_targets(fits, ROWS, lines, SIZES, np.random.default_rng(0))[:, 0]
    # At most 10 + 2 (11 + u) above the fit's own hundred.
    assert np.array_equal(targets // 100, asked)


def test_targets_keep_to_the_limits_of_the_next_return():
    lines = one_step(np.zeros(N, np.float32), np.ones(N, np.float32))
    support = anywhere(1)._replace(low=jnp.array([0.0]), high=jnp.array([33.0]))
    fits = [Fitted(Told(), FRAME, support)]
    targets = draw_targets(fits, ROWS, lines, SIZES, np.random.default_rng(0))[:, 0]
    # 32 to 34 for action 1, and what is above 33 comes back below it.
    second = targets[targets > 15]
    assert np.all((second > 32) & (second < 33))
    assert second.mean() == pytest.approx(32.5, abs=5 * np.sqrt(1 / 12 / second.size))
