"""Each way to state a policy becomes the right table, or an error that says what to change."""

import functools

import numpy as np
import pytest

from fle.errors import PolicyError, SettingsError
from fle.policies import (
    Deterministic,
    Normal,
    Probabilities,
    RowProbabilities,
    Stochastic,
    tabulate,
)

OBSERVATIONS = np.linspace(-1, 1, 14, dtype=np.float32).reshape(7, 2)
STATES = np.array([0, 2, 1, 2, 0, 1, 2])


def discrete(policy, observations=OBSERVATIONS, **settings):
    return tabulate(policy, observations, number_of_actions=3, action_dim=None, **settings)


def continuous(policy, action_dim=2, **settings):
    return tabulate(policy, OBSERVATIONS, number_of_actions=None, action_dim=action_dim, **settings)


def uniform(observations):
    return np.full((len(observations), 3), 1 / 3)


def by_first_feature(observations):
    return (observations[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    "policy", [uniform, Probabilities(uniform), np.full(3, 1 / 3), [1 / 3] * 3]
)
def test_a_uniform_policy_stays_uniform(policy):
    table = discrete(policy)
    assert table.candidates == 3
    np.testing.assert_array_equal(table.actions, np.tile([0, 1, 2], (7, 1)))
    np.testing.assert_allclose(table.probabilities, 1 / 3)


@pytest.mark.parametrize("policy", [by_first_feature, Deterministic(by_first_feature)])
def test_a_deterministic_policy_has_one_candidate(policy):
    table = discrete(policy)
    np.testing.assert_array_equal(table.actions[:, 0], by_first_feature(OBSERVATIONS))
    np.testing.assert_array_equal(table.probabilities, np.ones((7, 1)))


def test_boolean_answers_are_actions():
    assert discrete(lambda observations: observations[:, 0] > 0).actions.dtype == np.int64


def test_one_hot_integers_count_as_probabilities_only_if_stated():
    def one_hot(observations):
        return np.eye(3, dtype=int)[by_first_feature(observations)]

    assert discrete(Probabilities(one_hot)).candidates == 3
    with pytest.raises(PolicyError, match=r"discrete actions: expected integers of shape \(n,\)"):
        discrete(one_hot)


def test_a_table_by_discrete_state():
    by_state = np.array([[1.0, 0, 0], [0, 1, 0], [0.5, 0.25, 0.25]])
    table = discrete(by_state, STATES)
    np.testing.assert_allclose(table.probabilities, by_state[STATES])


def test_the_policy_sees_states_as_they_are():
    def policy(states):
        assert states.dtype == np.int64
        assert states.ndim == 1
        return states

    np.testing.assert_array_equal(discrete(policy, STATES).actions[:, 0], STATES)


@pytest.mark.parametrize(
    "policy",
    [
        lambda observations, generator: generator.integers(3, size=len(observations)),
        Stochastic(lambda observations, generator: generator.integers(3, size=len(observations))),
    ],
)
def test_a_policy_that_draws_discrete_actions(policy):
    table = discrete(policy, np.zeros((500, 1)), draws=8)
    assert table.actions.shape == (500, 8)
    np.testing.assert_array_equal(table.probabilities, np.full((500, 8), 1 / 8))
    # 4000 draws: five standard deviations of a share of 1/3 are 0.037 (false alarms < 1e-5).
    shares = np.bincount(table.actions.ravel(), minlength=3) / 4000
    np.testing.assert_allclose(shares, 1 / 3, atol=0.037)


def test_a_policy_that_draws_continuous_actions_repeats_with_its_seed():
    def policy(observations, generator):
        return observations + generator.normal(size=observations.shape)

    table = continuous(policy, draws=5, seed=1)
    assert table.actions.shape == (7, 5, 2)
    assert len(np.unique(table.actions)) == 70
    np.testing.assert_array_equal(table.probabilities, np.full((7, 5), 0.2))
    np.testing.assert_array_equal(table.actions, continuous(policy, draws=5, seed=1).actions)
    assert (table.actions != continuous(policy, draws=5, seed=2).actions).all()


def test_continuous_deterministic_actions():
    np.testing.assert_array_equal(continuous(lambda x: 2 * x).actions[:, 0], 2 * OBSERVATIONS)
    flat = continuous(lambda x: x[:, 0], action_dim=1)
    np.testing.assert_array_equal(flat.actions[:, 0], OBSERVATIONS[:, :1])
    assert continuous(lambda x: np.ones(x.shape, int)).actions.dtype == np.float64


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_batches_make_no_difference(batch_size):
    sizes = []

    def policy(observations):
        sizes.append(len(observations))
        scores = np.exp(observations @ np.ones((2, 3)) * [1, 2, 3])
        return scores / scores.sum(axis=1, keepdims=True)

    table = discrete(policy, batch_size=batch_size)
    assert max(sizes) <= batch_size
    np.testing.assert_allclose(table.probabilities, discrete(policy).probabilities)


def test_a_policy_that_writes_to_its_input_leaves_the_data_alone():
    def policy(observations):
        observations *= 0
        return by_first_feature(observations)

    before = OBSERVATIONS.copy()
    discrete(policy)
    np.testing.assert_array_equal(OBSERVATIONS, before)


def test_callables_of_every_sort_are_understood():
    class Agent:
        def __call__(self, observations):
            return by_first_feature(observations)

    def configured(observations, threshold=0.0):
        return (observations[:, 0] > threshold).astype(int)

    expected = discrete(by_first_feature).actions
    for policy in (Agent(), configured, functools.partial(configured, threshold=0.0)):
        np.testing.assert_array_equal(discrete(policy).actions, expected)
    np.testing.assert_array_equal(discrete(lambda *args: by_first_feature(*args)).actions, expected)
    # A ufunc hides its signature.
    np.testing.assert_array_equal(discrete(np.abs, STATES).actions[:, 0], STATES)


def fails(observations):
    raise KeyError("no such layer")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            lambda x: np.ones((len(x), 2)) / 2,
            r"expected shape \(n, 3\) for 3 actions, got \(7, 2\)",
        ),
        (lambda x: np.ones((len(x), 3)), r"row 0 sums to 3; expected 1 .*softmax"),
        (lambda x: np.tile([1.5, -0.5, 0], (len(x), 1)), "row 0, action 1 is -0.5"),
        (lambda x: np.tile([np.nan, 1, 0], (len(x), 1)), "row 0, action 0 is nan"),
        (lambda x: np.zeros(len(x)), r"expected integers of shape \(n,\).*astype\(int\)"),
        (lambda x: np.zeros((len(x), 1), int), r"got int64 of shape \(7, 1\); use .ravel"),
        (Deterministic(lambda x: np.zeros(len(x))), r"astype\(int\)"),
        (lambda x: np.arange(len(x)), "row 3 is 3; expected 0 to 2"),
        (lambda x: -np.arange(len(x)), "row 1 is -1; expected 0 to 2"),
        (lambda x: np.zeros(2, int), r"answered shape \(2,\) for 7 observations"),
        (lambda x: 1, r"answered shape \(\) for 7 observations"),
        (lambda x: None, "answered None of dtype object"),
        (lambda x: ["left"] * len(x), "classes are .left., but the actions of the data are 0 to"),
        (lambda x: [[1], [1, 2]], "answered list for rows 0 to 6"),
        (Stochastic(lambda x, generator: np.zeros(len(x))), r"astype\(int\)"),
        (fails, "failed on rows 0 to 6.*KeyError: 'no such layer'"),
        (lambda x, y, z: x, r"takes \(observations\) or \(observations, generator\)"),
        (lambda: 0, r"takes \(observations\)"),
        (lambda x, *, seed: x, r"takes \(observations\)"),
        ("policy.onnx", "a function of observations or an array .* 'policy.onnx' .str."),
        (None, "a function of observations or an array"),
        (0.5, "a function of observations or an array"),
        ([[1], [1, 2]], "a function of observations or an array"),
        (np.full((7, 3), 1 / 3), r"shape \(7, 3\) does not fit .*RowProbabilities"),
        (np.array([0.5, 0.5]), r"expected shape \(n, 3\) for 3 actions"),
        (RowProbabilities(np.ones((7, 3)), np.ones((1, 3))), "use tabulated"),
    ],
)
def test_discrete_policies_that_cannot_be_used(policy, message):
    with pytest.raises(PolicyError, match=message):
        discrete(policy)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda x: x[:, :1], r"expected shape \(n, 2\) for continuous.*got \(7, 1\)"),
        (lambda x: x[:, 0], r"expected shape \(n, 2\) for continuous.*got \(7,\)"),
        (lambda x: np.where(x > 0.9, np.inf, x), "row 6 is inf; expected a finite action"),
        (Probabilities(uniform), "the actions are continuous, of width 2"),
        (np.full(3, 1 / 3), "the actions are continuous, of width 2"),
    ],
)
def test_continuous_policies_that_cannot_be_used(policy, message):
    with pytest.raises(PolicyError, match=message):
        continuous(policy)


