import numpy as np
import pytest
from scipy import stats

from fle.data import Dataset
from fle.errors import SettingsError
from fle.tasks import LQR

START = (np.array([0.8, -0.5]), np.array([0.6]))


@pytest.mark.parametrize("step", [0, 7, 13, 14])
def test_closed_form_against_simulation(step):
    lqr, n = LQR.example(), 20_000
    returns = lqr.sample_returns(n, np.random.default_rng(step), start=START, step=step)
    mean = lqr.true_mean(START[0][None], START[1][None], step)[0]
    # The law is Gaussian: Kolmogorov-Smirnov at 1e-6 and 5 standard errors of both moments.
    variance = lqr.true_variance(step)
    assert abs(returns.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(returns.var() - variance) < 5 * variance * np.sqrt(2 / n)
    assert stats.kstest((returns - mean) / np.sqrt(variance), "norm").pvalue > 1e-6


def test_mean_by_hand():
    # Scalars A = 1, B = 1, K = -1/2, Q = R = 1, horizon 2, x = 1, a = 1: the first cost is 2, the
    # next state 2 with action -1, cost 5.
    one = np.ones((1, 1))
    lqr = LQR(A=one, B=one, Q=one, R=one, K=-0.5 * one, noise_std=1.0, horizon=2)
    assert lqr.true_mean(one, one, 0) == pytest.approx([-7.0])
    assert lqr.true_mean(one, one, 1) == pytest.approx([-2.0])
    assert lqr.true_variance(0) == 2.0
    # Discounted by 1/2: U = 5/4 + (1/2)(1/4) U = 10/7; mean -2 - (1/2) 4 (10/7).
    assert lqr.discounted_mean(one, one, 0.5) == pytest.approx([-2 - 20 / 7])
    assert lqr.discounted_variance(0.5) == pytest.approx(4 / 3)


def test_discounted_closed_form_against_simulation():
    lqr, n, gamma = LQR.example(horizon=100), 20_000, 0.8
    returns = lqr.sample_returns(n, np.random.default_rng(1), start=START, gamma=gamma)
    mean = lqr.discounted_mean(START[0][None], START[1][None], gamma)[0]
    variance = lqr.discounted_variance(gamma)
    # 0.8^100 is 2e-10.
    assert abs(returns.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(returns.var() - variance) < 5 * variance * np.sqrt(2 / n)


def test_returns_of_the_policy_from_the_start():
    # E over initial states of the mean, and the law of total variance; 5 standard errors.
    lqr, n = LQR.example(), 20_000
    generator = np.random.default_rng(2)
    returns = lqr.sample_returns(n, generator)
    x = lqr.initial_observations(n, generator)
    means = lqr.true_mean(x, lqr.target_policy(x), 0)
    error = np.hypot(returns.std(), means.std()) / np.sqrt(n)
    assert abs(returns.mean() - means.mean()) < 5 * error


def test_offline_data_covers_what_the_policy_visits():
    lqr = LQR.example()
    assert np.max(np.abs(np.linalg.eigvals(lqr.closed_loop))) < 1
    data = lqr.offline_data(5000, seed=3)
    assert data["actions"].shape == (5000, 1)
    assert np.allclose(
        data["next_observations"], data["observations"] @ lqr.A.T + data["actions"] @ lqr.B.T
    )
    residual = data["rewards"] - lqr.expected_reward(data["observations"], data["actions"])
    assert abs(residual.std() - lqr.noise_std) < 5 * lqr.noise_std / np.sqrt(2 * 5000)
    assert not data["terminations"].any()
    assert not data["truncations"].any()
    # The extreme initial states are the corners, and the dynamics are linear.
    x = np.array([[1.0, 1.0], [1.0, -1.0]]) * lqr.initial_halfwidth
    for _ in range(lqr.horizon):
        assert np.abs(x).max() < lqr.data_halfwidth
        x = lqr.next_observations(x, lqr.target_policy(x))
    assert len(Dataset(**data)) == 5000


def test_settings():
    example = LQR.example()
    with pytest.raises(SettingsError, match=r"0\.\.14"):
        example.true_variance(15)
    with pytest.raises(SettingsError, match="gamma"):
        example.discounted_variance(1.0)
    with pytest.raises(SettingsError, match="K: expected shape"):
        LQR(example.A, example.B, example.Q, example.R, np.ones((2, 2)), 0.1, 5)
    unstable = LQR(2 * example.A, example.B, example.Q, example.R, 0 * example.K, 0.1, 5)
    with pytest.raises(SettingsError, match="diverges"):
        unstable.discounted_mean(np.ones((1, 2)), np.ones((1, 1)), 0.9)
