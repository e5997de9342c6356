import numpy as np
import pytest
from scipy import stats

from fle.data import Dataset
from fle.errors import SettingsError
from fle.tasks import GaussianLaws, SparseTerminalMDP, random_policy, sparse_terminal


def test_weights_by_hand():
    # Two states, one action: 0 -> 0 or 1 evenly, 1 -> 1; state i draws from law i. Three steps, so
    # two moves: from 0 it ends in 0 with 1/4.
    mdp = SparseTerminalMDP(
        transitions=np.array([[[0.5, 0.5]], [[0.0, 1.0]]]),
        reward_laws=GaussianLaws(np.array([0.0, 1.0]), np.array([0.1, 0.1])),
        law_of_pair=np.array([[0], [1]]),
        initial=np.array([1.0, 0.0]),
        horizon=3,
    )
    weights = mdp.exact_weights(np.ones((2, 1)))
    assert np.allclose(weights[:, 0], [[0.25, 0.75], [0.0, 1.0]])
    assert np.allclose(mdp.policy_weights(np.ones((2, 1))), [0.25, 0.75])
    assert np.allclose(mdp.exact_weights(np.ones((2, 1)), step=2)[:, 0], np.eye(2))


@pytest.mark.parametrize("start", [None, (3, 1)])
def test_mixture_against_simulation(start):
    mdp, policy = sparse_terminal(5, 2, horizon=4, seed=0), random_policy(5, 2, 1)
    step = 0 if start is None else 1
    weights = mdp.policy_weights(policy) if start is None else mdp.exact_weights(policy, 1)[start]
    returns = mdp.sample_returns(policy, 20_000, np.random.default_rng(2), start=start, step=step)

    def cdf(z):
        return stats.norm.cdf(z[:, None], *mdp.reward_laws) @ weights

    # Kolmogorov-Smirnov, false alarm 1e-6.
    assert stats.kstest(returns, cdf).pvalue > 1e-6
    axis = np.linspace(-1, 2, 30_001)
    density = np.exp(mdp.mixture_log_density(axis, weights))
    assert density.sum() * (axis[1] - axis[0]) == pytest.approx(1.0, abs=1e-9)


def test_every_law_is_used():
    mdp = sparse_terminal(3, 2, horizon=2, seed=5, laws=4)
    assert set(mdp.law_of_pair.ravel()) == {0, 1, 2, 3}


def test_offline_data():
    mdp, n = sparse_terminal(4, 2, horizon=3, seed=3), 30_000
    data = mdp.offline_data(n, seed=4)
    last = data["steps"] == 2
    assert np.array_equal(data["terminations"], last)
    assert not data["rewards"][~last].any()
    law = mdp.law_of_pair[data["observations"][last], data["actions"][last]]
    standardised = (data["rewards"][last] - mdp.reward_laws.means[law]) / mdp.reward_laws.stds[law]
    assert stats.kstest(standardised, "norm").pvalue > 1e-6
    here = (data["observations"] == 2) & (data["actions"] == 1)
    following = np.bincount(data["next_observations"][here], minlength=4) / here.sum()
    # A share's standard error is at most 1/2 / sqrt(count); 5 of them.
    assert np.all(np.abs(following - mdp.transitions[2, 1]) < 2.5 / np.sqrt(here.sum()))
    assert len(Dataset(**data)) == n
    always_one = mdp.offline_data(100, seed=4, behaviour=[[0, 1]] * 4)
    assert always_one["actions"].all()


def test_settings():
    with pytest.raises(SettingsError, match="laws"):
        sparse_terminal(1, 2, horizon=2, seed=0, laws=4)
    with pytest.raises(SettingsError, match=r"0\.\.1"):
        sparse_terminal(2, 2, horizon=2, seed=0).exact_weights(np.full((2, 2), 0.5), step=2)
