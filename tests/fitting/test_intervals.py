"""Intervals: the cheap bootstrap over episodes, and where they are shown and kept."""

import numpy as np
import pytest
from quick_fits import TABLE, TABLE_TRAINING

import fle
from fle.errors import SettingsError
from fle.fitting.replicates import Resampling
from fle.returns.intervals import Interval, cheap_bootstrap

EPISODES, REPLICATES = 300, 20


def log(length=1, seed=0):
    """Episodes of equal steps that earn N(0, 1) / length each, whatever is done."""
    rows = EPISODES * length
    generator = np.random.default_rng(seed)
    return fle.Dataset(
        observations=np.zeros(rows, int),
        actions=np.arange(rows) % 2,
        rewards=generator.standard_normal(rows) / length,
        next_observations=np.zeros(rows, int),
        terminations=np.arange(rows) % length == length - 1,
        episodes=np.arange(rows) // length,
        number_of_actions=2,
    )


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    result = fle.evaluate(
        log(),
        [0.5, 0.5],
        horizon=1,
        model=TABLE,
        recipe=TABLE_TRAINING,
        interval=Interval(0.9, replicates=REPLICATES),
        out=out,
    )
    return result, out


def test_the_formula_by_hand():
    # Deviations 3, 1, -1, -1: mean square 3. Student's t with 4 degrees of freedom, 95%: 2.1318.
    found = cheap_bootstrap(2.0, [5.0, 3.0, 1.0, 1.0], level=0.9)
    half = 2.1318 * np.sqrt(3.0)
    assert found.ends == pytest.approx((2.0 - half, 2.0 + half), abs=1e-3)


def test_whole_episodes_are_resampled():
    data = log(length=3)
    resampling = Resampling.of(data)
    counts = resampling.counts(0, 1, ())
    assert counts.sum() == EPISODES
    # Each is drawn as Poisson(1) nearly: a share exp(-1) is not, with a standard error of 0.02.
    assert np.mean(counts == 0) == pytest.approx(np.exp(-1), abs=0.1)
    weights = resampling.row_weights(counts, None).reshape(EPISODES, 3)
    assert np.all(weights == counts[:, None])
    assert np.array_equal(counts, resampling.counts(0, 1, ()))
    assert not np.array_equal(counts, resampling.counts(0, 2, ()))


def test_the_interval_is_as_wide_as_means_scatter(evaluation):
    found = evaluation[0].interval("mean")
    # The mean of 300 rewards has a standard error of 1/sqrt(300). Twenty replicates know it up to
    # 16%, and 100,000 draws of each add little: within (0.45, 1.65) but once in 2,000.
    error = (found.high - found.low) / 2 / 1.7247
    assert 0.45 < error * np.sqrt(EPISODES) < 1.65
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(evaluation[0].returns.mean())


def test_every_question_has_an_interval(evaluation):
    result = evaluation[0]
    assert result.interval("cvar:0.1").level == 0.9
    wider, usual = result.interval("mean", 0.99), result.interval("mean")
    assert wider.high - wider.low > usual.high - usual.low
    chance = result.interval("below:-10")
    assert (chance.low, chance.high) == (0.0, 0.0)
    assert result.at(0, 1).interval("std").low > 0
    assert "90% intervals from 20 fits, each to resampled episodes" in repr(result.intervals)


def test_saved_runs_keep_them(evaluation):
    result, out = evaluation
    assert fle.load(out).interval("cvar:0.1") == result.interval("cvar:0.1")


def test_the_report_shows_them(evaluation, tmp_path):
    evaluation[0].report(tmp_path / "page.html")
    assert "90%" in (tmp_path / "page.html").read_text()


def test_without_them_nothing_is_resampled():
    result = fle.evaluate(log(), [0.5, 0.5], horizon=1, model=TABLE, recipe=TABLE_TRAINING)
    assert result.intervals is None
    with pytest.raises(SettingsError, match=r"interval=0\.9"):
        result.interval("mean")


def test_a_log_of_one_episode_says_why_there_are_none():
    columns = {
        "observations": np.zeros(40, int),
        "actions": np.arange(40) % 2,
        "rewards": np.random.default_rng(0).standard_normal(40),
        "next_observations": np.zeros(40, int),
        "terminations": np.arange(40) == 39,
        "episodes": np.zeros(40, int),
        "number_of_actions": 2,
    }
    with pytest.warns(fle.FLEWarning, match="one episode"):
        data = fle.Dataset(**columns)
    planned = fle.plan(data, [0.5, 0.5], gamma=0.5, interval=0.9)
    assert planned.interval is None
    assert any("one episode" in text for text in (*planned.notes, *planned.warnings))


@pytest.mark.parametrize("level", [0, 1, 90, "all", True])
def test_a_level_is_a_share(level):
    with pytest.raises(SettingsError, match="interval"):
        fle.plan(log(), [0.5, 0.5], horizon=1, interval=level)


def test_differences_have_the_same_resampled_episodes():
    compared = fle.compare(
        log(),
        {"even": [0.5, 0.5], "same": [0.5, 0.5], "first": [1.0, 0.0]},
        horizon=1,
        model=TABLE,
        recipe=TABLE_TRAINING,
        interval=Interval(0.9, replicates=4),
    )
    apart = compared.interval("even", "first")
    alone = compared.evaluations["even"].interval("mean")
    nothing = compared.interval("even", "same")
    # Two equal policies share fits and episodes: what is left is the chance of draws.
    assert nothing.high - nothing.low < 0.3 * (alone.high - alone.low)
    assert apart.low < apart.value < apart.high
