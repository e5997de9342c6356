"""Importance sampling: right within its standard errors, and these are right themselves."""

import warnings

import numpy as np
import pytest
from tabular_logs import BEYOND, CHANCES, MODEL, SUPPORT, TARGET, logged, planned, scores, truths

import fle
from fle import baselines
from fle.errors import DataError, ModelError, PolicyError
from fle.policies import Behaviour, Normal
from fle.returns import risk

ESTIMATORS = (
    baselines.importance_sampling,
    baselines.weighted_importance_sampling,
    baselines.per_decision_importance_sampling,
    baselines.weighted_per_decision_importance_sampling,
)


@pytest.fixture(scope="module")
def many():
    """The weighted episodes of a large log."""
    return baselines.WeightedEpisodes.of(planned(20_000, seed=0))


@pytest.fixture(scope="module")
def few():
    """Sixty small logs of the same kind."""
    return [baselines.WeightedEpisodes.of(planned(300, seed=seed)) for seed in range(1, 61)]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_agrees_with_the_exact_answer(estimator, many):
    found = estimator(many)
    # Twelve figures in all: a false alarm in about 1,200.
    assert max(abs(score) for score in scores(found).values()) < BEYOND
    # The law itself: its CDF at every return, by its own standard error.
    for threshold in SUPPORT[2:-2]:
        truth = CHANCES[threshold >= SUPPORT].sum()
        value, error = found.cdf(threshold)
        assert abs(value - truth) < BEYOND * max(error, 1e-3)
        assert found.returns.cdf(threshold) == pytest.approx(value, abs=0.02)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_standard_errors_are_what_estimates_scatter_by(estimator, few):
    table = np.array([list(scores(estimator(log)).values()) for log in few])
    # The variance of 60 normal scores, times 60, is chi-square of 59: within (0.55, 1.52)² but for
    # one in 10,000 each; scores of heavy-tailed estimates at 300 episodes are a little wider.
    spread = table.std(axis=0, ddof=1)
    assert np.all((spread > 0.55) & (spread < 1.7)), spread
    assert np.all(np.abs(table.mean(axis=0)) < 0.7), table.mean(axis=0)


def test_estimated_propensities_do_as_well():
    found = baselines.weighted_importance_sampling(planned(5_000, seed=3, propensities=False))
    assert max(abs(score) for score in scores(found).values()) < BEYOND
    assert "counts" in found.remarks[0]


def test_the_policy_that_logged_the_data_has_equal_weights():
    data = logged(200, seed=0)
    with pytest.warns(fle.FLEWarning, match="no next action"):
        plan = fle.plan(data, Behaviour(), horizon=5, model=MODEL, rows="all")
    found = baselines.weighted_importance_sampling(plan)
    earned = data.observed_returns(1.0, 5)[0][:, 0]
    assert found.effective_size == 200
    assert found.mean().value == pytest.approx(earned.mean())
    assert found.mean().standard_error == pytest.approx(earned.std(ddof=1) / np.sqrt(200))


@pytest.fixture(scope="module")
def by_hand():
    """Three episodes of one or two steps; the target takes action 1 with probability 3/4."""
    data = fle.Dataset(
        observations=[0, 0, 0, 0],
        actions=[1, 1, 0, 1],
        rewards=[1.0, 2.0, 5.0, 7.0],
        next_observations=[0, 0, 0, 0],
        terminations=[False, True, True, True],
        episodes=[0, 0, 1, 2],
        propensities=[0.5, 0.5, 0.5, 0.5],
        number_of_actions=2,
    )
    with warnings.catch_warnings():
        # Four rows are few, as it says; the figures are worked out by hand.
        warnings.simplefilter("ignore", fle.FLEWarning)
        return fle.plan(data, [0.25, 0.75], horizon=2, model=MODEL, rows="all")


def test_weights_are_products_of_ratios(by_hand):
    # Ratios are 3/2 for action 1 and 1/2 for action 0; returns are 3, 5 and 7.
    weights, returns = np.array([2.25, 0.5, 1.5]), np.array([3.0, 5.0, 7.0])
    plain = baselines.importance_sampling(by_hand)
    assert plain.mean().value == pytest.approx((weights * returns).mean())
    assert plain.effective_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    weighted = baselines.weighted_importance_sampling(by_hand)
    assert weighted.mean().value == pytest.approx(np.average(returns, weights=weights))
    # 3/2 · 1 + 9/4 · 2, 1/2 · 5 and 3/2 · 7.
    decided = baselines.per_decision_importance_sampling(by_hand)
    assert decided.mean().value == pytest.approx((1.5 + 4.5 + 2.5 + 10.5) / 3)
    # Weights at the second step count the episodes that are over: 9/4, 1/2, 3/2.
    both = baselines.weighted_per_decision_importance_sampling(by_hand)
    first, second = np.array([1.5, 0.5, 1.5]), weights
    expected = first @ [1.0, 5.0, 7.0] / first.sum() + second[0] * 2.0 / second.sum()
    assert both.mean().value == pytest.approx(expected)