def test_a_failure_names_its_batch_and_keeps_its_cause():
    def fails_late(observations):
        if observations[0, 0] > 0:
            raise ZeroDivisionError("division")
        return np.zeros(len(observations), int)

    with pytest.raises(PolicyError, match="failed on rows 4 to 5") as caught:
        discrete(fails_late, batch_size=2)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_answers_must_keep_their_width_between_batches():
    widths = iter([3, 2])
    with pytest.raises(PolicyError, match="expected the same width throughout"):
        discrete(lambda x: np.ones((len(x), next(widths))), batch_size=6)


def test_rows_are_named_across_batches():
    with pytest.raises(PolicyError, match="row 6 is 9"):
        discrete(lambda x: np.where(x[:, 1] == 1, 9, 0), batch_size=2)


def test_a_table_by_state_must_cover_the_states():
    with pytest.raises(PolicyError, match=r"2 rows but the data has state 2.*at least 3"):
        discrete(np.full((2, 3), 1 / 3), STATES)
    with pytest.raises(PolicyError, match="state 1 sums to 0"):
        discrete(np.array([[1.0, 0, 0], [0, 0, 0], [1, 0, 0]]), STATES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"draws": 0}, "draws"), ({"seed": -1}, "seed"), ({"batch_size": 1.5}, "batch_size")],
)
def test_settings_outside_their_range(settings, message):
    with pytest.raises(SettingsError, match=f"{message}: expected an integer"):
        discrete(uniform, **settings)


