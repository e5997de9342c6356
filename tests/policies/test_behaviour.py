"""The policy that logged the data, and probabilities logged with it."""

import numpy as np
import pytest

import fle
from fle.data import Dataset
from fle.errors import FLEWarning, PolicyError
from fle.policies import (
    Behaviour,
    ProbabilityColumns,
    RowActions,
    RowProbabilities,
    settle,
    tabulate,
    tabulated,
)
from fle.tasks import TabularMDP, draw_categorical, random_mdp, random_policy


def two_episodes(**changes):
    """Terminated at row 2; cut off at row 5, where the next observation is known."""
    fields = {
        "observations": [0, 1, 2, 3, 4, 5],
        "actions": [0, 1, 2, 2, 1, 0],
        "rewards": np.ones(6),
        "next_observations": [1, 2, 9, 4, 5, 6],
        "episodes": [0, 0, 0, 1, 1, 1],
        "terminations": [0, 0, 1, 0, 0, 0],
        "truncations": [0, 0, 0, 0, 0, 1],
    }
    return Dataset(**{**fields, **changes})


def tables(policy, data):
    result = tabulated(policy, data)
    return result.following, result.initial


CUT_OFF = "1 of 6 rows have no next action in the log"


def test_next_actions_are_those_of_the_following_row():
    data = two_episodes()
    result = tabulated(Behaviour(), data)
    assert len(result.remarks) == 1
    assert result.remarks[0].startswith(CUT_OFF)
    following, initial = result.following, result.initial
    np.testing.assert_array_equal(following.actions[[0, 1, 3, 4], 0], [1, 2, 1, 0])
    np.testing.assert_array_equal(initial.actions[:, 0], [0, 2])
    np.testing.assert_array_equal(following.probabilities, 1)
    # Row 5 was cut off at observation 6; the nearest in the log is 5, where action 0 was taken.
    assert following.actions[5, 0] == 0


def test_a_settled_policy_fits_any_subset():
    settled = settle(Behaviour(), two_episodes())
    assert settled.remarks[0].startswith(CUT_OFF)
    following, _ = tables(settled, two_episodes().subset([4, 0, 4]))
    np.testing.assert_array_equal(following.actions[:, 0], [0, 1, 0])


def test_settling_again_changes_nothing():
    settled = settle(Behaviour(), two_episodes())
    assert settle(settled, two_episodes().subset([4, 0, 4])) is settled
    result = tabulated(settled, two_episodes())
    assert result.coverage is None
    assert result.enough
    assert result.in_words() == "it logged the data"
    assert result.as_plain() is None
    assert result.remarks == settled.remarks
    assert result.fingerprint == tabulated(Behaviour(), two_episodes()).fingerprint


def test_data_that_ends_needs_no_remark():
    data = two_episodes(terminations=[0, 0, 1, 0, 0, 1], truncations=np.zeros(6))
    following, _ = tables(Behaviour(), data)
    np.testing.assert_array_equal(following.actions[[0, 1, 3, 4], 0], [1, 2, 1, 0])


def test_continuous_actions_and_observations():
    actions = np.arange(12.0).reshape(6, 2)
    columns = {
        name: np.asarray(values, float)[:, None] * [1.0, 10.0]
        for name, values in (
            ("observations", [0, 1, 2, 3, 4, 5]),
            ("next_observations", [1, 2, 9, 4, 5, 1.2]),
        )
    }
    settled = settle(Behaviour(), two_episodes(actions=actions, **columns))
    # Row 5 was cut off nearest to the observation of row 1.
    np.testing.assert_array_equal(settled.policy.next[[0, 1, 3, 4, 5]], actions[[1, 2, 4, 5, 1]])
    np.testing.assert_array_equal(settled.policy.initial, actions[[0, 3]])


def test_of_equal_observations_a_random_row_is_taken():
    rows = 3000
    data = Dataset(
        observations=np.zeros(rows, int),
        actions=(np.arange(rows) % 4 == 0).astype(int),
        rewards=np.ones(rows),
        next_observations=np.zeros(rows, int),
        truncations=np.ones(rows, bool),
    )
    settled = settle(Behaviour(), data)
    # A quarter took action 1: five standard errors, false alarms below 1e-6.
    assert abs(settled.policy.next.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / rows)
    again, other = settle(Behaviour(), data), settle(Behaviour(), data, seed=1)
    np.testing.assert_array_equal(settled.policy.next, again.policy.next)
    assert (settled.policy.next != other.policy.next).any()


def test_the_nearest_observation_is_one_of_the_same_time():
    # Observation 1 at steps 0, 1 and 2, where actions 0, 1 and 2 are taken; cut off before step 2.
    data = two_episodes(
        observations=[1, 1, 1, 1, 1, 1],
        next_observations=np.ones(6, int),
        actions=[0, 1, 2, 0, 1, 0],
        episodes=[0, 0, 0, 1, 1, 2],
        steps=[0, 1, 2, 0, 1, 0],
        terminations=[0, 0, 1, 0, 0, 0],
        truncations=[0, 0, 0, 0, 1, 1],
    )
    np.testing.assert_array_equal(settle(Behaviour(), data).policy.next[[4, 5]], [2, 1])


