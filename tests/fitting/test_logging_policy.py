"""The policy that logged the data, where it is known exactly."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import SettingsError
from fle.fitting import logging_policy
from fle.fitting.behaviour import Calibration
from fle.fitting.cross_fitting import dealt_rows

# One size, and two folds, so that each kind of network is compiled once for all tests.
ROWS, LENGTH, ACTIONS, FOLDS = 3_000, 30, 3, 2
# What a fit trains on: half of the rows, less a tenth that says when to stop.
TRAINING = 0.9 * ROWS / FOLDS
# A fit of d free parameters to m rows has an excess of d / 2m nats. The networks have thousands,
# held back by decay and early stopping to what 60 free ones would lose.
EXCESS = 60 / (2 * TRAINING)
# An average over rows of log ratios whose mean is E has a standard deviation of about
# sqrt(2 E / n); four of them leave a false-alarm rate of 1 in 30,000.
NOISE = 4 * np.sqrt(2 * EXCESS / ROWS)

GENERATOR = np.random.default_rng(5)
OBSERVATIONS = GENERATOR.standard_normal((ROWS, 2))
UNIFORMS = GENERATOR.random((ROWS, 1))


def log_of(actions, **changes):
    fields = {
        "observations": OBSERVATIONS,
        "actions": actions,
        "rewards": np.zeros(ROWS),
        "terminations": np.arange(ROWS) % LENGTH == LENGTH - 1,
    }
    if np.ndim(actions) == 1:
        fields["number_of_actions"] = ACTIONS
    return Dataset(**{**fields, **changes})


def drawn(probabilities):
    return (probabilities.cumsum(axis=1) < UNIFORMS).sum(axis=1).clip(max=ACTIONS - 1)


def softmax(logits):
    heights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return heights / heights.sum(axis=1, keepdims=True)


def linear():
    return softmax(OBSERVATIONS @ [[1.0, -1.0, 0.0], [0.5, 0.5, -1.5]])


def nonlinear():
    first, second = OBSERVATIONS.T
    return softmax(np.stack([2 * np.sin(2 * first), first * second, second**2 - 1], axis=1))


def greedy(exploring):
    """Two thresholds on the first feature; the second says nothing."""
    best = np.digitize(OBSERVATIONS[:, 0], [-0.5, 0.5])
    return exploring / ACTIONS + (1 - exploring) * np.eye(ACTIONS)[best]


POLICIES = {
    "softmax-linear": linear(),
    "nonlinear": nonlinear(),
    "epsilon-greedy": greedy(0.2),
    "deterministic": greedy(0.0),
}


@cache
def fitted(name):
    actions = drawn(POLICIES[name])
    return actions, logging_policy(log_of(actions), folds=FOLDS)


@pytest.mark.parametrize("name", POLICIES)
def test_the_log_loss_is_near_the_entropy(name):
    actions, policy = fitted(name)
    true = POLICIES[name][np.arange(ROWS), actions]
    assert np.mean(np.log(true) - np.log(policy.logged)) < EXCESS + NOISE
    np.testing.assert_array_equal(policy.logged, policy.probabilities[np.arange(ROWS), actions])
    np.testing.assert_allclose(policy.probabilities.sum(axis=1), 1, rtol=0, atol=1e-6)
    assert policy.probabilities.min() >= 1 / (ROWS + ACTIONS)


@pytest.mark.parametrize("name", POLICIES)
def test_a_network_that_fits_is_calibrated(name):
    _, policy = fitted(name)
    assert policy.calibrated, policy.in_words()
    assert not policy.known
    assert "a network, cross-fitted over 2 parts by episodes" in policy.in_words()


def test_a_deterministic_policy_comes_out_nearly_so():
    """A threshold between 1,350 sorted features is known to about a thousandth of the rows."""
    _, policy = fitted("deterministic")
    assert np.mean(policy.logged > 0.95) > 0.95


def test_next_probabilities_are_those_of_the_next_observation():
    _, policy = fitted("nonlinear")
    inside = np.flatnonzero(np.arange(ROWS) % LENGTH < LENGTH - 1)
    np.testing.assert_array_equal(
        policy.next_probabilities[inside], policy.probabilities[inside + 1]
    )


def test_no_row_is_judged_by_a_fit_that_saw_its_episode():
    """Other actions in a part change what is said of the other parts, and nothing in that part."""
    actions, policy = fitted("softmax-linear")
    data = log_of(actions)
    parts = dealt_rows(data, FOLDS, 0)
    for episode in range(ROWS // LENGTH):
        assert len(set(parts[data.episodes == episode])) == 1
    changed = np.where(parts == 0, (actions + 1) % ACTIONS, actions)
    again = logging_policy(log_of(changed), folds=FOLDS)
    mine = parts == 0
    np.testing.assert_array_equal(again.probabilities[mine], policy.probabilities[mine])
    assert np.abs(again.probabilities[~mine] - policy.probabilities[~mine]).max() > 0.1


def test_few_episodes_make_as_many_parts_and_one_is_dealt_by_rows():
    data = log_of(drawn(linear()))
    assert dealt_rows(data.subset(np.arange(3 * LENGTH)), 5, 0).max() == 2
    np.testing.assert_array_equal(np.bincount(dealt_rows(data.subset(np.arange(20)), 5, 0)), 4)


def test_copies_of_a_row_stay_together():
    data = log_of(
        drawn(linear()), next_observations=np.roll(OBSERVATIONS, 1), terminations=np.ones(ROWS)
    )
    copies = data.subset(np.tile(np.arange(50), 3))
    np.testing.assert_array_equal(*dealt_rows(copies, 5, 0).reshape(3, -1)[:2])


def test_states_are_counted():
    """Ten shares of S (A - 1) = 8 parameters: an excess of 8 / 2m, three times that at most."""
    states = np.arange(ROWS) % 7 % 4
    shares = np.array([[0.5, 0.3, 0.2], [0.05, 0.05, 0.9], [1 / 3, 1 / 3, 1 / 3], [0, 1, 0]])
    actions = drawn(shares[states])
    policy = logging_policy(log_of(actions, observations=states), folds=FOLDS)
    excess = np.mean(np.log(shares[states, actions]) - np.log(policy.logged))
    assert excess < 3 * 8 / (2 * TRAINING)
    assert policy.calibrated
    assert "by counts" in policy.source
    # About 430 rows of a fold are in the last state, and all do the same.
    assert policy.logged[states == 3].min() > 1 - 5 / 400


def test_counts_know_the_step_where_the_problem_has_steps():
    states, steps = np.arange(ROWS) % 2, np.arange(ROWS) % LENGTH
    best = (states + steps // 10) % ACTIONS
    actions = drawn(0.1 / ACTIONS + 0.9 * np.eye(ACTIONS)[best])
    data = log_of(actions, observations=states)
    timed, timeless = (logging_policy(d, folds=FOLDS) for d in (data.with_steps(), data))
    # Without steps three actions look alike: log 3 = 1.1; with them 0.93 of the rows do one thing.
    assert -np.log(timed.logged).mean() < 0.45
    assert -np.log(timeless.logged).mean() > 1.0


def test_logged_ones_are_taken_as_they_are():
    actions, estimate = fitted("nonlinear")
    true = nonlinear()[np.arange(ROWS), actions]
    policy = logging_policy(log_of(actions, propensities=true), folds=FOLDS)
    assert policy.known
    assert policy.calibrated, policy.in_words()
    np.testing.assert_array_equal(policy.logged, true)
    np.testing.assert_array_equal(policy.probabilities[np.arange(ROWS), actions], true)
    np.testing.assert_allclose(policy.probabilities.sum(axis=1), 1, rtol=0, atol=1e-6)
    # The others share what is left as the estimate has it.
    first, second = (actions + 1) % ACTIONS, (actions + 2) % ACTIONS
    ratios = [
        table[np.arange(ROWS), first] / table[np.arange(ROWS), second]
        for table in (policy.probabilities, estimate.probabilities)
    ]
    np.testing.assert_allclose(*ratios, rtol=1e-6)
    wrong = logging_policy(log_of(actions, propensities=np.full(ROWS, 1 / 3)), folds=FOLDS)
    assert not wrong.calibrated
    assert "log likelihood short of an estimate's by" in wrong.in_words()


def test_whole_distributions_need_no_estimate():
    actions, true = drawn(nonlinear()), nonlinear()
    policy = logging_policy(log_of(actions, propensities=true))
    assert policy.known
    assert policy.calibrated
    np.testing.assert_allclose(policy.probabilities, true, rtol=1e-12)
    inside = np.flatnonzero(np.arange(ROWS) % LENGTH < LENGTH - 1)
    np.testing.assert_allclose(policy.next_probabilities[inside], true[inside + 1], rtol=1e-12)
    wrong = logging_policy(log_of(actions, propensities=true[:, [1, 2, 0]]))
    assert not wrong.calibrated
    # What chance alone gives is what the truth has, on average: half of it is 8 deviations.
    assert 0.5 < policy.calibration.error / policy.calibration.floor < 1.5


def gaussian():
    first, second = OBSERVATIONS.T
    means, scales = np.sin(first) + 0.5 * second, 0.2 + 0.3 / (1 + np.exp(-3 * second))
    noise = np.random.default_rng(6).standard_normal(ROWS)
    return means + scales * noise, -0.5 * noise**2 - np.log(scales * np.sqrt(2 * np.pi))


@cache
def fitted_density():
    return logging_policy(log_of(gaussian()[0][:, None]), folds=FOLDS)


def test_densities_of_a_gaussian_are_found():
    policy, (actions, log_densities) = fitted_density(), gaussian()
    assert np.mean(log_densities - np.log(policy.logged)) < EXCESS + NOISE
    assert policy.calibrated, policy.in_words()
    assert policy.probabilities is None
    np.testing.assert_allclose(policy.densities(actions[:, None]), policy.logged, rtol=1e-5)
    both = np.stack([actions, actions + 0.1], axis=1)[..., None]
    assert policy.densities(both).shape == (ROWS, 2)


def test_densities_integrate_to_one_at_the_next_observation_too():
    policy = fitted_density()
    grid = np.linspace(-4, 4, 41)
    actions = np.broadcast_to(grid[:, None], (ROWS, len(grid), 1))
    total = policy.next_densities(actions).sum(axis=1) * (grid[1] - grid[0])
    # A sum of spacing 0.2 is off by 2 exp(-2 (pi s / 0.2)^2) for a scale s: 0.01 at s = 0.1.
    assert np.quantile(np.abs(total - 1), 0.9) < 0.01


def test_clipped_actions_have_no_density():
    policy = logging_policy(log_of(np.clip(gaussian()[0], -0.5, 0.5)[:, None]), folds=FOLDS)
    assert not policy.calibrated
    assert "repeat a value, as clipped or rounded ones do" in policy.in_words()


def test_a_verdict_is_a_matter_of_the_figures():
    fine = Calibration("error", 0.02, 0.01, 0.03)
    assert fine.in_words() == "error 0.0200, 0.0100 by chance alone: calibrated"
    assert not replace(fine, error=0.04).calibrated


def test_what_makes_no_sense_is_refused():
    actions, policy = fitted("softmax-linear")
    with pytest.raises(SettingsError, match="folds: expected a whole number of at least 2, got 1"):
        logging_policy(log_of(actions), folds=1)
    with pytest.raises(SettingsError, match="these are discrete; use probabilities"):
        policy.densities(OBSERVATIONS)
    with pytest.raises(SettingsError, match=r"expected shape \(3000, 1\) or \(3000, m, 1\)"):
        fitted_density().densities(OBSERVATIONS)
