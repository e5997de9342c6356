"""The spaces and shapes of a data set, and the copies made of it."""

import copy
import pickle

import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import DataError, SettingsError

ENDS = np.array([False, True, False, False, True])


def closed(**changes):
    """Two terminated episodes, of two and of three rows."""
    valid = {
        "observations": np.arange(10.0).reshape(5, 2),
        "actions": np.array([0, 1, 0, 1, 1]),
        "rewards": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        "terminations": ENDS,
    }
    return Dataset(**{**valid, **changes})


def test_discrete_states_and_actions():
    data = closed(observations=[3, 1, 0, 2, 1])
    assert data.observations.dtype == np.int64
    assert data.observations.shape == (5,)
    assert data.number_of_observations == 4
    assert data.number_of_actions == 2
    assert data.discrete_actions
    assert data.action_dim is None
    np.testing.assert_array_equal(data.initial_observations, [3, 0])


def test_states_are_counted_over_every_field():
    data = closed(observations=[0] * 5, next_observations=[0, 6, 0, 0, 1], initial_observations=[2])
    assert data.number_of_observations == 7


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float32),
        (np.longdouble, np.float64),
        (np.uint8, np.float32),
        (np.int64, np.float64),
    ],
)
def test_continuous_observations_keep_their_precision(given, dtype):
    data = closed(observations=np.arange(10).reshape(5, 2).astype(given))
    assert data.observations.dtype == dtype
    assert data.next_observations.dtype == dtype
    assert data.number_of_observations is None


def test_one_dimensional_floats_become_a_column_and_images_are_flattened():
    assert closed(observations=np.arange(5.0)).observations.shape == (5, 1)
    images = closed(
        observations=np.zeros((5, 4, 3, 2), np.uint8),
        next_observations=np.zeros((5, 4, 3, 2), np.uint8),
    )
    assert images.observations.shape == (5, 24)
    assert images.initial_observations.shape == (2, 24)


@pytest.mark.parametrize(
    "actions",
    [[0, 1, 0, 1, 1], [[0], [1], [0], [1], [1]], [False, True, False, True, True]],
)
def test_integer_and_boolean_actions_are_discrete(actions):
    data = closed(actions=np.array(actions))
    assert data.actions.dtype == np.int64
    np.testing.assert_array_equal(data.actions, [0, 1, 0, 1, 1])


def test_float_actions_are_continuous_unless_their_number_is_given():
    continuous = closed(actions=[0.0, 1.0, 0.0, 1.0, 1.0])
    assert continuous.actions.shape == (5, 1)
    assert continuous.number_of_actions is None
    assert continuous.action_dim == 1
    discrete = closed(actions=[0.0, 1.0, 0.0, 1.0, 1.0], number_of_actions=3)
    assert discrete.actions.dtype == np.int64
    assert discrete.number_of_actions == 3


def test_codes_stored_as_floats_are_remarked_upon():
    (note,) = closed(actions=[0.0, 3.0, 0.0, 1.0, 1.0]).notes
    assert "0 to 3" in note
    assert "number_of_actions=4" in note
    assert closed(actions=[0.0, 3.0, 0.0, 1.0, 1.0], number_of_actions=4).notes == ()
    assert closed(actions=[0.0, 3.0, 0.5, 1.0, 1.0]).notes == ()
    assert closed(actions=[0.0, -1.0, 0.0, 1.0, 1.0]).notes == ()


def test_both_columns_of_two_rewards_are_kept():
    rewards = np.arange(10.0).reshape(5, 2)
    data = closed(rewards=rewards)
    np.testing.assert_array_equal(data.rewards, rewards)
    assert data.return_dim == 2
    assert data.reward_names == ("reward_1", "reward_2")
    assert closed(rewards=rewards, reward_names=["cost", "Güte"]).reward_names == ("cost", "Güte")


