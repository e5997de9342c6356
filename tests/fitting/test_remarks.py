"""Warnings about the data that an evaluation carries."""

import dataclasses

import numpy as np
import pytest
from quick_fits import TABLE

import fle
from fle.errors import CoverageError
from fle.fitting.remarks import explained_by, heard, tail_index

QUICK = fle.Recipe(steps=10, batch_size=50, weight_decay=0.0)


def bandit(rewards: np.ndarray) -> fle.Dataset:
    n = len(rewards)
    return fle.Dataset(
        observations=np.zeros((n, 1)) + np.arange(n)[:, None] % 7,
        actions=np.zeros(n, int),
        rewards=rewards,
        next_observations=np.zeros((n, 1)),
        terminations=np.ones(n, bool),
        number_of_actions=1,
        initial_observations=np.zeros((5, 1)),
    )


def evaluate(rewards: np.ndarray) -> fle.Evaluation:
    return fle.evaluate(bandit(rewards), np.ones(1), horizon=1, model=TABLE, recipe=QUICK)


def test_returns_that_are_always_zero_are_a_point_mass():
    with pytest.warns(fle.FLEWarning, match="reward is 0 in every row: its return is a point mass"):
        result = evaluate(np.zeros(100))
    assert any("point mass" in warning for warning in result.warnings)


def episodes_of(length: int, **changes: object) -> dict[str, object]:
    """Fifty episodes, each of which earns one a step and ends after as many steps."""
    generator, rows = np.random.default_rng(0), 50 * length
    return {
        "observations": generator.standard_normal((rows, 2)),
        "actions": np.zeros(rows, int),
        "rewards": np.ones(rows),
        "terminations": np.arange(rows) % length == length - 1,
        "number_of_actions": 1,
        **changes,
    }


POINT_MASS = "reward is 1 in every row: its return is a point mass"


def unequal() -> np.ndarray:
    """Ends of episodes of 1, 2, ..., 19 steps."""
    ends = np.zeros(190, bool)
    ends[np.cumsum(np.arange(1, 20)) - 1] = True
    return ends


@pytest.mark.filterwarnings("ignore::fle.errors.FLEWarning")
@pytest.mark.parametrize(
    ("changes", "settings", "is_one"),
    [
        # Ends that only the time tells are guessed, and the estimate is spread over them.
        ({}, {"gamma": 0.9}, False),
        ({}, {"horizon": 3, "rows": "all"}, False),
        ({}, {"horizon": 10}, True),
        ({"terminations": unequal()}, {"gamma": 0.9}, False),
        ({"terminations": unequal()}, {"horizon": 19}, False),
        # What is cut off goes on, and earns the same for ever.
        ({"terminations": None, "truncations": unequal()}, {"gamma": 0.9}, True),
        ({"observations": np.tile(np.arange(10.0), 19)[:, None]}, {"gamma": 0.9}, True),
    ],
)
def test_a_point_mass_is_announced_only_where_the_return_is_one(changes, settings, is_one):
    equal = np.arange(190) % 10 == 9
    columns = {
        "observations": np.random.default_rng(0).standard_normal((190, 2)),
        "actions": np.zeros(190, int),
        "rewards": np.ones(190),
        "terminations": equal,
        "number_of_actions": 1,
        **changes,
    }
    data = fle.Dataset(**{name: value for name, value in columns.items() if value is not None})
    remarks = fle.plan(data, np.ones(1), **settings).warnings
    announced = any(POINT_MASS in remark for remark in remarks)
    assert announced == is_one


def test_an_end_that_time_decides_is_learned_by_step():
    data = fle.Dataset(**episodes_of(4))
    training = fle.Recipe(steps=200, batch_size=50, weight_decay=0.0)
    with pytest.warns(fle.FLEWarning, match="reward is 1 in every row: its return is a point mass"):
        result = fle.evaluate(data, np.ones(1), horizon=4, model=TABLE, recipe=training)
    assert any("terminates after 4 steps, which is the horizon" in note for note in result.notes)
    # Every return is 4; were rows used at all steps, a quarter of them would end at each.
    assert result.returns.mean() == pytest.approx(4, abs=0.1)


def test_an_end_that_time_decides_is_said_where_it_is_not_the_horizon():
    rewards = np.random.default_rng(1).standard_normal(200)
    data = fle.Dataset(**episodes_of(4, rewards=rewards))
    for problem in ({"gamma": 0.5}, {"horizon": 3}, {"horizon": 4, "rows": "all"}):
        with pytest.warns(fle.FLEWarning, match="terminates after exactly 4 steps"):
            fle.plan(data, np.ones(1), model=TABLE, recipe=QUICK, **problem)
    truncated = fle.Dataset(
        **episodes_of(4, rewards=rewards, terminations=np.zeros(200, bool)),
        truncations=np.arange(200) % 4 == 3,
        episodes=np.arange(200) // 4,
        next_observations=np.roll(data.observations, -1, axis=0),
    )
    plan = fle.plan(truncated, np.ones(1), horizon=4, model=TABLE, recipe=QUICK)
    assert not any("terminates after" in text for text in (*plan.warnings, *plan.notes))


