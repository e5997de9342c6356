"""Wrong answers that other libraries give, each with the right one."""

import jax
import numpy as np
import pytest
from quick_fits import GMM, QUICK, ROWS, TABLE, TABLE_TRAINING, bandit, cycle

import fle
from fle.errors import DataError
from fle.fitting.loop import blank_fit


def test_reward_at_the_end_of_an_episode_counts():
    """SCOPE-RL: 0.0, because the last step's reward is multiplied by (1 - done)."""
    states = np.arange(2000) % 10
    last = states == 9
    data = fle.Dataset(
        observations=states,
        actions=np.zeros(2000, int),
        rewards=last * 1.0,
        next_observations=(states + 1) % 10,
        terminations=last,
        truncations=np.zeros(2000, bool),
        episodes=np.arange(2000) // 10,
    )
    settings = {"model": TABLE, "recipe": TABLE_TRAINING}
    whole = fle.evaluate(data, [1.0], horizon=10, **settings)
    discounted = fle.evaluate(data, [1.0], gamma=0.9, stages=20, **settings)
    # A fixed std of one return scale; 5 standard errors of 100,000 draws, and 0.02 for the fit.
    error = 0.02 + 5 * whole.returns.std() / np.sqrt(1e5)
    assert whole.returns.mean() == pytest.approx(1.0, abs=error)
    assert discounted.returns.mean() == pytest.approx(0.9**9, abs=error)


def test_spread_within_a_state_is_not_lost():
    """SCOPE-RL: the variance of a return that is N(0, 3) comes out as 0."""
    generator = np.random.default_rng(0)
    data = fle.Dataset(
        observations=np.arange(ROWS) % 4,
        actions=generator.integers(2, size=ROWS),
        rewards=generator.normal(0, np.sqrt(3), ROWS),
        next_observations=np.zeros(ROWS, int),
        terminations=np.ones(ROWS, bool),
        truncations=np.zeros(ROWS, bool),
    )
    result = fle.evaluate(data, [0.5, 0.5], gamma=0.9, stages=2, model=GMM, recipe=QUICK)
    # Five standard errors of a variance from 4000 rows (false alarm 6e-7), and as much for the fit.
    assert result.returns.variance() == pytest.approx(3, abs=10 * 3 * np.sqrt(2 / ROWS))


def test_a_stochastic_policy_is_not_its_greedy_action():
    """SCOPE-RL, d3rlpy: a uniform policy worth 2.5 comes out as 4.4, its best action."""
    worth = np.array([0.6, 1.5, 2.5, 3.5, 4.4])
    actions = np.arange(2000) % 5
    data = bandit(worth[actions], actions)
    result = fle.evaluate(data, np.full(5, 0.2), horizon=1, model=TABLE, recipe=TABLE_TRAINING)
    # Rewards are certain; 5 standard errors of 100,000 draws of std below 2.5, and 0.02 for a fit.
    assert result.returns.mean() == pytest.approx(2.5, abs=0.02 + 5 * 2.5 / np.sqrt(1e5))
    assert result.at(0, 4).mean() == pytest.approx(4.4, abs=0.05 + 5 * 2.5 / np.sqrt(1e5))


def test_few_steps_train_too():
    """d3rlpy: fit(n_steps=50) trains nothing and says nothing."""
    actions = np.arange(2000) % 2
    data = bandit(2.0 * actions - 1, actions)
    training = fle.Recipe(steps=50, batch_size=200, learning_rate=0.05, weight_decay=0.0)
    result = fle.evaluate(data, [0.5, 0.5], horizon=1, model=TABLE, recipe=training)
    # An untrained model says 0 for both actions, up to 5 standard errors of the draws, 0.02.
    assert result.at(0, 1).mean() - result.at(0, 0).mean() > 0.5
    fresh = blank_fit(TABLE, result.recipe, result.encoder.sizes, seed=0).law
    pairs = zip(jax.tree.leaves(fresh), jax.tree.leaves(result.fits[-1].law), strict=True)
    assert any(not np.array_equal(before, after) for before, after in pairs)


def test_two_rewards_give_a_return_in_two_dimensions():
    """d3rlpy: (N, 2) rewards give one meaningless number."""
    actions = np.arange(2000) % 2
    rewards = np.stack([actions * 1.0, 10 - 2.0 * actions], axis=1)
    data = bandit(rewards, actions, reward_names=("speed", "energy"))
    result = fle.evaluate(data, [0.5, 0.5], horizon=1, model=TABLE, recipe=TABLE_TRAINING)
    assert result.returns.dim == 2
    assert result.returns.names == ("speed", "energy")
    # Stds of the fixed-variance model are at most 0.5 and 1, and the actions' own as much again.
    assert np.allclose(result.returns.mean(), [0.5, 9.0], atol=0.05)


def test_not_a_number_in_the_rewards_is_an_error():
    """d3rlpy: one NaN reward makes every output NaN without a word."""
    rewards = np.ones(100)
    rewards[17] = np.nan
    with pytest.raises(DataError, match="rewards: row 17"):
        bandit(rewards)


@pytest.mark.parametrize(
    ("ends", "value"),
    # Reward 1 for ever: 1 / (1 - 0.9). For ten steps: (1 - 0.9^10) / (1 - 0.9) = 6.513.
    [("truncations", 10.0), ("terminations", 6.513)],
)
def test_a_time_limit_is_not_the_end(ends, value):
    """Several peers: the return stops at a truncation."""
    training = fle.Recipe(
        steps=200, batch_size=200, learning_rate=0.05, weight_decay=0.0, start="previous"
    )
    result = fle.evaluate(
        cycle(ends=ends), [1.0], gamma=0.9, stages=60, model=TABLE, recipe=training
    )
    # 0.9^60 leaves out 0.02 of 10; the same for the fit, and 5 standard errors of the draws.
    error = 0.04 + 5 * result.returns.std() / np.sqrt(1e5)
    assert result.at(0, 0).mean() == pytest.approx(value, abs=error)