def test_a_next_observation_that_is_not_the_following_rows():
    with pytest.warns(FLEWarning, match="differs from the following"):
        data = two_episodes(next_observations=[1, 4, 9, 4, 5, 6])
    settled = settle(Behaviour(), data)
    assert settled.remarks[0].startswith("2 of 6 rows have no next action")
    # Row 1 goes to observation 4, where action 1 is logged, and not to 2 as row 2 has it.
    assert settled.policy.next[1] == 1


def test_an_episode_without_a_row_left_starts_at_the_nearest_observation():
    with pytest.warns(FLEWarning, match="no next observation"):
        data = two_episodes(
            next_observations=None,
            episodes=[0, 0, 1, 2, 2, 2],
            terminations=[0, 1, 0, 0, 0, 1],
            truncations=[0, 0, 1, 0, 0, 0],
            observations=[0, 1, 1, 3, 4, 5],
        )
    settled = settle(Behaviour(), data)
    assert settled.remarks[0].startswith("1 of 3 initial observations have no row that starts")
    # Episode 1 started at observation 1, where row 1 took action 1.
    np.testing.assert_array_equal(settled.policy.initial, [0, 1, 2])


def test_initial_observations_of_the_users_own():
    settled = settle(Behaviour(), two_episodes(initial_observations=[4, 0, 3]))
    np.testing.assert_array_equal(settled.policy.initial, [1, 0, 2])


def test_data_that_has_no_next_actions():
    separate = Dataset(
        observations=[0, 1, 0, 1],
        actions=[0, 1, 0, 1],
        rewards=np.ones(4),
        terminations=np.zeros(4),
        truncations=np.zeros(4),
        next_observations=[0, 0, 0, 0],
        initial_observations=[0],
    )
    with pytest.raises(PolicyError, match="the episodes are unknown"):
        settle(Behaviour(), separate)
    with pytest.raises(PolicyError, match=r"incomplete.*before taking a subset"):
        tabulated(Behaviour(), two_episodes().subset([0, 1]))
    with pytest.raises(PolicyError, match="Behaviour belongs to the rows of a data set"):
        tabulate(Behaviour(), np.zeros((2, 1)), number_of_actions=2, action_dim=None)


def test_probability_columns_belong_to_the_rows_own_observation():
    # Row i has probability i / 10 of action 1 at its own observation.
    share = np.arange(6) / 10
    columns = ProbabilityColumns(np.stack([1 - share, share, 0 * share], axis=1))
    data = two_episodes(
        observations=[5, 4, 3, 2, 1, 0],
        next_observations=[6, 5, 4, 9, 2, 1],
        episodes=[1, 1, 1, 0, 0, 0],
        steps=[2, 1, 0, 2, 1, 0],
        terminations=[0, 0, 0, 1, 0, 0],
        truncations=[1, 0, 0, 0, 0, 0],
    )
    settled = settle(columns, data)
    assert isinstance(settled.policy, RowProbabilities)
    following, initial = tables(settled, data)
    # Sorted, the rows are 2, 1, 0 (cut off nearest to itself), 5, 4, 3 (terminated).
    np.testing.assert_array_equal(data.source_rows, [2, 1, 0, 5, 4, 3])
    going_on = ~data.terminations
    np.testing.assert_allclose(following.probabilities[going_on, 1], [0.1, 0.0, 0.0, 0.4, 0.3])
    np.testing.assert_allclose(initial.probabilities[:, 1], [0.2, 0.5])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((5, 3), 1 / 3), r"expected shape \(6, 3\), a row for each .* got \(5, 3\)"),
        (np.full((6, 2), 1 / 2), r"RowProbabilities.next: expected shape \(6, 3\)"),
        (np.full((6, 3), 1 / 2), "sums to 1.5"),
        (np.full((6, 3), np.nan), "is nan"),
    ],
)
def test_probability_columns_that_cannot_be_used(values, message):
    data = two_episodes(terminations=[0, 0, 1, 0, 0, 1], truncations=np.zeros(6))
    with pytest.raises(PolicyError, match=message):
        tabulated(ProbabilityColumns(values), data)