def test_actions_that_were_never_logged_are_said_in_python_too(tmp_path):
    generator = np.random.default_rng(0)
    data = fle.Dataset(**episodes_of(1, rewards=generator.standard_normal(50), number_of_actions=2))
    with (
        pytest.warns(fle.FLEWarning, match="hardly shows what the policy does: 100.0% of its"),
        pytest.warns(fle.FLEWarning, match="too little for a headline number"),
    ):
        plan = fle.plan(data, [0.0, 1.0], horizon=1, model=TABLE, recipe=QUICK)
    # What withholds a number on the command line does so in Python.
    assert plan.withheld.startswith("100.0% of its actions were never logged")
    with pytest.raises(CoverageError, match=r"No estimate: 100\.0% of its.*anyway=True"):
        plan.carry_out()
    result = plan.carry_out(out=tmp_path, anyway=True)
    assert not result.coverage.enough
    assert fle.load(tmp_path).coverage == result.coverage
    covered = fle.evaluate(data, [1.0, 0.0], horizon=1, model=TABLE, recipe=QUICK)
    assert covered.coverage.share_unseen == 0
    assert (
        fle.evaluate(data, fle.policies.Behaviour(), horizon=1, model=TABLE, recipe=QUICK).coverage
        is None
    )


def test_rows_learned_by_heart_are_said_with_both_losses():
    """Three hundred rows and twenty inputs of noise, trained without decay until they are known."""
    generator = np.random.default_rng(0)
    data = fle.Dataset(
        observations=generator.standard_normal((300, 20)),
        actions=np.zeros(300, int),
        rewards=generator.standard_normal(300),
        next_observations=np.zeros((300, 20)),
        terminations=np.ones(300, bool),
        initial_observations=np.zeros((5, 20)),
    )
    small = fle.Gaussian(hidden=(64,))
    training = fle.Recipe(steps=500, batch_size=100, weight_decay=0.0, held_out=0.2)
    result = fle.evaluate(data, [1.0], horizon=1, model=small, recipe=training)
    note = next(note for note in result.notes if "knows the rows it was trained on" in note)
    assert f"that of held-out rows {result.records[-1].held_out_loss:.2f}" in note
    training = dataclasses.replace(training, weight_decay=30.0)
    result = fle.evaluate(data, [1.0], horizon=1, model=small, recipe=training)
    assert not any("knows the rows" in note for note in result.notes)


def test_heavy_tail_is_said_with_its_index():
    rewards = np.random.default_rng(0).standard_cauchy(5000)
    with pytest.warns(fle.FLEWarning, match=r"heavy tail \(index"):
        fle.plan(bandit(rewards), np.ones(1), horizon=1, model=TABLE, recipe=QUICK)


@pytest.mark.parametrize("law", ["normal", "exponential", "sparse"])
def test_light_tails_are_not_remarked(law):
    # Hill's estimate at the top hundredth of n = 20,000 rests on 200 values: a relative error of
    # 0.07. A normal tail gives about 7 there and an exponential one about 4.6; 3 is 5 errors away.
    generator = np.random.default_rng(1)
    values = {
        "normal": generator.normal(size=20_000),
        "exponential": generator.exponential(size=20_000),
        "sparse": (generator.random(20_000) < 0.05).astype(float),
    }[law]
    assert tail_index(values) > 3


def test_cauchy_tail_index_is_one():
    # 1,000 values: a relative error of 0.03; 5 of them.
    values = np.random.default_rng(2).standard_cauchy(100_000)
    assert tail_index(values) == pytest.approx(1, rel=0.16)


def test_a_rival_that_sees_nothing_says_nothing():
    # The statistic is normal up to terms in 1 / sqrt(400), so the chance is uniform on (0, 1):
    # below 0.1 in 10% of 500 trials, up to 4 standard errors of 0.013, a false alarm in 16,000.
    generator = np.random.default_rng(0)
    found = [
        explained_by(generator.standard_normal((400, 1)), generator.standard_normal((400, 1)))
        for _ in range(500)
    ]
    assert np.mean(np.array(found) < 0.1) == pytest.approx(0.1, abs=4 * 0.0134)


def test_a_rival_is_heard_where_its_errors_are_smaller_than_what_it_sees():
    # Of what is missed, 0.3; its own errors are 0.1 and 0.3. The best mix gives it the weights
    # 0.09 / 0.10 = 0.9 and 0.09 / 0.18 = 0.5. Standard errors: sqrt(1.09 / (4,800 * 0.10)) = 0.048
    # and sqrt(1.09 / (4,800 * 0.18)) = 0.036, so both are four or more of them from two thirds.
    generator = np.random.default_rng(0)
    effect = generator.normal(0, 0.3, (4_800, 1))
    residuals = generator.standard_normal((4_800, 2)) + effect
    rival = effect + generator.normal(0, [0.1, 0.3], (4_800, 2))
    assert np.array_equal(heard(residuals, rival), rival * [1, 0])


def test_what_goes_with_residuals_is_seen_whatever_the_errors_of_the_rival():
    generator = np.random.default_rng(0)
    effect = generator.normal(0, 0.3, 4_800)
    # Of two coordinates, one. The rival's errors are as large as what is missed; its mean squared
    # error is the larger one.
    residuals = generator.standard_normal((4_800, 2)) + np.stack([0 * effect, effect], axis=1)
    rival = np.stack([0 * effect, effect + generator.normal(0, 0.6, 4_800)], axis=1)
    assert np.mean((residuals - rival)[:, 1] ** 2) > np.mean(residuals[:, 1] ** 2)
    # Expected: 4,800 * 0.09 = 432 over sqrt(4,800 * 1.09 * 0.45) = 49, so 8.9 standard errors; a
    # chance of 1e-3 needs 3.3, five standard deviations of the statistic less.
    assert explained_by(residuals, rival) < 1e-3
    # The other way round, the rival's own errors are what its residuals go with.
    assert explained_by(residuals - rival, -rival) < 1e-3


def test_means_that_agree_up_to_rounding_say_nothing():
    assert explained_by(np.ones((100, 1)), np.full((100, 1), 1e-6)) == 0.5
    assert explained_by(np.zeros((100, 1)), np.ones((100, 1))) == 0.5
