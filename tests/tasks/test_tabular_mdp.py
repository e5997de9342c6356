import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import SettingsError
from fle.tasks import TabularMDP, policy_function, random_mdp, random_policy


def coin_mdp():
    """One state, one action, reward 0 or 3 with equal chance, terminating with 1/4; two steps."""
    return TabularMDP(
        transitions=np.ones((1, 1, 1)),
        reward_values=np.array([0, 3]),
        reward_probabilities=np.full((1, 1, 2), 0.5),
        terminations=np.full((1, 1), 0.25),
        initial=np.ones(1),
        horizon=2,
    )


def test_pmf_by_hand():
    support, pmf = coin_mdp().exact_pmf(np.ones((1, 1)))
    assert support.tolist() == list(range(7))
    # One reward (1/4): 0 or 3. Two rewards (3/4): 0, 3, 3, 6 with 1/4 each.
    expected = np.zeros(7)
    expected[[0, 3, 6]] = [1 / 8 + 3 / 16, 1 / 8 + 6 / 16, 3 / 16]
    assert np.allclose(pmf[0, 0], expected)
    support, pmf = coin_mdp().exact_pmf(np.ones((1, 1)), step=1)
    assert support.tolist() == [0, 1, 2, 3]
    assert np.allclose(pmf[0, 0], [0.5, 0, 0, 0.5])


def test_discounted_moments_by_hand():
    # m = 3/2 + c m with c = gamma 3/4 = 3/8: m = 12/5. With g = gamma^2 3/4 = 3/16,
    # s = 9/2 + 2 (3/2) (3/8) m + g s = 9/2 + 27/10 + (3/16) s: s = 7.2 * 16 / 13.
    mean, variance = coin_mdp().discounted_moments(np.ones((1, 1)), gamma=0.5)
    assert mean[0, 0] == pytest.approx(12 / 5)
    assert variance[0, 0] == pytest.approx(7.2 * 16 / 13 - (12 / 5) ** 2)


@pytest.mark.parametrize("rewards", [(-1, 0, 1, 2), (1, 4), (-3, -1)])
@pytest.mark.parametrize("termination", [0.0, 0.2])
def test_pmf_against_simulation(rewards, termination):
    mdp = random_mdp(4, 3, 0, horizon=5, reward_values=rewards, termination=termination)
    policy = random_policy(4, 3, 1)
    n, generator = 20_000, np.random.default_rng(2)
    for start in [None, (2, 1)]:
        if start is None:
            support, pmf = mdp.policy_pmf(policy)
        else:
            support, all_pmf = mdp.exact_pmf(policy)
            pmf = all_pmf[start]
        assert pmf.sum() == pytest.approx(1.0)
        returns = mdp.sample_returns(policy, n, generator, start=start)
        counts = np.bincount(returns.astype(int) - support[0], minlength=len(support))
        # Each cell within 5.5 standard errors, plus one count for rare cells: over about 300 cells
        # the false-alarm rate is below 1e-4.
        error = 5.5 * np.sqrt(pmf * (1 - pmf) * n) + 1
        assert np.all(np.abs(counts - pmf * n) < error)


def test_pmf_and_discounted_moments_agree_on_a_long_horizon():
    # Terminating with about 1/2 a step, 60 steps leave less than 1e-9 unaccounted; gamma -> 1.
    mdp = random_mdp(3, 2, 3, horizon=60, termination=0.5)
    policy = random_policy(3, 2, 4)
    support, pmf = mdp.exact_pmf(policy)
    mean, variance = mdp.discounted_moments(policy, gamma=1 - 1e-9)
    exact_mean = pmf @ support
    assert np.allclose(mean, exact_mean, atol=1e-5)
    assert np.allclose(variance, pmf @ support**2 - exact_mean**2, atol=1e-5)


def test_discounted_moments_against_simulation():
    mdp, policy, gamma = random_mdp(4, 2, 5, termination=0.1), random_policy(4, 2, 6), 0.9
    mean, variance = mdp.discounted_moments(policy, gamma)
    n = 20_000
    returns = mdp.sample_returns(
        policy, n, np.random.default_rng(7), start=(1, 0), gamma=gamma, steps=150
    )
    # 5 standard errors; 0.9^150 is 1e-7.
    assert abs(returns.mean() - mean[1, 0]) < 5 * np.sqrt(variance[1, 0] / n)
    fourth = np.mean((returns - returns.mean()) ** 4)
    assert abs(returns.var() - variance[1, 0]) < 5 * np.sqrt((fourth - returns.var() ** 2) / n)


def test_offline_data():
    mdp, n = random_mdp(3, 2, 8, termination=0.3), 40_000
    data = mdp.offline_data(n, seed=0)
    dataset = Dataset(**data)
    assert dataset.number_of_actions == 2
    for state, action in np.ndindex(3, 2):
        here = (data["observations"] == state) & (data["actions"] == action)
        # 5 standard errors throughout.
        assert abs(here.mean() - 1 / 6) < 5 * np.sqrt(1 / 6 * 5 / 6 / n)
        count = here.sum()
        following = np.bincount(data["next_observations"][here], minlength=3) / count
        assert np.all(np.abs(following - mdp.transitions[state, action]) < 2.5 / np.sqrt(count))
        stop = mdp.terminations[state, action]
        assert abs(data["terminations"][here].mean() - stop) < 2.5 / np.sqrt(count)
        reward = mdp.reward_probabilities[state, action] @ mdp.reward_values
        error = data["rewards"][here].std() / np.sqrt(count)
        assert abs(data["rewards"][here].mean() - reward) < 5 * error
    biased = mdp.offline_data(1000, seed=0, behaviour=[[1, 0], [1, 0], [1, 0]])
    assert not biased["actions"].any()
    assert biased["number_of_actions"] == 2


def test_policy_function_takes_states_in_any_form():
    act = policy_function([[0.25, 0.75], [1.0, 0.0]])
    for states in (np.array([1, 0]), np.array([[1.0], [0.0]])):
        assert act(states).tolist() == [[1.0, 0.0], [0.25, 0.75]]


def test_settings():
    with pytest.raises(SettingsError, match="policy: expected shape"):
        coin_mdp().exact_pmf(np.ones((2, 1)))
    with pytest.raises(SettingsError, match="sum to 1"):
        coin_mdp().exact_pmf(np.full((1, 1), 0.5))
    with pytest.raises(SettingsError, match="gamma"):
        coin_mdp().discounted_moments(np.ones((1, 1)), 1.0)
    with pytest.raises(SettingsError, match="distinct integers"):
        random_mdp(2, 2, 0, reward_values=(0.5, 1.0))