def test_row_actions_given_by_the_user_are_checked():
    data = two_episodes(terminations=[0, 0, 1, 0, 0, 1], truncations=np.zeros(6))
    good = RowActions(np.array([1, 2, -5, 1, 0, -5]), np.array([0, 2]))
    following, _ = tables(good, data)
    np.testing.assert_array_equal(following.actions[[0, 1, 3, 4], 0], [1, 2, 1, 0])
    for policy, message in (
        (RowActions(np.array([1, 3, 0, 1, 0, 0]), np.array([0, 2])), "row 1 is 3"),
        (RowActions(np.zeros(5, int), np.array([0, 2])), r"next: expected shape \(6,\)"),
        (RowActions(np.zeros(6, int), np.array([0])), r"initial: expected shape \(2,\)"),
    ):
        with pytest.raises(PolicyError, match=message):
            tabulated(policy, data)


def logged_episodes(mdp: TabularMDP, policy, episodes, seed, limit=3):
    """Whole episodes, cut off after `limit` steps with the next observation known."""
    generator = np.random.default_rng(seed)
    states = mdp.initial_states(episodes, generator)
    running, columns = np.arange(episodes), []
    for step in range(limit):
        actions = draw_categorical(policy[states], generator)
        rewards, terminated, following = mdp.step(states, actions, generator)
        cut = ~terminated & (step == limit - 1)
        columns.append((running, states, actions, rewards, following, terminated, cut))
        running, states = running[~terminated], following[~terminated]
    parts = [np.concatenate(column) for column in zip(*columns, strict=True)]
    order = np.argsort(parts[0], kind="stable")
    names = ("episodes", "observations", "actions", "rewards", "next_observations")
    fields = dict(zip((*names, "terminations", "truncations"), parts, strict=True))
    return Dataset(
        **{name: column[order] for name, column in fields.items()},
        number_of_actions=mdp.number_of_actions,
    )


def problem(gamma):
    mdp = random_mdp(4, 3, 5, termination=0.1)
    policy = random_policy(4, 3, 6)
    mean, _ = mdp.discounted_moments(policy, gamma)
    truth = float((mdp.initial[:, None] * policy * mean).sum())
    returns = mdp.sample_returns(policy, 20_000, np.random.default_rng(7), gamma=gamma, steps=60)
    return mdp, policy, truth, returns


def solved_mean(data, following, initial, gamma):
    """The mean return by solving the empirical Bellman equations of a table."""
    pairs = data.number_of_observations * data.number_of_actions
    here = data.observations * data.number_of_actions + data.actions
    there = data.next_observations * data.number_of_actions + following.actions[:, 0]
    going_on = ~data.terminations
    onward, reward = np.zeros((pairs, pairs)), np.zeros(pairs)
    np.add.at(onward, (here[going_on], there[going_on]), 1)
    np.add.at(reward, here, data.rewards[:, 0])
    visits = np.bincount(here, minlength=pairs)
    values = np.linalg.solve(np.diag(visits) - gamma * onward, reward)
    starts = data.initial_observations * data.number_of_actions + initial.actions[:, 0]
    return values[starts].mean()


def test_the_logging_policys_return_against_monte_carlo_and_the_exact_mean():
    gamma, episodes = 0.8, 40_000
    mdp, policy, truth, returns = problem(gamma)
    # Five standard errors; 60 steps leave 0.8^60 = 1.5e-6 of the return.
    assert abs(returns.mean() - truth) < 5 * returns.std() / np.sqrt(len(returns))
    data = logged_episodes(mdp, policy, episodes, seed=8)
    assert data.truncations.sum() > episodes / 2
    settled = settle(Behaviour(), data)
    estimate = solved_mean(data, *tables(settled, data), gamma)
    # Monte Carlo would have a standard error of std / sqrt(episodes). Cut after 3 steps, each
    # episode holds fewer than the 1 / (1 - gamma) = 5 steps that count, so allow a factor sqrt(5);
    # four of these standard errors, false alarms below 1e-4.
    tolerance = 4 * returns.std() * np.sqrt(5 / episodes)
    assert abs(estimate - truth) < tolerance
    # Neither leaving out the rows that were cut off nor taking the cut for an end would pass.
    kept = data.subset(~data.truncations)
    assert abs(solved_mean(kept, *tables(settled, kept), gamma) - truth) > tolerance
    assert abs(data.observed_returns(gamma)[0].mean() - truth) > tolerance


def test_an_evaluation_of_the_logging_policy():
    gamma = 0.5
    mdp, policy, _, returns = problem(gamma)
    data = logged_episodes(mdp, policy, 2000, seed=9)
    settled = settle(Behaviour(), data)
    with pytest.warns(FLEWarning, match="rows have no next action in the log"):
        result = fle.evaluate(
            data,
            settled,
            gamma=gamma,
            stages=8,
            model=fle.Gaussian(std=1.0, hidden=(32,)),
            recipe=fle.Recipe(steps=500, batch_size=500, learning_rate=0.01, weight_decay=0.0),
        )
    assert result.coverage is None
    # The same data solved exactly; a tenth of a standard deviation is for a short training.
    expected = solved_mean(data, *tables(settled, data), gamma)
    assert abs(float(result.returns.mean()) - expected) < 0.1 * returns.std()
