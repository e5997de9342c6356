"""Coverage of a policy by the log, against figures worked out by hand."""

import numpy as np
import pytest

from fle.data import Dataset
from fle.errors import PolicyError
from fle.policies import ActionTable, Normal, tabulated
from fle.policies.answers import Coverage, coverage, neighbours


def logged(observations, actions, **fields):
    rows = len(observations)
    return Dataset(
        observations=observations,
        actions=actions,
        rewards=np.zeros(rows),
        next_observations=observations,
        terminations=np.zeros(rows, bool),
        truncations=np.ones(rows, bool),
        initial_observations=observations[:100],
        **fields,
    )


def cover(policy, data, **settings):
    return tabulated(policy, data, **settings).coverage


def two_states():
    """State 0 shows both actions equally often, state 1 only action 0; 1000 rows each."""
    states = np.tile([0, 0, 1, 1], 500)
    return logged(states, np.tile([0, 1, 0, 0], 500), number_of_actions=2)


def test_actions_never_logged_in_a_state_are_counted():
    # Half of the queries are in state 1, where half of the policy was never logged.
    assert cover([0.5, 0.5], two_states()).share_unseen == pytest.approx(0.25, abs=0.01)
    assert cover([1.0, 0.0], two_states()).share_unseen == 0


def test_effective_sample_size_of_discrete_actions():
    # State 0: 1 / 0.5 = 2; state 1: 1 / 1; on average 1.5, of 2000 rows. One row of prior in a
    # thousand moves this by less than 0.5 %; the 4096 queries are all there are.
    always_zero = cover([1.0, 0.0], two_states())
    assert always_zero.effective_sample_size == pytest.approx(2000 / 1.5, rel=0.01)
    assert always_zero.enough
    assert always_zero.warnings == ()


def test_the_logging_policy_covers_itself():
    same = np.array([[0.5, 0.5], [1.0, 0.0]])
    covered = cover(lambda states: same[states], two_states())
    assert covered.effective_sample_size == pytest.approx(2000, rel=0.01)
    assert covered.share_unseen == 0


def test_many_features_are_searched_by_products():
    generator = np.random.default_rng(0)
    rows, asked = generator.normal(5, 2, (3000, 12)), generator.normal(5, 2, (40, 12))
    found = neighbours(rows, asked, 50)
    scaled = (asked[:, None] - rows) / rows.std(axis=0)
    nearest = np.argsort((scaled**2).sum(axis=2), axis=1)[:, :50]
    assert all(set(one) == set(other) for one, other in zip(found, nearest, strict=True))


@pytest.mark.parametrize("width", [1, 10])
def test_a_constant_feature_decides_nothing(width):
    """The mean of a thousand times 0.1 is not 0.1: its error must not become the unit."""
    rows = np.column_stack([np.tile(np.arange(1000.0), (width, 1)).T, np.full(1000, 0.1)])
    # Near row 500 and, by the constant feature, nowhere.
    asked = np.append(np.full(width, 500.0), 0.1 + 1e-6)
    assert np.sort(neighbours(rows, asked[None], 3)).tolist() == [[499, 500, 501]]


def test_an_unseen_policy_gets_figures_in_its_warning_and_no_headline():
    # The policy takes the one action that state 1 never shows, everywhere.
    data = logged(np.ones(2000, int), np.zeros(2000, int), number_of_actions=2)
    covered = cover([0.0, 1.0], data)
    assert covered.share_unseen == 1
    assert covered.effective_sample_size < 1
    assert not covered.enough
    assert "100.0% of its actions" in covered.warnings[0]
    assert "2000 rows are worth about 0" in covered.warnings[0]
    assert "too little for a headline number" in covered.warnings[1]