def test_figures_of_a_weighted_sample_are_their_definitions(by_hand):
    found = baselines.weighted_importance_sampling(by_hand)
    weights, returns = np.array([2.25, 0.5, 1.5]), np.array([3.0, 5.0, 7.0])
    # Mass 4.25: the worst half, 2.125, is all of the return 3; the worst 60%, 2.55, has 0.3 of 5.
    assert found.cvar(0.5).value == pytest.approx(3.0)
    assert found.cvar(0.6).value == pytest.approx((2.25 * 3 + 0.3 * 5) / 2.55)
    assert found.quantile(0.6).value == 5.0
    for level in (0.1, 0.55, 0.7, 0.95):
        assert found.cvar(level).value == pytest.approx(risk.cvar(returns, level, weights))
        assert found.quantile(level).value == risk.quantile(returns, level, weights)
        with pytest.warns(fle.FLEWarning, match="draws lie in a tail"):
            cvar = found.returns.cvar(level)
        assert cvar == pytest.approx(risk.cvar(returns, level, weights))


def test_densities_of_continuous_actions():
    generator = np.random.default_rng(0)
    actions = generator.normal(size=(4_000, 1))
    data = fle.Dataset(
        observations=np.zeros((4_000, 1)),
        actions=actions,
        rewards=actions[:, 0],
        terminations=np.ones(4_000, bool),
        next_observations=np.zeros((4_000, 1)),
        propensities=np.exp(-0.5 * actions[:, 0] ** 2) / np.sqrt(2 * np.pi),
    )
    moved = Normal(lambda x: (np.full((len(x), 1), 0.5), np.ones((len(x), 1))))
    plan = fle.plan(data, moved, horizon=1, model=MODEL)
    value, error = baselines.weighted_importance_sampling(plan).mean()
    assert abs(value - 0.5) < BEYOND * error
    certain = fle.plan(data, lambda x: np.full((len(x), 1), 0.5), horizon=1, model=MODEL)
    with pytest.raises(PolicyError, match="density"):
        baselines.importance_sampling(certain)


def test_quantiles_have_an_error_from_the_density(few):
    level = 0.4
    pairs = [baselines.weighted_importance_sampling(log).quantile(level) for log in few]
    truth = risk.quantile(SUPPORT, level, CHANCES)
    # Returns are whole numbers: most logs have the true one, and no error is far from it.
    assert np.mean([value == truth for value, _ in pairs]) > 0.5
    assert all(0 <= error < 2 for _, error in pairs)


def test_without_whole_episodes_there_are_no_weights():
    data = logged(100, seed=0)
    part = fle.plan(data.subset(np.arange(1, 150)), TARGET, horizon=5, model=MODEL, rows="all")
    with pytest.raises(DataError, match="whole episodes"):
        baselines.importance_sampling(part)


def test_vector_returns_are_weighted_together():
    data = logged(300, seed=2)
    both = fle.Dataset(
        observations=data.observations,
        actions=data.actions,
        rewards=np.column_stack([data.rewards, -2 * data.rewards]),
        next_observations=data.next_observations,
        terminations=data.terminations,
        truncations=data.truncations,
        episodes=data.episodes,
        propensities=data.propensities,
        number_of_actions=2,
    )
    plan = fle.plan(both, TARGET, horizon=5, model=fle.GMM(), rows="all")
    found = baselines.weighted_importance_sampling(plan)
    assert found.returns.correlation()[0, 1] == pytest.approx(-1)
    assert found.mean(1).value == pytest.approx(-2 * found.mean(0).value)
    decided = baselines.per_decision_importance_sampling(plan)
    assert decided.mean(1).value == pytest.approx(-2 * decided.mean(0).value)
    with pytest.raises(ModelError, match="one reward at a time"):
        _ = decided.returns


def test_truths_are_of_another_policy():
    """The tests above would fail for the policy that logged the data."""
    earned = logged(20_000, seed=0).observed_returns(1.0, 5)[0][:, 0]
    error = earned.std() / np.sqrt(len(earned))
    assert abs(earned.mean() - truths()["mean"][1]) > 2 * BEYOND * error


@pytest.mark.filterwarnings("ignore::fle.errors.FLEWarning")
def test_an_episode_that_earned_nothing_returned_nothing():
    """Whatever others earned before it in the log: 0.1 has no exact form in binary."""
    data = fle.Dataset(
        observations=np.zeros((6, 1)),
        actions=np.array([0, 1, 0, 1, 0, 1]),
        rewards=np.array([0.1, 0.2, 0.0, 0.0, 0.3, 0.0]),
        terminations=np.arange(6) % 2 == 1,
        episodes=np.arange(6) // 2,
        propensities=np.full(6, 0.5),
        number_of_actions=2,
    )
    plan = fle.plan(data, lambda x: np.full((len(x), 2), 0.5), horizon=2, model=MODEL, rows="all")
    episodes = baselines.WeightedEpisodes.of(plan)
    assert episodes.before[:, 0].tolist() == [0.0, 0.1, 0.0, 0.0, 0.0, 0.3]
    assert episodes.after[2:, 0].tolist() == [0.0, 0.0, 0.3, 0.3]
    for estimator in ESTIMATORS:
        assert estimator(episodes).cdf(0.0).value == pytest.approx(1 / 3)
