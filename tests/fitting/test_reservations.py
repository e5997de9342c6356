"""What a fit and a plan say against themselves."""

import numpy as np
import pytest

import fle
from fle.fitting.measurement import StageRecord
from fle.fitting.remarks import lost_tail, unsettled


def records(means, spread=1.0):
    """One stage a mean, of constant spread."""
    return [
        StageRecord(
            stage=number + 1,
            step=None,
            discount=0.9,
            loss=0.0,
            held_out_loss=0.0,
            mean=np.array([mean]),
            std=np.array([spread]),
            cvar=np.array([mean - 1.5 * spread]),
            seconds=0.0,
        )
        for number, mean in enumerate(means)
    ]


def test_a_fit_that_still_drifts_says_so_with_the_figure():
    drifting = np.linspace(0, 4, 100)
    (remark,) = unsettled(records(drifting))
    # Ten stages further on, at 4/99 a stage.
    assert "not settled" in remark
    assert f"mean moved by {10 * 4 / 99:.2f}" in remark


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_settled_fit_says_nothing_in_any_unit(scale):
    noise = 0.02 * np.random.default_rng(0).standard_normal(100)
    assert unsettled(records(scale * (3 + noise), scale)) == ()


def test_wandering_about_one_place_is_no_drift():
    noise = 0.3 * np.random.default_rng(1).standard_normal(100)
    assert unsettled(records(noise)) == ()


def test_few_stages_cannot_tell():
    assert unsettled(records(np.arange(20.0))) == ()


def test_a_fit_without_the_rare_loss_says_so():
    generator = np.random.default_rng(0)
    logged = generator.standard_normal((32_768, 1))
    logged[: 32_768 // 250] -= 50
    (remark,) = lost_tail(logged, generator.standard_normal((32_768, 1)) * 0.9, 32_768)
    assert "lower tail" in remark


def test_a_fit_of_the_same_law_has_its_tails():
    generator = np.random.default_rng(0)
    logged, drawn = generator.standard_t(3, (2, 32_768, 2))
    assert lost_tail(logged, drawn, 32_768) == ()


def test_ties_at_the_end_are_no_tail():
    generator = np.random.default_rng(0)
    clicks = generator.integers(0, 2, (8_192, 1)).astype(float)
    drawn = clicks + 0.01 * generator.standard_normal(clicks.shape)
    assert lost_tail(clicks, drawn, 8_192) == ()


def test_a_tail_of_few_rows_tells_nothing():
    generator = np.random.default_rng(0)
    logged = generator.choice(generator.standard_normal(100), (8_192, 1))
    assert lost_tail(logged, np.zeros_like(logged), 100) == ()


def log(**changes):
    generator = np.random.default_rng(0)
    observations = generator.standard_normal((200, 2))
    columns = {
        "observations": observations,
        "actions": generator.integers(0, 2, 200),
        "rewards": observations[:, 0],
        "next_observations": observations[::-1].copy(),
        "terminations": np.arange(200) % 10 == 9,
        "initial_observations": observations[:20],
    }
    return fle.Dataset(**{**columns, **changes})


def test_starts_outside_the_log_are_counted_and_named():
    far = np.array([[1000.0, 0.0], [0.0, 0.0]])
    data = log(initial_observations=far, observation_names=("pulse", "age"))
    with pytest.warns(fle.FLEWarning, match=r"1 of 2 initial observations \(50.0%\).*pulse: 0 to"):
        fle.plan(data, np.array([0.5, 0.5]), gamma=0.5)


def test_next_observations_outside_the_log_are_told():
    moved = log().next_observations + 100.0
    with pytest.warns(fle.FLEWarning, match=r"180 of 180 next observations.*observation 0"):
        fle.plan(log(next_observations=moved), np.array([0.5, 0.5]), gamma=0.5)


def test_unseen_states_are_told():
    states = np.random.default_rng(0).integers(0, 5, 200)
    data = log(
        observations=states,
        next_observations=states[::-1].copy(),
        initial_observations=np.array([7, 1]),
    )
    with pytest.warns(fle.FLEWarning, match=r"1 of 2 initial observations.*states 7"):
        fle.plan(data, np.array([0.5, 0.5]), gamma=0.5)


def test_a_log_that_holds_its_own_starts_says_nothing():
    planned = fle.plan(log(), np.array([0.5, 0.5]), gamma=0.5)
    assert not any("outside" in remark for remark in planned.warnings)


QUICK = {"steps": 20, "held_out": 0.1}


def test_policies_of_one_step_share_the_fit():
    ends = np.ones(200, bool)
    policies = {"first": np.array([1.0, 0.0]), "second": np.array([0.0, 1.0])}
    data = log(terminations=ends)
    compared = fle.compare(data, policies, horizon=1, model=fle.GMM(2, ()), recipe=QUICK)
    first, second = compared.evaluations.values()
    assert second.fits is first.fits
    alone = fle.evaluate(data, policies["second"], horizon=1, model=fle.GMM(2, ()), recipe=QUICK)
    np.testing.assert_array_equal(
        alone.returns.sample(100, seed=0), second.returns.sample(100, seed=0)
    )
    assert any("shared" in note for note in second.notes)