def test_one_reward_is_one_named_column_in_float64():
    data = closed(rewards=np.array([1, 2, 3, 4, 5], np.float32))
    assert data.rewards.shape == (5, 1)
    assert data.rewards.dtype == np.float64
    assert data.reward_names == ("reward",)


def test_large_and_small_rewards_survive():
    data = closed(rewards=[1e9, 1e9 + 1, 1e-9, 0.0, 0.0])
    np.testing.assert_array_equal(data.rewards[:, 0], [1e9, 1e9 + 1, 1e-9, 0.0, 0.0])


def test_without_initial_observations_the_request_explains_how_to_give_them():
    data = Dataset(
        observations=[[0.0], [5.0]],
        actions=[0, 1],
        rewards=[0.0, 1.0],
        next_observations=[[1.0], [2.0]],
        truncations=[False, False],
    )
    assert data.episodes is None
    assert data.initial_observations is None
    with pytest.raises(DataError, match=r"no initial observations.*give initial_observations"):
        data.require_initial_observations()


def test_given_initial_observations_are_used():
    data = closed(initial_observations=np.zeros((7, 2), np.float32))
    assert data.require_initial_observations().shape == (7, 2)
    assert data.require_initial_observations().dtype == np.float64


def test_arrays_are_read_only_and_the_users_own_stay_writable():
    rewards = np.ones((5, 1))
    data = closed(rewards=rewards)
    with pytest.raises(ValueError, match="read-only"):
        data.rewards[0] = 2.0
    rewards[0] = 2.0
    with pytest.raises(AttributeError):
        data.rewards = rewards


def test_arguments_are_keyword_only():
    with pytest.raises(TypeError):
        Dataset(np.zeros((2, 1)), [0, 1], [0.0, 1.0])


def test_observed_returns_are_discounted_from_each_start():
    returns, complete = closed(
        terminations=[False, True, False, False, False],
        truncations=[False, False, False, False, True],
        next_observations=np.vstack([np.arange(2.0, 10.0).reshape(4, 2), [[0.0, 0.0]]]),
    ).observed_returns(0.5)
    # 1 + 2/2 = 2 and 3 + 4/2 + 5/4 = 6.25.
    np.testing.assert_allclose(returns, [[2.0], [6.25]])
    np.testing.assert_array_equal(complete, [True, False])


def test_observed_returns_at_the_ends_of_the_range():
    data = closed(rewards=np.arange(10.0).reshape(5, 2))
    # Rows 0-1 and 2-4 of (0, 1), (2, 3), (4, 5), (6, 7), (8, 9).
    np.testing.assert_allclose(data.observed_returns(1.0)[0], [[2.0, 4.0], [18.0, 21.0]])
    np.testing.assert_allclose(data.observed_returns(0.0)[0], [[0.0, 1.0], [4.0, 5.0]])


def test_observed_returns_end_at_the_horizon():
    data = closed(
        terminations=[False, True, False, False, False],
        truncations=[False, False, False, False, True],
        next_observations=np.vstack([np.arange(2.0, 10.0).reshape(4, 2), [[0.0, 0.0]]]),
    )
    # Rewards 1, 2 and 3, 4, 5. At horizon 2: 1 + 2/2 and 3 + 4/2, and both are complete.
    returns, complete = data.observed_returns(0.5, horizon=2)
    np.testing.assert_allclose(returns, [[2.0], [5.0]])
    np.testing.assert_array_equal(complete, [True, True])
    # The first terminated; the second reaches 3 steps, but not 4.
    np.testing.assert_array_equal(data.observed_returns(0.5, horizon=3)[1], [True, True])
    returns, complete = data.observed_returns(0.5, horizon=4)
    np.testing.assert_allclose(returns, [[2.0], [6.25]])
    np.testing.assert_array_equal(complete, [True, False])


@pytest.mark.parametrize("horizon", [0, -1])
def test_a_horizon_without_steps_is_refused(horizon):
    with pytest.raises(SettingsError, match="horizon: expected a positive number of steps, got"):
        closed().observed_returns(0.5, horizon)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, np.nan])
