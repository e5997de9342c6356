"""A log that has grown: fits go on from those of the shorter one, and what changed is said."""

import numpy as np
import pytest
from quick_fits import TABLE, TABLE_TRAINING

import fle
from fle.errors import FLEWarning, SettingsError
from fle.executors import Outcome

GAMMA, BEFORE, NOW, LENGTH = 0.8, 2000, 3000, 10
# Short episodes of noise give no reason to trust anything; here it is about where fits begin.
SETTINGS = {"second_opinions": False, "anyway": True}
NEW = {"model": TABLE, "recipe": TABLE_TRAINING, "gamma": GAMMA}


def log(rows=NOW, **changes):
    """Two states that come at random, and rewards of mean action and deviation 1."""
    generator = np.random.default_rng(0)
    states = generator.integers(0, 2, NOW + 1)
    actions = generator.integers(0, 2, NOW)
    seen = {
        "observations": states[:-1],
        "actions": actions,
        "rewards": actions + generator.standard_normal(NOW),
        "next_observations": states[1:],
        "terminations": np.zeros(NOW, bool),
        "truncations": np.arange(NOW) % LENGTH == LENGTH - 1,
        "episodes": np.arange(NOW) // LENGTH,
    }
    given = {name: values[:rows] for name, values in seen.items()}
    return fle.Dataset(number_of_actions=2, **given, **changes)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    out = tmp_path_factory.mktemp("earlier")
    fle.evaluate(log(BEFORE), [0.4, 0.6], out=out, **NEW, **SETTINGS)
    return out


@pytest.fixture(scope="module")
def grown(earlier):
    return fle.evaluate(log(), [0.4, 0.6], earlier=earlier, **SETTINGS)


def test_it_goes_on_from_the_earlier_fit(earlier, grown):
    anew = fle.plan(log(), [0.4, 0.6], **NEW)
    before = fle.load(earlier)
    assert 1 <= len(grown.records) < len(anew.stages)
    assert (grown.model, grown.gamma) == (before.model, GAMMA)
    # The mean of 3,000 rewards, of deviation 1 beside that of the actions, over 1 - gamma; fits by
    # stochastic gradients add as much again. Four such deviations: a false alarm in 15,000.
    tolerance = 4 * 2 * np.sqrt(1.25 / NOW) / (1 - GAMMA)
    assert grown.returns.mean() == pytest.approx(0.6 / (1 - GAMMA), abs=tolerance)


def test_it_says_what_changed(earlier, grown):
    notes = "\n".join(grown.notes)
    assert "1,000 more rows, 3,000 in all, 100 more episodes, 300 in all" in notes
    assert "its rows are the first of the log, unchanged" in notes
    assert f"instead of {len(fle.plan(log(), [0.4, 0.6], **NEW).stages)}" in notes
    then = fle.load(earlier).returns
    assert f"reward: mean {then.mean():.5g} then, {grown.returns.mean():.5g} now" in notes


def test_changed_rows_are_noticed(earlier):
    other = np.array(log().rewards[:, 0])
    other[5] += 1.0
    changed = log()._with({"rewards": other[:, None]})
    with pytest.warns(FLEWarning, match="first 2,000 rows of the log are not those"):
        fle.plan(changed, [0.4, 0.6], earlier=earlier)
    # A row is missing, so that all that follow are one too early.
    with pytest.warns(FLEWarning, match="not those of the earlier run"):
        fle.plan(log().subset(np.arange(1, NOW)), [0.4, 0.6], earlier=earlier)


@pytest.mark.parametrize(
    ("data", "settings", "match"),
    [
        (log(), {"gamma": 0.9}, "gamma: the earlier run has 0.8, got 0.9"),
        (log(), {"horizon": 3}, "horizon: the earlier run has None, got 3"),
        (log(), {"model": "gmm"}, "model: the earlier run has"),
        (
            log()._with(
                {
                    "observations": np.ones((NOW, 2)),
                    "next_observations": np.ones((NOW, 2)),
                    "initial_observations": np.ones((1, 2)),
                    "number_of_observations": None,
                }
            ),
            {},
            "data of another shape",
        ),
        (log(reward_names=["profit"]), {}, "rewards: the earlier run has reward; got profit"),
    ],
    ids=["gamma", "horizon", "model", "columns", "rewards"],
)
def test_another_problem_is_refused(earlier, data, settings, match):
    with pytest.raises(SettingsError, match=match):
        fle.plan(data, [0.4, 0.6], earlier=earlier, **settings)


def test_a_fit_that_is_far_off_is_made_anew(earlier):
    shifted = log()._with({"rewards": np.asarray(log().rewards) + 30.0})
    with pytest.warns(FLEWarning, match="not those of the earlier run"):
        planned = fle.plan(shifted, [0.4, 0.6], earlier=earlier)
    assert planned.warm == ()
    assert any("fitted anew" in note for note in planned.notes)


def test_with_a_horizon_stages_are_as_many_and_shorter(tmp_path):
    settings = {**NEW, "gamma": None, "horizon": 2}
    first = fle.evaluate(log(BEFORE), [0.4, 0.6], **settings, **SETTINGS)
    planned = fle.plan(log(), [0.4, 0.6], earlier=first)
    assert (planned.problem.stages, planned.recipe.steps) == (2, TABLE_TRAINING.steps // 2)
    # The next one has not a quarter.
    second = fle.evaluate(log(), [0.4, 0.6], earlier=first, **SETTINGS)
    again = fle.plan(log(), [0.4, 0.6], earlier=second)
    assert again.recipe.steps == TABLE_TRAINING.steps // 2


def test_it_can_be_a_job(earlier, grown, tmp_path):
    from fle.executors import work

    class Here:
        folder, shared = tmp_path, False

        def run(self, written):
            for number in range(len(written.jobs)):
                yield Outcome(number, work(str(written.path), number))

    found = fle.evaluate(log(), [0.4, 0.6], earlier=earlier, executor=Here(), **SETTINGS)
    assert np.array_equal(found.returns.samples, grown.returns.samples)
    assert found.notes == grown.notes
