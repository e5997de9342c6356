import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from fle.data import Dataset
from fle.tasks import CombinationLock, collect, draw_categorical, monte_carlo_returns

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from fle.tasks.gymnasium_lock import CombinationLockEnv  # noqa: E402


@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*value is.*infinity")
def test_gymnasium_accepts_the_environment():
    check_env(CombinationLockEnv(), skip_render_check=True)


@pytest.mark.parametrize("dim", [1, 2])
def test_environment_and_vectorised_lock_agree(dim):
    lock = CombinationLock(horizon=6, reward_dim=dim)

    def act(observations, generator):
        return draw_categorical(lock.target_policy(observations), generator)

    episodes = 1500
    returns = monte_carlo_returns(
        lambda: CombinationLockEnv(lock), act, episodes=episodes, gamma=1.0, horizon=6, seed=0
    )
    truth = lock.sample_policy_returns(20_000, np.random.default_rng(1))
    assert returns.shape == ((episodes,) if dim == 1 else (episodes, 2))
    if dim == 2:
        returns, truth = np.linalg.norm(returns, axis=1), np.linalg.norm(truth, axis=1)
    # Two-sample Kolmogorov-Smirnov, false alarm 1e-6.
    assert stats.ks_2samp(returns, truth).pvalue > 1e-6


@pytest.mark.parametrize("dim", [1, 2])
def test_collected_rows_obey_the_lock(dim):
    lock = CombinationLock(horizon=4, reward_dim=dim)

    def act(observations, generator):
        return generator.integers(2, size=len(observations))

    data = collect(lambda: CombinationLockEnv(lock), act, rows=500, seed=0, environments=7)
    latents, next_latents = data["observations"][:, 1], data["next_observations"][:, 1]
    assert np.array_equal(next_latents == 0, (latents == 0) & (data["actions"] == 0))
    # The observation after the last step carries no step bit.
    no_bit = data["next_observations"][:, 2:6].sum(axis=1) == 0
    assert np.array_equal(no_bit, data["terminations"])
    rewarded = np.abs(data["rewards"]).reshape(500, -1).sum(axis=1) > 0
    assert np.array_equal(rewarded, data["terminations"])
    dataset = Dataset(**data)
    assert len(dataset) == 500
    assert dataset.number_of_episodes == len(np.unique(data["episodes"]))


def test_tasks_import_without_gymnasium():
    # A fresh interpreter, since this one has imported it.
    code = "import sys, fle.tasks; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603
