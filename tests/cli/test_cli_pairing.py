"""Paired differences against laws that are known."""

from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from fle.cli.pairing import PAIRS, Difference, differences, paired_starts, returns_from
from fle.policies import ActionTable

# Six standard errors of a share: a false alarm in 5e8 comparisons.
SHARE = 6 * np.sqrt(0.25 / PAIRS)


class NormalReturn(eqx.Module):
    """Return = observation + action + noise, in the place of a fitted model."""

    spread: float
    noise_size: int = eqx.field(static=True, default=1)

    @property
    def model(self):
        return self

    def sample(self, inputs, uniforms):
        return (inputs[0] + inputs[1] + self.spread * norm.ppf(uniforms[0]))[None]


def fitted(spread):
    encoder = SimpleNamespace(
        inputs=lambda x, a: np.stack([x[:, 0], a], axis=1).astype(np.float32),
        reward_unit=np.array([2.0]),
    )
    return SimpleNamespace(fits=(NormalReturn(jnp.asarray(spread)),), encoder=encoder)


def drawn(spread, starts, probabilities, seed):
    which = paired_starts(len(starts), 0)
    actions = np.tile(np.arange(len(probabilities)), (PAIRS, 1))
    table = ActionTable(actions, np.tile(probabilities, (PAIRS, 1)))
    generator = np.random.default_rng(seed)
    return returns_from(fitted(spread), table, starts[which], generator)[:, 0]


def test_starts_are_shared_and_the_rest_is_independent():
    # Starts far apart: unpaired, each would win about half; paired, the start cancels.
    starts = np.array([[-100.0], [0.0], [100.0]])
    ours = drawn(1.0, starts, [0.0, 1.0], 1)
    theirs = drawn(1.0, starts, [1.0, 0.0], 2)
    pair = Difference.of("a", "b", ours, theirs)
    # Units of 2: the difference is 2 * N(1, 2), so the first wins with Phi(1 / sqrt(2)).
    assert pair.beats == pytest.approx(0.76025, abs=SHARE)
    assert pair.mean == pytest.approx(2, abs=6 * 2 * np.sqrt(2 / PAIRS))
    assert pair.ties == 0
    # 5% and 95% quantiles: 2 * (1 -+ 1.64485 sqrt(2)); the density there is about 0.036.
    assert pair.low == pytest.approx(2 - 4.6523, abs=6 * np.sqrt(0.05 * 0.95 / PAIRS) / 0.036)
    assert pair.high == pytest.approx(2 + 4.6523, abs=6 * np.sqrt(0.05 * 0.95 / PAIRS) / 0.036)
    rest = ours - 2 * starts[paired_starts(3, 0), 0]
    other = theirs - 2 * starts[paired_starts(3, 0), 0]
    assert abs(np.corrcoef(rest, other)[0, 1]) < 6 / np.sqrt(PAIRS)


def test_actions_follow_the_policy():
    # No noise: the return is twice the action, 1 with probability 0.3.
    returns = drawn(0.0, np.zeros((1, 1)), [0.7, 0.3], 3)
    assert set(np.round(returns, 5)) == {0.0, 2.0}
    assert np.mean(returns > 1) == pytest.approx(0.3, abs=SHARE)


def test_all_starts_are_used_equally():
    counts = np.bincount(paired_starts(60, 5))
    assert counts.max() - counts.min() <= 1
    assert len(counts) == 60


def test_every_pair_is_compared_once_and_ties_are_counted():
    found = differences(["a", "b", "c"], [np.array([1.0, 2]), np.array([1.0, 3]), np.zeros(2)])
    assert [(pair.first, pair.second) for pair in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert (found[0].beats, found[0].ties, found[0].mean) == (0.0, 0.5, -0.5)
    assert found[1].beats == 1.0
