"""Warnings about the data that an evaluation carries."""

import numpy as np
import pytest

import fle
from fle.evaluation.remarks import tail_index

QUICK = fle.Training(steps=10, batch_size=50, weight_decay=0.0)


def bandit(rewards: np.ndarray) -> fle.Dataset:
    n = len(rewards)
    return fle.Dataset(
        observations=np.zeros((n, 1)) + np.arange(n)[:, None] % 7,
        actions=np.zeros(n, int),
        rewards=rewards,
        next_observations=np.zeros((n, 1)),
        terminations=np.ones(n, bool),
        number_of_actions=1,
        initial_observations=np.zeros((5, 1)),
    )


def evaluate(rewards: np.ndarray) -> fle.Evaluation:
    return fle.evaluate(bandit(rewards), np.ones(1), horizon=1, training=QUICK)


def test_returns_that_are_always_zero_are_a_point_mass():
    with pytest.warns(fle.FLEWarning, match="reward is 0 in every row: its return is a point mass"):
        result = evaluate(np.zeros(100))
    assert any("point mass" in warning for warning in result.warnings)


def test_heavy_tail_is_said_with_its_index():
    rewards = np.random.default_rng(0).standard_cauchy(5000)
    with pytest.warns(fle.FLEWarning, match=r"heavy tail \(index"):
        evaluate(rewards)


@pytest.mark.parametrize("law", ["normal", "exponential", "sparse"])
def test_light_tails_are_not_remarked(law):
    # Hill's estimate at the top hundredth of n = 20,000 rests on 200 values: a relative error of
    # 0.07. A normal tail gives about 7 there and an exponential one about 4.6; 3 is 5 errors away.
    generator = np.random.default_rng(1)
    values = {
        "normal": generator.normal(size=20_000),
        "exponential": generator.exponential(size=20_000),
        "sparse": (generator.random(20_000) < 0.05).astype(float),
    }[law]
    assert tail_index(values) > 3


def test_cauchy_tail_index_is_one():
    # 1,000 values: a relative error of 0.03; 5 of them.
    values = np.random.default_rng(2).standard_cauchy(100_000)
    assert tail_index(values) == pytest.approx(1, rel=0.16)
