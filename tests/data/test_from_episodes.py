"""Episodes of any length, laid out as rows."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fle.data import Dataset
from fle.errors import DataError, FLEWarning


def episode(length, **changes):
    valid = {
        "observations": np.arange(length + 1.0)[:, None],
        "actions": np.zeros(length, dtype=int),
        "rewards": np.ones(length),
        "terminated": True,
    }
    return {**valid, **changes}


def without(mapping, *keys):
    return {key: value for key, value in mapping.items() if key not in keys}


def test_variable_lengths_and_both_ways_to_state_the_end():
    data = Dataset.from_episodes(
        [
            episode(2, observations=[[1.0], [2.0], [3.0]]),
            episode(1, observations=[[4.0], [5.0]], terminated=False, truncated=True),
            without(
                episode(3, observations=[[6.0], [7.0], [8.0], [9.0]], terminations=[0, 0, 1]),
                "terminated",
            ),
        ],
        number_of_actions=3,
        reward_names=["gain"],
    )
    np.testing.assert_array_equal(data.observations[:, 0], [1, 2, 4, 6, 7, 8])
    # The final observation follows each last row, so the truncated row is kept.
    np.testing.assert_array_equal(data.next_observations[:, 0], [2, 3, 5, 7, 8, 9])
    np.testing.assert_array_equal(data.terminations, [0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(data.truncations, [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(data.episodes, [0, 0, 1, 2, 2, 2])
    np.testing.assert_array_equal(data.initial_observations[:, 0], [1, 4, 6])
    assert data.number_of_actions == 3
    assert data.reward_names == ("gain",)
    assert data.steps is None
    np.testing.assert_array_equal(data.with_steps().steps, [0, 1, 0, 0, 1, 2])


def test_without_the_final_observation_a_truncated_last_row_is_dropped():
    short = episode(3, observations=[[1.0], [2.0], [3.0]])
    cut = {**short, "terminated": False, "truncated": True}
    with pytest.warns(FLEWarning, match="1 truncated rows have no next observation") as caught:
        data = Dataset.from_episodes([short, cut])
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(data.next_observations[:, 0], [2, 3, 3, 2, 3])
    np.testing.assert_array_equal(data.terminations, [0, 0, 1, 0, 0])


def test_neither_flag_is_truncated_with_a_warning():
    open_ended = without(episode(2), "terminated")
    with pytest.warns(FLEWarning, match="2 of 2 episodes end with a row that is neither"):
        data = Dataset.from_episodes(iter([open_ended, open_ended]))
    np.testing.assert_array_equal(data.truncations, [0, 1, 0, 1])
    assert not data.terminations.any()


def test_vector_rewards_and_discrete_states():
    data = Dataset.from_episodes(
        [episode(2, observations=[0, 1, 2], rewards=[[1, 2], [3, 4]]) for _ in range(2)]
    )
    assert data.observations.dtype == np.int64
    assert data.rewards.shape == (4, 2)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "episodes is empty"),
        (episode(2), "expected a list of mappings, got one mapping"),
        ([episode(2), 3], "episode 1: expected a mapping"),
        ([episode(2), without(episode(2), "rewards")], "episode 1: 'rewards' is missing"),
        ([episode(2, terminatons=[0, 1])], "unknown key 'terminatons'; did you mean 'term"),
        ([episode(2, dones=[0, 1])], "unknown key 'dones'"),
        ([episode(2), episode(2, rewards=[1.0])], "episode 1 has 2 actions, 1 rewards and 3"),
        ([episode(2, observations=[[1.0]])], "episode 0 has 2 actions, 2 rewards and 1 obs"),
        ([episode(2, rewards=[1.0, np.nan])], "rewards of episode 0: row 1 is nan"),
        ([episode(2, rewards=[1.0, None])], "rewards of episode 0: row 1 is null"),
        ([episode(2), episode(2, rewards=np.ones((2, 2)))], "rewards of episode 1 have shape"),
        ([episode(2, terminations=[0, 1])], "expected 'terminations' or 'terminated', got both"),
        ([episode(2, truncations=[0])], "episode 0 has 2 actions but 1 truncations"),
        ([episode(2, truncated="yes")], "'truncated': expected True or False, got 'yes'"),
        ([episode(2, truncated=[0, 1])], "'truncated': expected True or False"),
        (
            [without(episode(3, terminations=[0, 1, 0]), "terminated")],
            "episode 0 is terminated at row 1 but has rows after it",
        ),
        ([episode(2, actions=[])], "actions of episode 0 is empty"),
    ],
)
def test_an_episode_that_cannot_be_used_is_named(episodes, message):
    with pytest.raises(DataError, match=message):
        Dataset.from_episodes(episodes)


@st.composite
def random_episodes(draw):
    """At least two closed episodes whose observations are all different."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=6))
    first = 0.0
    episodes = []
    for length in lengths:
        observations = np.arange(first, first + length + 1)[:, None]
        first += length + 1
        rewards = draw(st.lists(st.floats(-5, 5), min_size=length, max_size=length))
        terminated = draw(st.booleans())
        episodes.append(
            episode(
                length,
                observations=observations,
                rewards=rewards,
                terminated=terminated,
                truncated=not terminated,
            )
        )
    return episodes


