"""Which rows a stage sees, and how much each of them counts."""

from dataclasses import replace

import numpy as np
import pytest
from quick_fits import TABLE, TABLE_TRAINING, bandit, cycle

import fle
from fle.fitting.problem import Problem, stages_of
from fle.recipe import ONE_FIT
from fle.tasks import LQR

POISON = 1e4
GAUSSIAN = fle.Gaussian(hidden=(16,))
GAUSSIAN_TRAINING = fle.Recipe(
    steps=600, batch_size=200, learning_rate=1e-2, weight_decay=0.0, start="fresh"
)


def two_steps(n=2000, **changes):
    """Step 0 earns 0 or 1, step 1 earns 10; what a row earns depends on its step alone."""
    steps = np.arange(n) % 2
    rewards = np.where(steps == 0, np.arange(n) // 2 % 2, 10.0)
    return fle.Dataset(
        observations=np.zeros(n, int),
        actions=np.zeros(n, int),
        rewards=rewards,
        next_observations=np.zeros(n, int),
        terminations=steps == 1,
        truncations=np.zeros(n, bool),
        steps=steps,
        **changes,
    )


def test_rows_with_steps_are_used_at_their_own_step_only():
    result = fle.evaluate(two_steps(), [1.0], horizon=2, model=GAUSSIAN, recipe=GAUSSIAN_TRAINING)
    assert [record.step for record in result.records] == [1, 0]
    # Certain at step 1; at step 0 a coin of std 1/2 on top. 0.03 return scales are for the fit.
    assert result.at(0, 0, step=1).mean() == pytest.approx(10, abs=0.03)
    assert result.returns.mean() == pytest.approx(10.5, abs=0.05)
    assert result.returns.std() == pytest.approx(0.5, abs=0.05)
    assert result.records[0].mean[0] == pytest.approx(10, abs=0.03)


def test_other_steps_cannot_spoil_a_step():
    data = two_steps()
    rewards = np.where(data.steps == 0, data.rewards[:, 0], POISON)
    spoiled = two_steps()
    object.__setattr__(spoiled, "rewards", rewards[:, None])
    result = fle.evaluate(spoiled, [1.0], horizon=1, model=GAUSSIAN, recipe=GAUSSIAN_TRAINING)
    assert result.returns.mean() == pytest.approx(0.5, abs=0.05)
    assert result.returns.std() == pytest.approx(0.5, abs=0.05)


def test_all_rows_serve_every_stage_on_request():
    with pytest.warns(fle.FLEWarning, match="terminates after exactly 2 steps"):
        result = fle.evaluate(
            two_steps(), [1.0], horizon=1, rows="all", model=GAUSSIAN, recipe=GAUSSIAN_TRAINING
        )
    # Half the rows earn 10, half 0.5 on average.
    assert result.returns.mean() == pytest.approx(5.25, abs=0.2)


def test_split_gives_each_stage_rows_of_its_own():
    data = bandit(np.zeros(100))
    for stages in (
        stages_of(problem, data, replace(ONE_FIT, held_out=0.1), np.random.default_rng(0))
        for problem in (Problem(1.0, 3, "split", 3), Problem(0.9, None, "split", 3))
    ):
        used = np.concatenate([np.concatenate([stage.rows, stage.held_out]) for stage in stages])
        assert sorted(used) == list(range(100))
        # 34 or 33 rows each, of which a tenth is held out.
        assert [stage.held_out.size for stage in stages] == [3, 3, 3]
        assert stages[0].discount == 0.0


def test_held_out_rows_are_not_trained_on():
    data = two_steps(100)
    generator = np.random.default_rng(0)
    for stages in (
        stages_of(problem, data, ONE_FIT, generator)
        for problem in (Problem(1.0, 2, "step", 2), Problem(0.9, None, "all", 3))
    ):
        for stage in stages:
            assert set(stage.rows).isdisjoint(stage.held_out)
            assert stage.held_out.size >= 1


def test_split_evaluates():
    with pytest.warns(fle.FLEWarning, match="terminates after exactly 2 steps"):
        result = fle.evaluate(
            two_steps(3000),
            [1.0],
            horizon=2,
            rows="split",
            model=GAUSSIAN,
            recipe=GAUSSIAN_TRAINING,
        )
    # Without steps a row may serve any stage: 5.25 a step, and half of the rows end there.
    # E = 5.25 + 0.5 * 5.25; five standard errors of 1500 rows of std 5 are 0.65.
    assert result.returns.mean() == pytest.approx(5.25 * 1.5, abs=0.65)


def test_weight_zero_removes_a_row():
    actions = np.arange(2000) % 2
    rewards = 1.0 * actions
    bad = np.arange(2000) % 10 < 2
    rewards[bad] = POISON
    data = bandit(rewards, actions, weights=(~bad) * 1.0)
    result = fle.evaluate(data, [0.5, 0.5], horizon=1, model=GAUSSIAN, recipe=GAUSSIAN_TRAINING)
    # Rewards 0 and 1, each certain given its action.
    assert result.at(0, 0).mean() == pytest.approx(0, abs=0.05)
    assert result.at(0, 1).mean() == pytest.approx(1, abs=0.05)
    assert result.returns.std() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("how", ["subset", "weights"])
def test_discounted_problem_with_rows_left_out_of_episodes(how):
    data, kept = cycle(200), np.arange(200) % 3 > 0
    data = data.subset(kept) if how == "subset" else data.with_weights(kept * 1.0)
    training = fle.Recipe(steps=2, batch_size=20, weight_decay=0.0)
    result = fle.evaluate(data, [1.0], gamma=0.5, model=TABLE, recipe=training)
    assert any("stages" in note for note in result.notes)


def test_whole_weights_equal_repeated_rows():
    rewards = np.resize([0.0, 1.0, 5.0], 1200)
    counts = np.resize([1, 2, 3], 1200)
    weighted = bandit(rewards, weights=counts.astype(float))
    repeated = bandit(np.repeat(rewards, counts))
    # Shares 1/6, 2/6, 3/6: mean 17/6, second moment (2 + 75)/6.
    std = np.sqrt(77 / 6 - (17 / 6) ** 2)
    for data in (weighted, repeated):
        returns = fle.evaluate(
            data, [1.0], horizon=1, model=GAUSSIAN, recipe=GAUSSIAN_TRAINING
        ).returns
        # Batches by weight are draws: 600 * 200 of them, averaged over the last half.
        assert returns.mean() == pytest.approx(17 / 6, abs=0.03 * std)
        assert returns.std() == pytest.approx(std, rel=0.03)


def test_whole_weights_equal_repeated_rows_in_an_exact_fit():
    cart = LQR.example(horizon=3)
    columns = cart.offline_data(300, seed=0)
    initial = columns.pop("initial_observations")
    counts = np.resize([1, 2, 5], 300)
    weighted = fle.Dataset(**columns, initial_observations=initial, weights=counts * 2.0)
    repeated = fle.Dataset(
        **{name: np.repeat(values, counts, axis=0) for name, values in columns.items()},
        initial_observations=initial,
    )
    # One row of each is held out, the same for neither; its share in 300 is the tolerance.
    coefficients = [
        fle.evaluate(
            data,
            cart.target_policy,
            horizon=3,
            model=fle.LinearQuadratic(cart.noise_std),
            recipe={"held_out": 1e-6},
        )
        .fits[-1]
        .law.coefficients
        for data in (weighted, repeated)
    ]
    assert np.allclose(*coefficients, atol=0.03)


def test_action_draws_are_used_for_a_policy_that_draws():
    actions = np.arange(2000) % 4
    data = bandit(1.0 * actions, actions)

    def policy(observations, generator):
        return generator.integers(4, size=len(observations))

    result = fle.evaluate(
        data, policy, horizon=1, action_draws=4, model=TABLE, recipe=TABLE_TRAINING
    )
    # 2000 initial rows with 4 draws each: the mean action is 1.5 with error 5 * 1.12 / sqrt(8000).
    assert result.returns.mean() == pytest.approx(1.5, abs=0.07 + 0.03)
