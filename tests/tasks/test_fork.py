import numpy as np
import pytest

import fle
from fle.tasks import Fork

N = 40_000


@pytest.fixture(scope="module")
def fork():
    return Fork.example()


def test_returns_have_the_moments_of_the_mixture(fork):
    draws = fork.sample_returns(N, np.random.default_rng(0))
    means = fork.steps * fork.means
    mean = fork.weights @ means
    # Law of total covariance.
    covariance = np.einsum("k,kij->ij", fork.weights, fork.steps * fork.covariances)
    covariance += np.einsum("k,ki,kj->ij", fork.weights, means - mean, means - mean)
    std = np.sqrt(np.diag(covariance))
    # Five standard errors; Var[x y] is at most 3 var x var y.
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * std / np.sqrt(N))
    error = np.abs(np.cov(draws, rowvar=False) - covariance)
    assert np.all(error < 5 * np.sqrt(3 / N) * np.outer(std, std))


def test_the_example_is_correlated_and_has_several_modes(fork):
    correlation = np.corrcoef(fork.sample_returns(N, np.random.default_rng(0)), rowvar=False)
    assert np.abs(correlation - np.eye(5)).max() > 0.5
    apart = fork.steps * (fork.means[0] - fork.means[1])
    spread = np.linalg.inv(fork.steps * (fork.covariances[0] + fork.covariances[1]))
    assert np.sqrt(apart @ spread @ apart) > 4


def test_rollouts_of_the_logged_rows_give_the_same_law(fork):
    """Follow logged transitions by hand: choice by the policy, then two steps on the branch."""
    rows = fork.offline_data(N, seed=1)
    generator = np.random.default_rng(2)
    starting = rows["observations"] == 0
    actions = generator.choice(2, size=N, p=fork.policy)
    branches = np.empty(N, int)
    for action in (0, 1):
        logged = rows["next_observations"][starting & (rows["actions"] == action)]
        branches[actions == action] = generator.choice(logged, (actions == action).sum())
    total = np.zeros((N, 5))
    for branch in (1, 2, 3):
        here = branches == branch
        rewards = rows["rewards"][rows["observations"] == branch]
        for _ in range(fork.steps):
            total[here] += rewards[generator.integers(len(rewards), size=here.sum())]
    truth = fork.sample_returns(N, generator)
    # Both means have errors of 40,000 draws, and the logged ones of some 5,000 rows a pair.
    allowed = 5 * truth.std(axis=0) * np.sqrt(2 / N + 1 / 5_000)
    assert np.all(np.abs(total.mean(axis=0) - truth.mean(axis=0)) < allowed)


def test_the_rows_make_a_dataset(fork):
    data = fle.Dataset(**fork.offline_data(1_000, seed=0))
    assert data.rewards.shape == (1_000, 5)


def test_wrong_shapes_are_refused(fork):
    with pytest.raises(fle.FLEError, match="expected means of shape"):
        Fork(fork.chances, fork.means[:2], fork.covariances, 2, fork.policy)