def test_discrete_actions_at_continuous_observations():
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(5000, 2))
    right = observations[:, 0] > 0
    # Action 1 with probability 0.8 on the right and 0.2 on the left; action 2 never.
    actions = (generator.random(5000) < np.where(right, 0.8, 0.2)).astype(int)
    data = logged(observations, actions, number_of_actions=3)

    def against(x):
        return np.where(x[:, 0] > 0, 0, 1)

    # Weights 1 / 0.2, so 1000 rows. Frequencies among 50 neighbours have a standard deviation of
    # 0.057, which raises 1 / m by about 8 %; near the border they are mixed.
    covered = cover(against, data)
    assert covered.share_unseen == 0
    assert covered.effective_sample_size == pytest.approx(1000, rel=0.2)
    unseen = cover([0.25, 0.25, 0.5], data)
    assert unseen.share_unseen == pytest.approx(0.5)
    assert not cover([0.0, 0.0, 1.0], data).enough


def continuous(seed=0, rows=4000):
    generator = np.random.default_rng(seed)
    observations = generator.normal(size=(rows, 2))
    actions = observations[:, :1] + generator.normal(size=(rows, 1))
    return logged(observations, actions)


def around(shift, std=1.0):
    return Normal(lambda x: (x[:, :1] + shift, np.array([std])))


def test_the_logging_policy_covers_itself_with_continuous_actions():
    covered = cover(around(0.0), continuous())
    # 1 % by construction; 16 draws at 4096 places give it to within 0.005.
    assert covered.share_unseen == pytest.approx(0.01, abs=0.005)
    assert covered.effective_sample_size > 0.7 * 4000
    assert covered.enough
    assert covered.warnings == ()


def test_a_farther_policy_is_covered_less():
    data = continuous()
    covered = [cover(around(shift), data) for shift in (0.0, 1.0, 2.0, 3.0)]
    sizes = [each.effective_sample_size for each in covered]
    shares = [each.share_unseen for each in covered]
    assert sizes == sorted(sizes, reverse=True)
    assert shares == sorted(shares)
    far = cover(around(30.0), data)
    assert far.share_unseen == 1
    assert far.effective_sample_size == 0
    assert not far.enough


def test_half_of_the_states_unseen():
    covered = cover(
        lambda x: x[:, :1] + np.where(x[:, 1:] > 0, 30.0, 0.0),
        continuous(),
    )
    # Half of 4096 places: three standard deviations are 0.024.
    assert covered.share_unseen == pytest.approx(0.5, abs=0.03)


def test_continuous_actions_in_discrete_states():
    generator = np.random.default_rng(1)
    states = np.tile([0, 1], 1000)
    data = logged(states, states[:, None] * 10 + generator.normal(size=(2000, 1)))
    assert cover(lambda s: 10.0 * s[:, None], data).share_unseen == 0
    assert cover(lambda s: 10.0 - 10.0 * s[:, None], data).share_unseen == 1


def test_rows_of_weight_zero_show_nothing():
    states, actions = np.zeros(400, int), np.tile([0, 1], 200)
    data = logged(states, actions, weights=1.0 - actions)
    assert cover([0.5, 0.5], data).share_unseen == pytest.approx(0.5)


def test_a_bandit_is_asked_at_initial_observations():
    rows = 200
    data = Dataset(
        observations=np.zeros(rows, int),
        actions=np.tile([0, 0, 1, 0], rows // 4),
        rewards=np.zeros(rows),
        terminations=np.ones(rows, bool),
    )
    # 1 / 0.25, with one row of prior in 200.
    assert cover([0.0, 1.0], data).effective_sample_size == pytest.approx(50, rel=0.01)


def test_little_data_is_not_enough():
    states = np.zeros(20, int)
    data = logged(states, np.tile([0, 1], 10))
    covered = cover([0.5, 0.5], data)
    assert isinstance(covered, Coverage)
    assert covered.effective_sample_size == pytest.approx(20)
    assert not covered.enough


def test_tables_of_other_data_are_refused():
    data = two_states()
    table = ActionTable(np.zeros((3, 1), int), np.ones((3, 1)))
    with pytest.raises(PolicyError, match="expected tables of 2000 and 100 rows"):
        coverage(data, table, table)
