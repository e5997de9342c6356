import functools

import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import PolicyError, SettingsError
from fle.tasks import collect, monte_carlo_returns

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402


class Counter(gymnasium.Env):
    """Observes (episode number of this copy, elapsed steps); action 1 terminates; reward is 10."""

    observation_space = gymnasium.spaces.Box(0, 1000, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit=None, reward=10.0):
        self.limit, self.reward, self.number = limit, reward, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.elapsed = self.number + 1, 0
        return np.array([self.number, 0.0]), {}

    def step(self, action):
        self.elapsed += 1
        truncated = self.elapsed == self.limit
        observation = np.array([self.number, float(self.elapsed)])
        return observation, self.reward, bool(action == 1), truncated, {}


def sometimes_stop(observations, generator):
    return (generator.random(len(observations)) < 0.2).astype(int)


def never_stop(observations, generator):
    return np.zeros(len(observations), dtype=int)


LIMITED = functools.partial(Counter, limit=5)
FACTORIES = {
    "single": LIMITED,
    "same step": lambda: SyncVectorEnv([LIMITED] * 4, autoreset_mode=AutoresetMode.SAME_STEP),
    "next step": lambda: SyncVectorEnv([LIMITED] * 4, autoreset_mode=AutoresetMode.NEXT_STEP),
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_no_row_mixes_two_episodes(make):
    data = collect(make, sometimes_stop, rows=333, seed=0, environments=4)
    observations, following = data["observations"], data["next_observations"]
    assert len(observations) == 333
    # A truncated or terminated row keeps the observation that it led to, not that of the reset.
    assert np.array_equal(following - observations, np.tile([0.0, 1.0], (333, 1)))
    assert np.array_equal(data["terminations"], data["actions"] == 1)
    assert np.all(data["rewards"] == 10.0)
    # A time limit is not a termination, and a termination at the limit is not a truncation.
    at_limit = following[:, 1] == 5
    assert np.all(data["truncations"][at_limit & (data["actions"] == 0)])
    assert not np.any(data["truncations"] & data["terminations"])
    # Within an episode the elapsed steps count up from 0, and its last row carries a flag.
    starts = np.append(True, np.diff(data["episodes"]) != 0)
    assert np.array_equal(observations[:, 1] == 0, starts)
    ends = np.append(starts[1:], True)
    assert np.array_equal(data["terminations"] | data["truncations"], ends)
    # Only the log's end cuts episodes short of the limit: at most one a copy.
    assert np.sum(data["truncations"] & ~at_limit) <= 4
    assert np.all(data["initial_observations"][:, 1] == 0)
    assert len(data["initial_observations"]) >= starts.sum()
    dataset = Dataset(**data)
    assert dataset.number_of_episodes == starts.sum()
    assert dataset.number_of_actions == 2


def test_the_ways_to_vectorise_agree():
    single, same_step = (
        collect(FACTORIES[name], never_stop, rows=100, seed=0, environments=4)
        for name in ("single", "same step")
    )
    for name, column in single.items():
        assert np.array_equal(column, same_step[name]), name


@pytest.mark.parametrize("make", [Counter, lambda: SyncVectorEnv([Counter] * 8)])
def test_monte_carlo_returns_are_not_biased_to_short_episodes(make):
    # The length is geometric with p = 0.2; the discounted return is 10 (1 - g^L) / (1 - g) with
    # mean 10 / (1 - 0.8 g). 5 standard errors; gamma^200 is 7e-10.
    gamma, episodes = 0.9, 3001
    returns = monte_carlo_returns(
        make, sometimes_stop, episodes=episodes, gamma=gamma, horizon=200, seed=1, environments=32
    )
    assert returns.shape == (episodes,)
    error = returns.std() / np.sqrt(episodes)
    assert abs(returns.mean() - 10 / (1 - 0.8 * gamma)) < 5 * error


def test_horizon_counts_its_last_reward():
    returns = monte_carlo_returns(
        Counter, never_stop, episodes=5, gamma=0.5, horizon=3, seed=0, environments=2
    )
    assert np.allclose(returns, 10 * (1 + 0.5 + 0.25))
    # A time limit at the horizon is as good as none.
    limited = monte_carlo_returns(
        LIMITED, never_stop, episodes=5, gamma=1.0, horizon=5, seed=0, environments=2
    )
    assert np.allclose(limited, 50.0)


def test_early_truncation_is_refused():
    with pytest.raises(SettingsError, match="truncated after 5 steps"):
        monte_carlo_returns(LIMITED, never_stop, episodes=2, gamma=1.0, horizon=6, seed=0)


def test_vector_rewards():
    make = functools.partial(Counter, limit=2, reward=np.array([1.0, -2.0]))
    returns = monte_carlo_returns(make, never_stop, episodes=3, gamma=1.0, horizon=2, seed=0)
    assert np.array_equal(returns, [[2.0, -4.0]] * 3)
    data = collect(make, never_stop, rows=10, seed=0, environments=3)
    assert data["rewards"].shape == (10, 2)


def test_cart_pole_single_and_vectorised_agree():
    def act(observations, generator):
        return (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(int) ^ (
            generator.random(len(observations)) < 0.3
        ).astype(int)

    def vectorised():
        return gymnasium.make_vec("CartPole-v1", 100, "vector_entry_point", max_episode_steps=10**6)

    def single():
        return gymnasium.make("CartPole-v1", max_episode_steps=-1, disable_env_checker=True)

    returns = [
        monte_carlo_returns(
            make, act, episodes=count, gamma=0.98, horizon=300, seed=2, environments=20
        )
        for make, count in ((vectorised, 1000), (single, 100))
    ]
    # 5 standard errors of the difference.
    error = np.hypot(*(values.std() / np.sqrt(len(values)) for values in returns))
    assert abs(returns[0].mean() - returns[1].mean()) < 5 * error
    data = collect(vectorised, act, rows=5000, seed=3)
    assert len(Dataset(**data)) == 5000
    assert np.all(np.abs(data["initial_observations"]) <= 0.05)


def test_same_seed_same_rows():
    make = functools.partial(gymnasium.make, "CartPole-v1")
    runs = [
        collect(make, sometimes_stop, rows=50, seed=seed, environments=3)["observations"]
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_unusable_policies_and_environments():
    with pytest.raises(PolicyError, match=r"shape \(64,\)"):
        collect(Counter, lambda o, g: np.zeros((len(o), 2), int), rows=5, seed=0)
    with pytest.raises(PolicyError, match="integers from 0 to 1"):
        collect(Counter, lambda o, g: np.full(len(o), 2), rows=5, seed=0)
    disabled = functools.partial(
        SyncVectorEnv, [Counter] * 2, autoreset_mode=AutoresetMode.DISABLED
    )
    with pytest.raises(SettingsError, match="autoreset_mode"):
        collect(disabled, never_stop, rows=5, seed=0)
    with pytest.raises(SettingsError, match="rows"):
        collect(Counter, never_stop, rows=0, seed=0)