def test_a_discount_outside_the_unit_interval_is_refused(gamma):
    with pytest.raises(SettingsError, match="gamma: expected a number from 0 to 1"):
        closed().observed_returns(gamma)


def test_a_subset_keeps_initial_observations_and_spaces():
    data = closed(weights=[1.0, 2.0, 3.0, 4.0, 5.0], observations=[0, 1, 2, 3, 4])
    part = data.subset([0, 3, 3])
    np.testing.assert_array_equal(part.observations, [0, 3, 3])
    np.testing.assert_array_equal(part.weights, [1.0, 4.0, 4.0])
    np.testing.assert_array_equal(part.episodes, [0, 1, 1])
    np.testing.assert_array_equal(part.source_rows, [0, 3, 3])
    np.testing.assert_array_equal(part.initial_observations, [0, 2])
    assert part.number_of_observations == 5
    assert part.number_of_actions == 2
    assert len(data) == 5


def test_a_subset_of_whole_episodes_still_has_returns():
    part = closed().subset(np.array([False, False, True, True, True]))
    assert part.whole_episodes
    np.testing.assert_allclose(part.observed_returns(1.0)[0], [[12.0]])
    assert part.number_of_episodes == 1


@pytest.mark.parametrize("rows", [[0, 2, 3], [1, 0], [0, 1, 0, 1]])
def test_a_subset_that_breaks_episodes_has_no_returns(rows):
    part = closed().subset(rows)
    assert not part.whole_episodes
    with pytest.raises(DataError, match="episodes are incomplete"):
        part.observed_returns(1.0)
    with pytest.raises(DataError, match="episodes are incomplete"):
        part.with_steps()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([True, False], "the mask has 2 rows"),
        ([False] * 5, "expected at least one row, got none"),
        ([], "rows is empty"),
        ([5], "expected indices from 0 to 4, got 5"),
        ([-1], "expected indices from 0 to 4, got -1"),
        ([0.5], "expected 1-d integers or a mask"),
    ],
)
def test_rows_that_do_not_exist_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        closed().subset(rows)


def test_weights_can_be_replaced():
    data = closed()
    assert data.weights is None
    weighted = data.with_weights([1, 0, 2, 3, 4])
    assert weighted.weights.dtype == np.float64
    np.testing.assert_array_equal(weighted.weights, [1, 0, 2, 3, 4])
    with pytest.raises(DataError, match="weights has 2 rows"):
        data.with_weights([1.0, 2.0])
    with pytest.raises(DataError, match="weights: all are zero"):
        data.with_weights(np.zeros(5))


def test_steps_count_rows_within_each_episode():
    data = closed()
    assert data.steps is None
    np.testing.assert_array_equal(data.with_steps().steps, [0, 1, 0, 1, 2])


def test_copies_and_pickles_are_the_same_data():
    data = closed()
    for other in (copy.deepcopy(data), pickle.loads(pickle.dumps(data))):  # noqa: S301
        np.testing.assert_array_equal(other.rewards, data.rewards)
        assert other.reward_names == data.reward_names


def test_the_texts_say_what_the_data_is():
    data = closed(rewards=np.arange(10.0).reshape(5, 2), reward_names=("cost", "gain"))
    assert repr(data) == (
        "Dataset(5 rows, 2 episodes, observations: 2 features (float64), actions: 2 discrete,"
        " rewards: cost, gain)"
    )
    summary = data.with_steps().summary()
    assert "cost: 0 to 8, mean 4" in summary
    assert "terminated: 40.00% of rows, truncated: 0.00%" in summary
    assert "steps: 0 to 2" in summary
    assert "3 continuous" in closed(actions=np.zeros((5, 3))).summary()
    assert "5 discrete states" in closed(observations=[0, 1, 2, 3, 4]).summary()
