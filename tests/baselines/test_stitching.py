"""Stitched episodes agree with exact answers; fitted Q evaluation with its own formulas."""

import numpy as np
import pytest
from tabular_logs import BEYOND, CHANCES, MDP, SUPPORT, TARGET, logged, planned, scores, truths

import fle
from fle import baselines
from fle.baselines.importance import Neighbours
from fle.errors import DataError, ModelError, SettingsError
from fle.tasks.gaussian_returns import Fork

GAUSSIAN = fle.Gaussian(std=1.0, hidden=())


@pytest.fixture(scope="module")
def plan():
    return planned(4_000, seed=0)


def test_stitched_episodes_agree_with_the_exact_answer(plan):
    found = baselines.stitching(plan, seed=1)
    # Three figures: a false alarm in 5,000.
    assert max(abs(score) for score in scores(found).values()) < BEYOND
    # As many as use half of the rows, by how long they can be and how often one ends.
    length = min(plan.problem.horizon, 1 / plan.data.terminations.mean())
    number = int(0.5 * len(plan.data) / length)
    assert found.effective_size == len(found.returns.samples) == pytest.approx(number, abs=1)
    # Starts are drawn from the log and rows taken from it once, which a bound of half leaves.
    assert not any("used before" in remark for remark in found.remarks)


def test_stitched_vectors_need_no_episodes():
    fork = Fork.example(dimension=2)
    data = fle.Dataset(**fork.offline_data(20_000, seed=0))
    plan = fle.plan(data, fork.target_policy, horizon=fork.horizon, model=fle.GMM())
    found = baselines.stitching(plan)
    truth = fork.weights @ fork.means * fork.steps
    for coordinate, mean in enumerate(truth):
        value, error = found.mean(coordinate)
        assert abs(value - mean) < BEYOND * error
    # Both coordinates come from one and the same episode.
    exact = fork.sample_returns(100_000, np.random.default_rng(0))
    assert found.returns.correlation()[0, 1] == pytest.approx(np.corrcoef(exact.T)[0, 1], abs=0.15)
    with pytest.raises(DataError, match="whole episodes"):
        baselines.importance_sampling(plan)


def line(rows, seed):
    """x' = 0.8 x + a + noise, reward x + a, for two steps."""
    generator = np.random.default_rng(seed)
    first = generator.normal(size=rows)
    actions = generator.uniform(-1, 1, size=(rows, 2))
    second = 0.8 * first + actions[:, 0] + 0.1 * generator.normal(size=rows)
    return fle.Dataset(
        observations=np.stack([first, second], axis=1).reshape(-1, 1),
        actions=actions.reshape(-1, 1),
        rewards=np.stack([first, second], axis=1).ravel() + actions.ravel(),
        terminations=np.tile([False, True], rows),
        episodes=np.repeat(np.arange(rows), 2),
    )


@pytest.mark.parametrize("discrete", [False, True])
def test_nearest_rows_of_vectors(discrete):
    data = line(2_000, seed=0)
    policy = lambda x: -0.5 * x  # noqa: E731
    # With m the mean of the starts, a = -m/2, x' = 0.3 m and a' = -0.15 m: 0.65 m in all.
    truth = 0.65 * data.initial_observations.mean()
    if discrete:
        # Three actions, -1, 0 and 1, by the nearest; the policy always takes 0: 1.8 m in all.
        codes = np.round(data.actions[:, 0]).astype(int) + 1
        generator = np.random.default_rng(1)
        starts = generator.normal(size=2_000)
        second = 0.8 * starts + codes[::2] - 1
        states = np.stack([starts, second], axis=1).reshape(-1, 1)
        data = fle.Dataset(
            observations=states,
            actions=codes,
            rewards=states[:, 0] + codes - 1,
            terminations=np.tile([False, True], 2_000),
            episodes=np.repeat(np.arange(2_000), 2),
            number_of_actions=3,
        )
        policy, truth = [0.0, 1.0, 0.0], 1.8 * data.initial_observations.mean()
    plan = fle.plan(data, policy, horizon=2, model=GAUSSIAN)
    found = baselines.stitching(plan)
    value, error = found.mean()
    # The nearest row is within about 0.05: a bias of less than 0.05, beside the standard error.
    assert abs(value - truth) < BEYOND * error + 0.05


def test_no_row_is_taken_twice_while_others_are_left():
    data = line(50, seed=0)
    shelf = Neighbours(data, np.arange(100), False, np.random.default_rng(0))
    same = np.zeros((8, 1))
    first, second = shelf.take(same, same, 0), shelf.take(same, same, 0)
    assert len({*first, *second}) == 16
    assert (shelf.taken, shelf.taken_again) == (16, 0)
    shelf.take(same, same, 0)
    assert shelf.taken_again > 0


