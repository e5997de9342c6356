"""Where the policy goes, estimated from the log, against occupancies known exactly."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fle.fitting.occupancy as occupancy_module
from fle.data import Dataset
from fle.errors import PolicyError, SettingsError
from fle.fitting.occupancy import LARGEST, UNIFORM, occupancy
from fle.policies import Normal
from fle.policies.action_table import ActionTable
from fle.policies.answers import TabulatedPolicy, tabulated


def unmixed(found):
    """The estimated ratio itself, of mean 1, from weights that are partly uniform."""
    return (found.weights - UNIFORM) / (1 - UNIFORM)


def two_states(*, ends):
    """Six rows in state 0, two in state 1; action 1 leads to state 1, action 0 to state 0."""
    states = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    actions = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    return Dataset(
        observations=states,
        actions=actions,
        rewards=np.ones(8),
        next_observations=np.where(actions == 1, 1, 0),
        terminations=ends & (states == 1),
        truncations=np.zeros(8, bool),
        initial_observations=[0],
        number_of_actions=2,
    )


@pytest.mark.parametrize(
    ("ends", "gamma", "horizon", "visits"),
    [
        # Action 1 always: state 0 once, then state 1 for ever, 0.9 + 0.81 + ... = 9.
        (False, 0.9, None, (1, 9)),
        (False, 0.5, None, (1, 1)),
        # State 0 at step 0, state 1 at steps 1 and 2.
        (False, 1.0, 3, (1, 2)),
        (False, 0.5, 3, (1, 0.75)),
        # State 1 is visited once, and the episode ends there.
        (True, 0.9, None, (1, 0.9)),
        (True, 1.0, 5, (1, 1)),
    ],
)
def test_a_chain_of_two_states_is_weighted_exactly(ends, gamma, horizon, visits):
    data = two_states(ends=ends)
    found = occupancy(data, tabulated([0.0, 1.0], data), gamma=gamma, horizon=horizon)
    share = np.array(visits) / sum(visits)
    ratio = (share / [6 / 8, 2 / 8])[data.observations]
    np.testing.assert_allclose(unmixed(found), ratio, rtol=1e-9)
    assert found.weights.mean() == pytest.approx(1)
    assert found.distance == pytest.approx(0.8 * abs(share[0] - 6 / 8))
    assert found.effective_size == pytest.approx(64 / (found.weights**2).sum())
    assert found.beyond == pytest.approx(0)


def test_visits_that_no_row_shows_are_told_and_not_invented():
    data = two_states(ends=False).subset(np.arange(7))
    found = occupancy(data, tabulated([0.0, 1.0], data), gamma=0.9, horizon=None)
    # State 1 was logged with action 0 alone, and 9 of 10 visits take action 1 there.
    assert found.beyond > 0.4
    assert not found.worthwhile
    assert "hardly anything was logged" in found.in_words()


def test_a_random_chain_has_the_occupancy_that_its_table_has():
    generator = np.random.default_rng(0)
    states, actions, n = 6, 2, 3_000
    x, a = generator.integers(states, size=n), generator.integers(actions, size=n)
    following = (x + a + generator.integers(2, size=n)) % states
    policy = generator.dirichlet(np.ones(actions), states)
    data = Dataset(
        observations=x,
        actions=a,
        rewards=np.zeros(n),
        next_observations=following,
        truncations=np.zeros(n, bool),
        initial_observations=[0, 0, 3],
        number_of_actions=actions,
    )
    # The chain of the logged frequencies, by its own linear equations.
    counts = np.zeros((states, actions, states))
    np.add.at(counts, (x, a, following), 1)
    moves = np.einsum("sa,sat->st", policy, counts / counts.sum(2, keepdims=True))
    start = np.bincount([0, 0, 3], minlength=states) / 3
    visits = np.linalg.solve(np.eye(states) - 0.95 * moves.T, 0.05 * start)
    expected = (visits / (np.bincount(x) / n))[x]
    found = occupancy(data, tabulated(policy, data), gamma=0.95, horizon=None)
    # Visits that differ by 0.03 in total variation share a law.
    np.testing.assert_allclose(unmixed(found), expected, atol=0.05)


@pytest.fixture(scope="module")
def walks():
    """400 episodes of 10 steps of x' = 0.8 x + a + 0.2 noise; actions are noise, of spread 0.5."""
    generator = np.random.default_rng(1)
    x = generator.normal(0, 1.0, 400)
    rows = {"observations": [], "actions": [], "next_observations": []}
    for _ in range(10):
        a = 0.5 * generator.standard_normal(400)
        following = 0.8 * x + a + 0.2 * generator.standard_normal(400)
        for name, values in zip(rows, (x, a, following), strict=True):
            rows[name].append(values)
        x = following
    columns = {name: np.stack(values, 1).reshape(-1, 1) for name, values in rows.items()}
    episodes = np.repeat(np.arange(400), 10)
    truncations = np.tile(np.arange(10) == 9, 400)
    return Dataset(**columns, rewards=np.zeros(4_000), episodes=episodes, truncations=truncations)