def test_the_action_space_is_given_once():
    for sizes in ((None, None), (3, 2)):
        with pytest.raises(SettingsError, match="number_of_actions"):
            tabulate(uniform, OBSERVATIONS, number_of_actions=sizes[0], action_dim=sizes[1])


def test_no_observations():
    with pytest.raises(PolicyError, match="no observations"):
        discrete(uniform, OBSERVATIONS[:0])


@pytest.mark.parametrize("std", [0.5, [0.5, 0.5], np.full((1, 2), 0.5), np.full((7, 2), 0.5)])
def test_a_std_may_be_the_same_everywhere(std):
    expected = continuous(Normal(lambda x: (x[:, :2], np.full((len(x), 2), 0.5))), draws=3)
    table = continuous(Normal(lambda x: (x[:, :2], std)), draws=3)
    np.testing.assert_array_equal(table.actions, expected.actions)


def test_a_mean_and_std_that_do_not_fit():
    for function, message in (
        (lambda x: (x[:, :2], np.ones(3)), r"got \(7, 2\) and \(3,\)"),
        (lambda x: (x[:, :1], np.ones(1)), r"expected shape \(n, 2\).*got \(7, 1\)"),
        (lambda x: (x[:, :2], np.zeros(2)), "std: row 0, column 0 is 0.0; expected a positive"),
    ):
        with pytest.raises(PolicyError, match=message):
            continuous(Normal(function))