@settings(max_examples=40, deadline=None)
@given(random_episodes())
def test_flattened_episodes_keep_their_starts_successors_and_returns(episodes):
    data = Dataset.from_episodes(episodes)
    lengths = [len(e["actions"]) for e in episodes]
    np.testing.assert_array_equal(data.episodes, np.repeat(np.arange(len(lengths)), lengths))
    np.testing.assert_array_equal(
        data.initial_observations, [e["observations"][0] for e in episodes]
    )
    np.testing.assert_array_equal(
        data.next_observations, np.concatenate([e["observations"][1:] for e in episodes])
    )
    returns, complete = data.observed_returns(0.9)
    expected = [sum(0.9**t * r for t, r in enumerate(e["rewards"])) for e in episodes]
    np.testing.assert_allclose(returns[:, 0], expected, atol=1e-12)
    np.testing.assert_array_equal(complete, [e["terminated"] for e in episodes])


@settings(max_examples=40, deadline=None)
@given(random_episodes(), st.randoms(use_true_random=False))
def test_flat_rows_give_the_same_data_in_any_order(episodes, random):
    direct = Dataset.from_episodes(episodes).with_steps()
    columns = {
        name: getattr(direct, name)
        for name in (
            "observations",
            "actions",
            "rewards",
            "next_observations",
            "episodes",
            "steps",
            "terminations",
            "truncations",
        )
    }
    in_order = Dataset(**{k: v for k, v in columns.items() if k not in ("episodes", "steps")})
    np.testing.assert_array_equal(in_order.episodes, direct.episodes)
    np.testing.assert_array_equal(in_order.initial_observations, direct.initial_observations)

    order = list(range(len(direct)))
    random.shuffle(order)
    # Sorting may or may not be needed, and each warning says so; only the result matters here.
    shuffled = _quietly({name: column[order] for name, column in columns.items()})
    np.testing.assert_array_equal(np.asarray(order)[shuffled.source_rows], _rows_of(shuffled))
    by_start = np.argsort(shuffled.initial_observations[:, 0])
    np.testing.assert_array_equal(
        shuffled.initial_observations[by_start], direct.initial_observations
    )
    np.testing.assert_allclose(
        shuffled.observed_returns(0.9)[0][by_start], direct.observed_returns(0.9)[0]
    )


def _quietly(columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FLEWarning)
        return Dataset(**columns)


def _rows_of(data):
    """The original row of each row: observations count up, skipping one per episode end."""
    observations = data.observations[:, 0].astype(int)
    ends = np.sort(data.next_observations[data.terminations | data.truncations, 0].astype(int))
    return observations - np.searchsorted(ends, observations)
