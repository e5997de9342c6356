"""What `evaluate` decides, says and refuses."""

import numpy as np
import pytest
from quick_fits import TABLE, TABLE_TRAINING, bandit, cycle

import fle
from fle.errors import DataError, FLEWarning, SettingsError

BRIEF = fle.Recipe(steps=2, batch_size=20, weight_decay=0.0)


def run(data=None, **settings):
    settings = {"model": TABLE, "recipe": BRIEF, **settings}
    return fle.evaluate(cycle(100) if data is None else data, [1.0], **settings)


def planned(data=None, **settings):
    """What `run` decides before it trains, and carries into its result: nothing is compiled."""
    settings = {"model": TABLE, "recipe": BRIEF, **settings}
    return fle.plan(cycle(100) if data is None else data, [1.0], **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "neither was given"),
        ({"gamma": -0.1}, r"gamma: expected a number in \[0, 1\], got -0.1"),
        ({"gamma": 1.1}, r"gamma: expected a number in \[0, 1\], got 1.1"),
        ({"gamma": float("nan")}, r"gamma: expected a number in \[0, 1\]"),
        ({"gamma": 1.0}, "gamma = 1 without a horizon"),
        ({"horizon": 0}, "whole number of at least 1, got 0"),
        ({"horizon": 2.5}, "whole number of at least 1, got 2.5"),
        ({"horizon": 3, "stages": 3}, "stages is for discounted problems"),
        ({"gamma": 0.9, "stages": 0}, "stages: expected at least 1, got 0"),
        ({"gamma": 0.9, "rows": "step"}, "needs a horizon"),
        ({"gamma": 0.9, "rows": "every"}, 'rows: expected "all", "step" or "split", got \'every\''),
        ({"gamma": 0.9, "model": "gnm"}, "got 'gnm'. Did you mean 'gmm'"),
        ({"gamma": 0.9, "model": "xyz"}, "one of auto, autoregressive, .*; got 'xyz'.$"),
        ({"horizon": 3, "rows": "step"}, "the data has no step index"),
        ({"gamma": 0.9, "stages": 51, "rows": "split"}, "100 rows are too few"),
    ],
)
def test_errors_say_what_was_expected_and_what_came(settings, message):
    with pytest.raises(SettingsError, match=message):
        run(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"draws": 0},
        {"average": 0.0},
        {"average": 1.5},
        {"held_out": 0.0},
        {"held_out": 1.0},
        {"trace": -0.1},
        {"trace": 1.1},
        {"occupancy": 1},
        {"frame_tolerance": -1.0},
        {"schedule": "never"},
        {"learning_rate": float("inf")},
        {"weight_decay": "some"},
        {"steps": 2.5},
        {"trend": 1},
        {"scale_floor": -1.0},
        {"start": "again"},
    ],
    ids=str,
)
def test_settings_of_a_recipe_are_checked(settings):
    (name,) = settings
    with pytest.raises(SettingsError, match=f"{name}: expected"):
        fle.Recipe(**settings)


def test_gamma_with_a_horizon_is_stated_and_used():
    # 100 rows are hardly enough, and the verdict says so.
    result = run(horizon=3, gamma=0.9, recipe=TABLE_TRAINING, anyway=True)
    assert "returns are discounted by 0.9 and end after 3 steps" in result.notes
    # 1 + 0.9 + 0.81. Five rows are held out, at most one in ten of a state's, each 0.1 off: 0.03.
    # 0.02 for the fit, and 5 standard errors of 100,000 draws.
    error = 0.05 + 5 * result.returns.std() / np.sqrt(1e5)
    assert result.returns.mean() == pytest.approx(2.71, abs=error)
    assert repr(result).startswith("Evaluation(gamma=0.9, horizon=3, model=Gaussian(std=1.0")


def unending(rewards):
    """One state; every row was cut off after it, so there is no log to follow."""
    n = len(rewards)
    return fle.Dataset(
        observations=np.zeros(n, int),
        actions=np.zeros(n, int),
        rewards=rewards,
        next_observations=np.zeros(n, int),
        terminations=np.zeros(n, bool),
        truncations=np.ones(n, bool),
    )


def test_notes_state_the_number_of_stages_and_why():
    # Rewards ±1 have mean 0: nothing is missing of the first fit, which may be 2 standard
    # deviations off. 2 * 0.5^T <= 0.01 from T = 8 on, and there is the first stage.
    data = unending(np.resize([-1.0, 1.0], 100))
    result = run(data, gamma=0.5)
    (note,) = (note for note in result.notes if "stages" in note)
    assert note == (
        "9 stages: targets follow the log for 1.0 rows on average; a stage shrinks errors by 0.5, "
        "and all of them 2.0 standard deviations of the return to 0.01"
    )
    assert len(result.records) == 9
    # A discounted problem keeps only the last fit.
    assert len(result.fits) == 1
    # What a plan says is what its evaluation says.
    plan = planned(data, gamma=0.5)
    assert result.notes[: len(plan.notes)] == plan.notes
    assert len(plan.stages) == 9


