"""The doubly robust estimate: right with a wrong critic, and tighter with a good one."""

from dataclasses import replace

import numpy as np
import pytest
from tabular_logs import BEYOND, MDP, MODEL, TARGET, logged, planned, scores, truths

import fle
from fle import baselines
from fle.errors import SettingsError

QUICK = fle.Recipe(steps=300, batch_size=200, learning_rate=0.05, weight_decay=0.0)


def moved(evaluation, by):
    """The same fit, whose returns are all larger by so much for each step that is left."""
    encoder = evaluation.encoder
    return replace(evaluation, encoder=replace(encoder, reward_centre=encoder.reward_centre + by))


@pytest.fixture(scope="module")
def plan():
    return planned(4_000, seed=0)


@pytest.fixture(scope="module")
def critic(plan):
    """A Gaussian of one width: its mean is nearly right, its tails are not."""
    settings = {"horizon": 5, "model": plan.model, "rows": "all", "recipe": QUICK}
    return fle.evaluate(plan.data, TARGET, **settings, interval=fle.Interval(replicates=4))


@pytest.fixture(scope="module")
def episodes(plan):
    return baselines.WeightedEpisodes.of(plan)


@pytest.mark.parametrize("bias", [0.0, 0.5, -2.0])
def test_right_whatever_the_critic_says(bias, episodes, critic):
    found = baselines.doubly_robust(episodes, moved(critic, bias))
    # Nine figures in all: a false alarm in about 1,700.
    assert max(abs(score) for score in scores(found).values()) < BEYOND
    if bias:
        # Five steps' worth: the direct method is far off.
        direct = baselines.direct_method(moved(critic, bias)).mean().value
        assert abs(direct - truths()["mean"][1]) > 1


def test_the_law_is_monotone_and_keeps_the_figures(episodes, critic):
    found = baselines.doubly_robust(episodes, critic)
    law = found.returns
    levels = law.cdf(np.linspace(-6, 11, 200))
    assert np.all(np.diff(levels) >= 0)
    assert law.mean() == pytest.approx(found.mean().value, abs=0.05)
    assert law.cvar(0.25) == pytest.approx(found.cvar(0.25).value, abs=0.1)


def test_weights_are_followed_while_there_are_enough(episodes, critic):
    sizes = episodes.weights.effective_sizes
    assert np.all(np.diff(sizes) < 0)
    least = (sizes[1] + sizes[2]) / 2
    found = baselines.doubly_robust(episodes, critic, least_effective=least)
    assert found.effective_size == pytest.approx(sizes[1])
    assert "2 of 5 steps" in found.remarks[-1]
    # The critic's mean is nearly right, and so is what rests on it after two steps.
    value, error = found.mean()
    assert abs(value - truths()["mean"][1]) < BEYOND * error + 0.1
    with pytest.raises(SettingsError, match="least_effective"):
        baselines.doubly_robust(episodes, critic, least_effective=1e9)


def test_critics_are_fitted_without_the_episodes_they_judge():
    whole = logged(600, seed=5)
    # First rows alone, so that both parts have one shape and are compiled once.
    first = np.flatnonzero(np.diff(whole.episodes, prepend=-1))
    columns = ("observations", "actions", "rewards", "next_observations", "propensities")
    data = fle.Dataset(
        **{name: getattr(whole, name)[first] for name in columns},
        terminations=np.ones(600, bool),
        number_of_actions=2,
    )
    short = fle.plan(data, TARGET, horizon=1, model=MODEL, recipe=QUICK)
    critics = baselines.Critics.cross_fitted(short, TARGET)
    assert len(critics.evaluations) == 2
    for part, evaluation in enumerate(critics.evaluations):
        assert evaluation.logged.rows == np.sum(critics.owners != part)
    truth = np.sum(MDP.initial[:, None] * TARGET * (MDP.reward_probabilities @ MDP.reward_values))
    value, error = baselines.doubly_robust(short, critics).mean()
    assert abs(value - truth) < BEYOND * error


def test_replicates_judge_the_episodes_that_they_lack(plan, critic, episodes):
    critics = baselines.Critics.out_of_bag(plan, moved(critic, 0.5))
    counts = critic.refits.counts.T
    lacked = (counts == 0).any(axis=1)
    # 1 - (1 - 1/e)^4 of 4,000 episodes, whose standard error is 0.0058: four of them.
    assert abs(lacked.mean() - 0.840) < 0.024
    assert critics.judges.any(axis=1).all()
    assert not counts[critics.judges & lacked[:, None]].any()
    found = baselines.doubly_robust(episodes, critics)
    assert max(abs(score) for score in scores(found).values()) < BEYOND


def test_a_critic_of_another_return_is_refused(plan, critic):
    other = fle.plan(plan.data, TARGET, horizon=4, model=plan.model, rows="all")
    with pytest.raises(SettingsError, match="over 4 steps"):
        baselines.doubly_robust(other, critic)


def test_episodes_that_were_cut_off_end_with_the_critic():
    """Rewards of 1 on average, cut after 2 steps: the return is 2 at gamma = 1/2."""
    steps = np.arange(400) % 2
    data = fle.Dataset(
        observations=np.zeros(400, int),
        actions=np.arange(400) // 2 % 2,
        rewards=np.where(np.arange(400) // 4 % 2, 0.9, 1.1),
        next_observations=np.zeros(400, int),
        terminations=np.zeros(400, bool),
        truncations=steps == 1,
        episodes=np.arange(400) // 2,
        propensities=np.full(400, 0.5),
        number_of_actions=2,
    )
    plan = fle.plan(
        data, [0.3, 0.7], gamma=0.5, model=fle.Gaussian(std=1.0, hidden=()), recipe=QUICK
    )
    critic = plan.carry_out()
    alone = baselines.weighted_importance_sampling(plan)
    assert alone.mean().value == pytest.approx(1.5, abs=0.01)
    assert "nothing says what follows" in alone.remarks[-1]
    for found in (
        baselines.weighted_importance_sampling(plan, critic=critic),
        baselines.per_decision_importance_sampling(plan, critic=critic),
        baselines.doubly_robust(plan, critic),
    ):
        # The critic's mean is within 0.1 of 2, and counts a quarter; its draws have width 1.
        tolerance = 0.1 + BEYOND * found.mean().standard_error
        assert abs(found.mean().value - 2.0) < tolerance
        assert "critic" in found.remarks[-1]