def test_moments_of_a_linear_system_are_those_of_its_occupancy(walks):
    # a = -0.3 x + 0.2 noise, so x' = 0.5 x + noise of variance 0.08: from x_0 of mean square s_0,
    # that at step t is 0.25^t (s_0 - v) + v, with v = 0.08 / 0.75; discounted by 0.9, its average
    # over the occupancy is v + 0.1 (s_0 - v) / (1 - 0.9 * 0.25).
    target = tabulated(Normal(lambda x: (-0.3 * x, np.full(1, 0.2))), walks)
    found = occupancy(walks, target, gamma=0.9, horizon=None)
    limit = 0.08 / 0.75
    exact = limit + 0.1 * ((walks.initial_observations**2).mean() - limit) / (1 - 0.9 * 0.25)
    estimate = (unmixed(found) * walks.observations[:, 0] ** 2).mean()
    logged = (walks.observations**2).mean()
    # The spread of the weighted mean, at four standard errors (false alarms: 1 in 16,000), and 5%
    # for the ridge.
    error = (unmixed(found) * (walks.observations[:, 0] ** 2 - exact)).std() / np.sqrt(4_000)
    assert logged > 2 * exact
    assert abs(estimate - exact) < 4 * error + 0.05 * exact
    assert found.beyond == 0
    assert found.worthwhile
    assert found.effective_size < 3_000


def test_a_log_of_the_policy_itself_stays_as_it_is(walks):
    """What follows each row is the logged action, so means at every step are the logged ones."""
    data = walks.with_steps()
    logged = data.actions.reshape(400, 10, 1)
    after = np.concatenate([logged[:, 1:], logged[:, -1:]], axis=1).reshape(-1, 1)
    following = ActionTable.of_single_actions(after)
    target = TabulatedPolicy(following, ActionTable.of_single_actions(logged[:, 0]), None, ())
    found = occupancy(data, target, gamma=1.0, horizon=10)
    np.testing.assert_allclose(found.weights, 1, atol=0.01)
    assert found.effective_size > 3_999
    assert not found.worthwhile


def test_steps_are_weighted_one_by_one(walks):
    data = walks.with_steps()
    found = occupancy(data, tabulated(lambda x: -0.3 * x, data), gamma=1.0, horizon=10)
    means = found.weights.reshape(400, 10).mean(axis=0)
    np.testing.assert_allclose(means, 1)
    # Where episodes start nothing has been chosen yet; then the policy stays nearer the origin.
    np.testing.assert_allclose(found.weights.reshape(400, 10)[:, 0], 1, atol=0.02)
    squares = (found.weights * walks.observations[:, 0] ** 2).reshape(400, 10).mean(axis=0)
    plain = (walks.observations**2).reshape(400, 10).mean(axis=0)
    assert (squares[3:] < 0.6 * plain[3:]).all()


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_small_products_stay_on_one_thread(walks, monkeypatch):
    """Shared among two, they took fifty times as long on busy cores."""
    found = []

    def spy(*arguments):
        found.append(blas_threads())
        return followed(*arguments)

    followed = occupancy_module._followed
    monkeypatch.setattr(occupancy_module, "_followed", spy)
    with threadpool_limits(limits=2, user_api="blas"):
        occupancy(walks, tabulated(lambda x: -0.3 * x, walks), gamma=0.9, horizon=None)
        after = blas_threads()
    assert len(found[0]) > 0
    assert set(found[0]) == {1}
    assert set(after) == {2}


def test_a_large_log_is_thinned_and_seeds_decide_how(walks, monkeypatch):
    monkeypatch.setattr("fle.fitting.occupancy.MOST_WORK", 1_000 * 5**2)
    target = tabulated(lambda x: -0.3 * x, walks)
    first, again, other = (
        occupancy(walks, target, gamma=0.9, horizon=None, seed=seed).weights for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-6
    assert np.corrcoef(first, other)[0, 1] > 0.99


def test_a_policy_far_from_the_log_leaves_it_nearly_as_it_is(walks):
    found = occupancy(walks, tabulated(lambda x: x + 30, walks), gamma=0.99, horizon=None)
    assert found.weights.max() <= LARGEST
    assert found.beyond > 0.5
    assert not found.worthwhile


def test_discrete_actions_and_weights_of_the_data(walks):
    pushed = (walks.actions[:, 0] > 0).astype(int)
    weights = np.where(np.arange(4_000) % 2, 1.5, 0.5)
    data = Dataset(
        observations=walks.observations,
        actions=pushed,
        rewards=np.zeros(4_000),
        next_observations=walks.next_observations,
        truncations=np.zeros(4_000, bool),
        initial_observations=walks.initial_observations,
        weights=weights,
        number_of_actions=2,
    )
    found = occupancy(data, tabulated([0.1, 0.9], data), gamma=0.9, horizon=None)
    # Pushed to the right by about 0.4 in the mean at nine of ten steps, the policy stays there.
    assert (found.weights @ walks.observations[:, 0]) / found.weights.sum() > 0.5
    assert found.weights[1::2].mean() / found.weights[::2].mean() == pytest.approx(3, rel=0.1)


def test_tables_of_other_data_and_an_endless_return_are_refused(walks):
    target = tabulated(lambda x: x, walks)
    with pytest.raises(PolicyError, match="expected tables of 10 and 400 rows"):
        occupancy(walks.subset(np.arange(10)), target, gamma=0.9, horizon=None)
    with pytest.raises(SettingsError, match="gamma"):
        occupancy(walks, target, gamma=1.0, horizon=None)