def test_more_stages_where_the_return_is_large_against_its_spread():
    offset = unending(np.resize([99.0, 101.0], 100))
    # 100 * sqrt(3) standard deviations by independent rewards, 100 by the observed returns, half of
    # which comes after a row. 0.5^T * (2 + 50) <= 0.01: log2(5200) = 12.3, so 13 and the first.
    assert len(planned(offset, gamma=0.5).stages) == 14


def test_one_stage_where_the_log_is_followed_to_its_end():
    for data in (bandit(np.resize([-1.0, 1.0], 100)), cycle(100, ends="terminations")):
        plan = planned(data, gamma=0.5)
        assert "every target follows the log to its end: one stage" in plan.notes
        assert len(plan.stages) == 1


def test_fewer_stages_where_the_log_is_followed_further():
    # In a round of ten that is cut off, J is 1 to 10 rows: the mean of 0.9^J is 0.5862. Rewards of
    # mean 1 and standard deviation 0.1 have returns of 10 of it, which are missing by 0.5862.
    # log((2 + 5.862) / 0.01) / -log(0.5862) = 12.5, so 13 and the first; row by row
    # log((2 + 9) / 0.01) / -log(0.9) = 66.5.
    data = cycle(1000)
    assert len(planned(data, gamma=0.9).stages) == 14
    alone = planned(data, gamma=0.9, recipe={"trace": 0.0})
    assert len(alone.stages) == 68


def test_gamma_zero_is_one_stage():
    plan = planned(gamma=0.0)
    assert "gamma = 0: the return is the reward, one stage" in plan.notes
    assert len(plan.stages) == 1
    # One fit, not a step towards a fixed point: as with a horizon of one step.
    one_step = fle.plan(cycle(100), [1.0], horizon=1, model=TABLE)
    assert fle.plan(cycle(100), [1.0], gamma=0.0, model=TABLE).recipe == one_step.recipe
    assert fle.plan(cycle(100), [1.0], gamma=0.1, model=TABLE).recipe != one_step.recipe


def test_given_stages_are_used():
    plan = planned(gamma=0.9, stages=4)
    assert len(plan.stages) == 4
    assert any("4 stages: what the first fit has wrong is still in" in n for n in plan.notes)


def test_automatic_model_is_named():
    plan = planned(gamma=0.5, model="auto")
    assert isinstance(plan.model, fle.GMM)
    assert any(note.startswith("model: GMM") for note in plan.notes)
    # Two rewards and one step: two returns.
    assert planned(horizon=1, model="auto").model == fle.Categorical(atoms=2)


def test_batch_is_capped_at_the_rows_there_are():
    plan = planned(horizon=1, recipe=fle.Recipe(steps=2, batch_size=500, weight_decay=0.0))
    assert "batch size 100: all rows there are" in plan.notes


def test_horizon_beyond_the_longest_episode_warns_with_its_share():
    # 10 of 40 steps were seen.
    with pytest.warns(FLEWarning, match="longest logged episode has 10: 75% of the horizon"):
        plan = planned(horizon=40)
    assert any("75%" in message for message in plan.warnings)


def test_horizon_beyond_the_end_does_not_warn_where_episodes_terminate():
    assert planned(cycle(100, ends="terminations"), horizon=40).warnings == ()


def test_step_without_rows_is_an_error_with_the_range():
    data = cycle(100, ends="terminations").with_steps()
    with pytest.raises(DataError, match=r"Step 10 .* has 0 rows .* go from 0 to 9"):
        run(data, horizon=11)


def test_large_offset_warns_of_single_precision():
    rewards = 1e8 + np.random.default_rng(0).standard_normal(100)
    # How often the offset is earned is not known: episodes end when they will.
    with pytest.warns(FLEWarning, match="single precision"):
        planned(bandit(rewards), gamma=0.5)
    # Where all of them are one step long it is, and the offset is taken out.
    assert planned(bandit(rewards), horizon=1).warnings == ()


def test_initial_observations_are_needed():
    data = cycle(100)
    columns = {
        name: getattr(data, name)[::-1]
        for name in ("observations", "actions", "rewards", "next_observations")
    }
    loose = fle.Dataset(**columns, truncations=np.zeros(100, bool))
    with pytest.raises(DataError, match="no initial observations"):
        run(loose, gamma=0.5)
