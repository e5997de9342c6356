"""`fle.gate`: requirements as they are written, and decisions by confidence bounds."""

import xml.etree.ElementTree as Xml

import numpy as np
import pytest

import fle
from fle.errors import SettingsError
from fle.returns.intervals import Estimate, cheap_bootstrap
from fle.returns.measures import Requirement
from fle.trust.gate import Decision, Gate, bounds

EPISODES = 400
TABLE = fle.Gaussian(std=1.0, hidden=())
TRAINING = fle.Recipe(steps=200, batch_size=200, learning_rate=0.05, weight_decay=0.0)


def bandit(good=1.0, rewards=1):
    """Action 1 earns `good` more than action 0; both were logged equally often."""
    generator = np.random.default_rng(0)
    actions = np.arange(EPISODES) % 2
    earned = good * actions[:, None] + generator.standard_normal((EPISODES, rewards))
    return fle.Dataset(
        observations=np.zeros(EPISODES, int),
        actions=actions,
        rewards=earned,
        terminations=np.ones(EPISODES, bool),
        episodes=np.arange(EPISODES),
        number_of_actions=2,
    )


def asked(require, policy=(0.1, 0.9), data=None, **given):
    return fle.gate(
        bandit() if data is None else data,
        np.array(policy),
        require=require,
        horizon=1,
        model=TABLE,
        recipe=TRAINING,
        **given,
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cvar:0.1 >= 12", "cvar:0.1 >= 12"),
        ("loss<=0.05", "loss <= 0.05"),
        ("mean ≥ -1e3", "mean >= -1000"),
        ("mean of net revenue >= behavior", "mean of net revenue >= behaviour"),
    ],
)
def test_requirements_as_they_are_written(text, shown):
    assert str(Requirement.of(text)) == shown
    assert str(Requirement.of(shown)) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cvar:0.1", "expected MEASURE >= BOUND"),
        ("mean > 3", "expected MEASURE >= BOUND"),
        ("avg >= 3", "got 'avg'"),
        ("mean >= best", "expected a finite number or behaviour as the bound, got 'best'"),
        ("mean >= nan", "expected a finite number"),
        ("cvar:2 >= 1", "expected"),
    ],
)
def test_what_is_no_requirement_is_refused(text, said):
    with pytest.raises(SettingsError, match=said):
        Requirement.of(text)


@pytest.mark.parametrize(
    ("text", "low", "high", "answer"),
    [
        ("mean >= 1", 1.0, 2.0, "met"),
        ("mean >= 1", 0.0, 0.9, "not met"),
        ("mean >= 1", 0.9, 1.1, "undecided"),
        ("loss <= 0.1", 0.0, 0.1, "met"),
        ("loss <= 0.1", 0.11, 0.2, "not met"),
        ("loss <= 0.1", 0.05, 0.15, "undecided"),
        ("mean >= behaviour", 0.1, 0.3, "met"),
        ("mean <= behaviour", 0.1, 0.3, "not met"),
    ],
)
def test_the_bound_decides(text, low, high, answer):
    estimate = Estimate((low + high) / 2, low, high, 0.9)
    assert Decision.between(Requirement.of(text), estimate, 100).answer == answer


def test_an_undecided_answer_says_how_many_episodes_would_do():
    # A gap of 0.05 and a half width of 0.1: four times the episodes halve the width.
    found = Decision.between(Requirement.of("mean >= 1"), Estimate(1.05, 0.95, 1.15, 0.9), 100)
    assert "about 400 episodes would decide" in found.why


def test_a_policy_on_the_edge_passes_as_rarely_as_the_level_says():
    # Estimates N(1, 1) of a mean that is 1, replicates N(estimate, 1): the studentised gap has
    # Student's law exactly, so that 'mean >= 1' is met with probability 0.05. The standard error
    # of 4,000 trials is 0.0034; four of them are a false alarm in 16,000.
    generator, level = np.random.default_rng(0), bounds(0.95, 10).level
    trials = 4_000
    values = 1 + generator.standard_normal(trials)
    replicates = values[:, None] + generator.standard_normal((trials, 10))
    required = Requirement.of("mean >= 1")
    met = [
        Decision.between(required, cheap_bootstrap(value, own, level), 100).answer == "met"
        for value, own in zip(values, replicates, strict=True)
    ]
    assert np.mean(met) == pytest.approx(0.05, abs=4 * 0.0034)


def test_a_better_policy_passes_and_a_worse_one_does_not():
    # The policy earns 0.4 more than the log's equal shares; its standard error is near
    # sqrt((0.9 - 0.5)^2 * 4 / 400) = 0.04: ten of them.
    better = asked(["mean >= behaviour", "mean >= 0.5", "mean >= 5"])
    assert [one.answer for one in better.decisions] == ["met", "met", "not met"]
    assert better.answer == "not met"
    assert not better.passed
    assert asked("mean >= behaviour").passed
    worse = asked("mean >= behaviour", policy=(0.9, 0.1))
    assert worse.answer == "not met"
    # The behaviour policy held against itself: nothing tells them apart but training.
    assert "Gate: met, at level 0.95" in repr(asked("mean >= 0.5"))


def test_of_several_rewards_one_is_named_or_all_are_weighted():
    data = bandit(rewards=2)
    found = asked(["mean of reward_2 >= 0"], data=data, replicates=2)
    assert str(found.decisions[0].requirement) == "mean of reward_2 >= 0"
    summed = asked("mean >= 0", data=data, weights=[1, 1], replicates=2)
    # 0.9 of each, with a standard error near 0.15 for two replicates' fits.
    assert summed.decisions[0].estimate.value == pytest.approx(1.8, abs=0.6)
    with pytest.raises(SettingsError, match="2 rewards, reward_1, reward_2; say which"):
        asked("mean >= 0", data=data)
    with pytest.raises(SettingsError, match="got 'reward_7'"):
        asked("mean of reward_7 >= 0", data=data)


def test_where_there_is_no_estimate_nothing_is_decided():
    generator = np.random.default_rng(0)
    # The log never shows action 1, which is all the policy does.
    thin = fle.Dataset(
        observations=np.zeros(200, int),
        actions=np.zeros(200, int),
        rewards=generator.standard_normal(200),
        terminations=np.ones(200, bool),
        episodes=np.arange(200),
        number_of_actions=2,
    )
    with pytest.warns(fle.FLEWarning):
        found = asked("mean >= 0", data=thin, policy=(0.0, 1.0))
    assert found.answer == "undecided"
    assert found.evaluation is None
    assert "no estimate" in found.decisions[0].why


def test_the_junit_file_has_a_test_for_each_requirement():
    decisions = (
        Decision(Requirement.of("mean >= 1"), None, "undecided", "no <estimate>"),
        Decision(Requirement.of("loss <= 1"), None, "met", "0.2"),
    )
    suites = Xml.fromstring(Gate(decisions, 0.95, None).as_junit())  # noqa: S314
    assert suites.attrib == {"tests": "2", "failures": "1"}
    cases = list(suites.iter("testcase"))
    assert [case.get("name") for case in cases] == ["mean >= 1", "loss <= 1"]
    assert cases[0].find("failure").get("message") == "undecided: no <estimate>"
    assert cases[1].find("failure") is None


@pytest.mark.parametrize("level", [0.5, 1.0, "high"])
def test_a_bound_that_decides_nothing_is_refused(level):
    with pytest.raises(SettingsError, match="expected"):
        asked("mean >= 0", level=level)


def test_no_requirement_is_no_gate():
    with pytest.raises(SettingsError, match="at least one requirement"):
        asked([])