def test_many_dimensions_and_unlogged_actions_are_refused():
    wide = fle.Dataset(
        observations=np.random.default_rng(0).normal(size=(60, 5)),
        actions=np.arange(60) % 2,
        rewards=np.arange(60.0),
        terminations=np.ones(60, bool),
        next_observations=np.zeros((60, 5)),
    )
    with pytest.raises(DataError, match="at most 4 coordinates"):
        baselines.stitching(fle.plan(wide, [0.5, 0.5], horizon=1, model=GAUSSIAN))
    data = logged(100, seed=0)
    only = data.subset(data.actions == 0)
    with pytest.warns(fle.FLEWarning):
        plan = fle.plan(only, [0.0, 1.0], horizon=5, model=GAUSSIAN, rows="all")
    with pytest.raises(DataError, match="have none"):
        baselines.stitching(plan)


def test_fitted_q_agrees_with_the_exact_answer(plan):
    sandwich = baselines.fitted_q_evaluation(plan, replicates=0)
    value, error = sandwich.mean()
    assert abs(value - truths()["mean"][1]) < BEYOND * error
    assert sandwich.class_errors == (0.0,)
    spread, its_error = sandwich.std()
    mean = SUPPORT @ CHANCES
    assert abs(spread - np.sqrt((SUPPORT - mean) ** 2 @ CHANCES)) < BEYOND * its_error
    # The variance of 60 replicates is chi-square of 59 over 59: within 0.55 and 1.52 in the root,
    # but for one in 10,000, each of the two.
    bootstrap = baselines.fitted_q_evaluation(plan, replicates=60)
    assert 0.55 < bootstrap.mean().standard_error / error < 1.52
    assert 0.55 < bootstrap.std().standard_error / its_error < 1.52


def test_fitted_q_can_be_asked_what_a_distribution_is_asked(plan):
    found = baselines.fitted_q_evaluation(plan)
    law, truth = found.returns, truths()["mean"][1]
    # 100,000 draws of a normal law, and its CVaR: mean less 1.755 standard deviations. Five
    # standard errors of each: one false alarm in a million.
    mean, std = found.mean().value, found.std().value
    assert law.mean() == pytest.approx(mean, abs=5 * std / np.sqrt(1e5))
    assert law.cvar(0.1) == pytest.approx(mean - 1.755 * std, abs=0.03 * std)
    low, high = law.interval("mean", 0.999).ends
    assert low < truth < high
    fewer = baselines.fitted_q_evaluation(plan, replicates=0).returns
    assert fewer.replicates is None
    assert fewer.log_prob([mean]) == pytest.approx(-0.5 * np.log(2 * np.pi) - np.log(std), abs=1e-6)
    fork = Fork.example(dimension=2)
    data = fle.Dataset(**fork.offline_data(500, seed=0))
    both = fle.plan(data, fork.target_policy, horizon=fork.horizon, model=fle.GMM())
    with pytest.raises(ModelError, match="one reward at a time"):
        _ = baselines.fitted_q_evaluation(both, replicates=0).returns


def test_fitted_q_of_a_discounted_problem():
    plan = fle.plan(logged(4_000, seed=1), TARGET, gamma=0.9, model=GAUSSIAN)
    pairs = MDP.discounted_moments(TARGET, 0.9)[0]
    truth = np.sum(MDP.initial[:, None] * TARGET * pairs)
    value, error = baselines.fitted_q_evaluation(plan, replicates=0).mean()
    assert abs(value - truth) < BEYOND * error
    stitched = baselines.stitching(plan)
    value, error = stitched.mean()
    # What is left out has a discount of 0.01.
    assert abs(value - truth) < BEYOND * error + 0.01 * np.abs(pairs).max()
    with pytest.raises(SettingsError, match="replicates"):
        baselines.fitted_q_evaluation(plan, replicates=1)


def test_fitted_q_in_a_class_of_functions():
    data = line(4_000, seed=0)
    plan = fle.plan(data, lambda x: -0.5 * x, horizon=2, model=GAUSSIAN)
    found = baselines.fitted_q_evaluation(plan, replicates=0)
    value, error = found.mean()
    # As above, 0.65 of the mean start, and linear in x and a: the class has no error of its own.
    assert abs(value - 0.65 * data.initial_observations.mean()) < BEYOND * error
    assert found.class_errors[0] < 2 * error
