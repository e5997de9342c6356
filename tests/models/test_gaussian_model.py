import numpy as np
import pytest
from model_outputs import build, log_prob, loss_of_row, prepared, transition, with_outputs
from scipy import stats

import fle
from fle.errors import SettingsError
from fle.tasks import random_mdp, random_policy


def softplus_inverse(std, floor=0.01):
    return np.log(np.expm1(std - floor))


def test_target_moments_by_the_law_of_total_variance():
    # Action a has mean 2a (weights below) and std 0.5. With P(a=1) = 1/4 and P(a=-1) = 3/4 the next
    # return has mean -1 and variance 1/4 + E[(2a)²] - 1 = 1/4 + 4 - 1 = 3.25.
    weights = [[0.0, 0.0], [2.0, 0.0]]
    law = with_outputs(build(fle.Gaussian(hidden=())), [0.0, softplus_inverse(0.5)], weights)
    row = transition(0.3, 0.8, probabilities=(0.25, 0.75), next_actions=[1.0, -1.0])
    target = prepared(fle.Gaussian(), law, row)
    assert np.allclose(target.mean, 0.3 - 0.8, atol=1e-5)
    assert np.allclose(target.variance, 0.8**2 * 3.25, atol=1e-4)


def test_terminated_target_is_the_reward_alone():
    law = build(fle.Gaussian(hidden=()), returns=2)
    target = prepared(fle.Gaussian(), law, transition([0.3, -1.0], 0.0))
    assert np.allclose(target.mean, [0.3, -1.0])
    assert np.allclose(target.variance, 0)


def test_log_prob_equals_scipy():
    outputs = [0.5, -1.0, softplus_inverse(0.3), softplus_inverse(2.0)]
    law = with_outputs(build(fle.Gaussian(hidden=()), returns=2), outputs)
    truth = stats.norm.logpdf([0.1, 0.7], [0.5, -1.0], [0.3, 2.0]).sum()
    ours = log_prob(law, np.zeros(2), np.array([0.1, 0.7]))
    assert float(ours) == pytest.approx(truth, rel=1e-4)


def test_loss_is_the_expected_negative_log_likelihood():
    # N(0, 1) against a target of mean 1 and variance 2: E[(z² + log 2 pi)/2] = (1 + 2 + 1.8379)/2.
    law = with_outputs(build(fle.Gaussian(hidden=())), [0.0, softplus_inverse(1.0)])
    row = transition(1.0, np.sqrt(2.0))
    loss = loss_of_row(fle.Gaussian(), law, prepared(fle.Gaussian(), law, row))
    assert float(loss) == pytest.approx((3 + np.log(2 * np.pi)) / 2, abs=1e-4)


def test_fixed_std_must_be_positive():
    with pytest.raises(SettingsError, match="std: expected a positive"):
        fle.Gaussian(std=0.0)


def empirical_q(data, policy, horizon):
    """Exact dynamic programming on the logged rows: what tabular FQE converges to."""
    states, actions = data.number_of_observations, data.number_of_actions
    cell = data.observations * actions + data.actions
    counts = np.bincount(cell, minlength=states * actions)
    values = np.zeros((states, actions))
    for _ in range(horizon):
        of_state = (policy * values).sum(axis=1)
        targets = data.rewards[:, 0] + ~data.terminations * of_state[data.next_observations]
        values = (np.bincount(cell, targets) / counts).reshape(states, actions)
    return values


def test_fixed_std_is_least_squares_fitted_q_evaluation():
    mdp = random_mdp(4, 2, seed=0, horizon=4, termination=0.2)
    policy = random_policy(4, 2, seed=1)
    data = fle.Dataset(**mdp.offline_data(4000, seed=2))
    result = fle.evaluate(
        data,
        policy,
        horizon=4,
        model=fle.Gaussian(std=1.0, hidden=(32, 32)),
        # No row is held out but one, so that both see the same data.
        recipe=fle.Recipe(
            steps=1000, batch_size=250, weight_decay=0.0, held_out=1e-4, start="fresh"
        ),
    )
    ours = np.array([[result.at(s, a).samples.mean() for a in range(2)] for s in range(4)])
    # A mean of 100,000 draws of std s has error 5 s / 316; the rest is for the fit. The same rows
    # are seen by both, so their sampling error (about 0.1 here) does not enter.
    spread = result.returns.std()
    assert np.abs(ours - empirical_q(data, policy, 4)).max() < (5 / 316 + 0.02) * spread
