"""The questions an Evaluation answers: at one place, at many, at a step, of a vector."""

import numpy as np
import pandas as pd
import pytest
from quick_fits import GMM, QUICK, TABLE, TABLE_TRAINING, bandit, cycle

import fle
from fle.errors import DataError, ModelError, SettingsError
from fle.fitting.targets import systematic
from fle.tasks import LQR

CART = LQR.example(horizon=3)


@pytest.fixture(scope="module")
def cart():
    data = fle.Dataset(**CART.offline_data(1000, seed=0))
    spec = fle.LinearQuadratic(CART.noise_std)
    return fle.evaluate(data, CART.target_policy, horizon=3, model=spec)


@pytest.fixture(scope="module")
def ring():
    return fle.evaluate(cycle(), [1.0], gamma=0.5, stages=8, model=TABLE, recipe=TABLE_TRAINING)


@pytest.fixture(scope="module")
def two_rewards():
    """The second reward is the first plus independent noise: N(0, [[1, 1], [1, 2]])."""
    first, noise = np.random.default_rng(0).standard_normal((2, 4000))
    data = bandit(np.stack([first, first + noise], axis=1), reward_names=("speed", "energy"))
    return fle.evaluate(data, [1.0], horizon=1, model=GMM, recipe=QUICK)


def test_one_observation_and_action(cart):
    law = cart.at([0.5, -0.4], [0.3])
    (same,) = cart.at([[0.5, -0.4]], [[0.3]])
    assert law.mean() == same.mean()
    truth = CART.true_mean([[0.5, -0.4]], [[0.3]], 0)[0]
    # 1000 rows: the bound 2.5 / sqrt(n) of the exact fit.
    assert law.mean() == pytest.approx(truth, abs=2.5 / np.sqrt(1000))
    assert law.log_prob(law.mean()) == pytest.approx(
        -0.5 * np.log(2 * np.pi * CART.true_variance(0)), abs=1e-3
    )


def test_a_scalar_action_of_width_one(cart):
    assert cart.at([0.5, -0.4], 0.3).mean() == cart.at([0.5, -0.4], [0.3]).mean()


def test_a_batch_is_one_distribution_a_row(cart):
    observations = np.array([[1.0, 0.0], [-0.2, 0.1]])
    single = [cart.at(x, [0.3]).mean() for x in observations]
    assert [law.mean() for law in cart.at(observations, [0.3])] == single
    actions = [[0.3], [-0.1], [0.0]]
    single = [cart.at(observations[0], a).mean() for a in actions]
    assert [law.mean() for law in cart.at(observations[0], actions)] == single


def test_an_equal_mixture(cart):
    observations = np.array([[1.0, 0.0], [-0.2, 0.1]])
    both = cart.mixture(observations, [0.3])
    single = [cart.at(x, [0.3]) for x in observations]
    # 5 standard errors of 100,000 draws of the mixture.
    mean = np.mean([law.mean() for law in single])
    assert both.mean() == pytest.approx(mean, abs=2 * 5 * both.std() / np.sqrt(1e5))
    density = np.mean([np.exp(law.log_prob(-0.5)) for law in single])
    assert np.exp(both.log_prob(-0.5)) == pytest.approx(density, rel=1e-3)


def test_steps_of_a_finite_horizon(cart):
    # Three, two and one reward are still to come.
    variances = [cart.at([0.5, -0.4], [0.3], step=step).variance() for step in range(3)]
    expected = [CART.true_variance(step) for step in range(3)]
    assert np.allclose(variances, expected, rtol=5 * np.sqrt(2 / 1e5))


@pytest.mark.parametrize("step", [-1, 3])
def test_step_outside_the_horizon(cart, step):
    with pytest.raises(SettingsError, match=rf"from 0 to 2 \(the horizon is 3\), got {step}"):
        cart.at([0.5, -0.4], [0.3], step=step)


def test_step_of_a_discounted_problem(ring):
    with pytest.raises(SettingsError, match="a discounted problem is the same at every step"):
        ring.at(0, 0, step=1)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (
            [0.5, 0.1, 0.2],
            [0.3],
            r"observation: expected 2 columns like the data, got shape \(3,\)",
        ),
        ([0.5, 0.1], [0.3, 0.4], "action: expected 1 columns"),
        ([0.5, np.nan], [0.3], "observation: expected finite"),
        ([[0.5, 0.1], [0.2, 0.3]], [[0.1], [0.2], [0.3]], "2 observations and 3 actions"),
    ],
)
def test_wrong_vectors(cart, observation, action, message):
    with pytest.raises(DataError, match=message):
        cart.at(observation, action)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (10, 0, "observation: expected whole numbers from 0 to 9, got 10"),
        (-1, 0, "observation: expected whole numbers"),
        (1.5, 0, "observation: expected whole numbers"),
        (0, 1, "action: expected whole numbers from 0 to 0, got 1"),
    ],
)
def test_wrong_codes(ring, observation, action, message):
    with pytest.raises(DataError, match=message):
        ring.at(observation, action)


def test_joint_law_of_vector_returns(two_rewards):
    returns = two_rewards.returns
    assert returns.dim == 2
    # Five standard errors of 4000 rows (false alarm 6e-7), and as much for the fit.
    error = 2 * 5 / np.sqrt(4000)
    assert np.allclose(returns.mean(), 0, atol=np.sqrt(2) * error)
    assert np.allclose(returns.variance(), [1, 2], rtol=np.sqrt(2) * error)
    assert returns.correlation()[0, 1] == pytest.approx(np.sqrt(0.5), abs=error)
    # Both below 0: 1/4 + arcsin(rho) / (2 pi) = 1/4 + 1/8.
    assert returns.probability(below=(0, 0)) == pytest.approx(0.375, abs=error / 2)
    # At the origin the density is 1 / (2 pi sqrt(det)) with det = 1.
    assert returns.log_prob([0.0, 0.0]) == pytest.approx(-np.log(2 * np.pi), abs=0.15)


def test_marginal_and_scalarized_returns(two_rewards):
    returns = two_rewards.returns
    speed = returns.marginal("speed")
    assert np.array_equal(speed.samples[:, 0], returns.samples[:, 0])
    # CVaR at 0.1 of a standard normal is -1.755.
    assert speed.cvar(0.1) == pytest.approx(-1.755, abs=0.2)
    difference = returns.scalarize([-1, 1])
    # energy - speed is the noise, of std 1, though energy alone has std 1.41.
    assert difference.std() == pytest.approx(1.0, abs=0.1)
    with pytest.raises(ModelError, match="cvar needs a scalar return"):
        returns.cvar(0.1)


def test_projections_have_no_density(two_rewards):
    with pytest.raises(ModelError, match="no density"):
        two_rewards.returns.marginal(0).log_prob(0.0)


def test_returns_are_the_law_under_the_policy_from_the_start():
    # States 0 and 1 start three to one; action 1 is taken with 0.25 and pays 4, state 1 pays 8.
    states, actions = np.arange(2000) % 2, np.arange(2000) // 2 % 2
    data = fle.Dataset(
        observations=states,
        actions=actions,
        rewards=8.0 * states + 4.0 * actions,
        next_observations=states,
        terminations=np.ones(2000, bool),
        truncations=np.zeros(2000, bool),
        initial_observations=[0, 0, 0, 1],
    )
    result = fle.evaluate(data, [0.75, 0.25], horizon=1, model=TABLE, recipe=TABLE_TRAINING)
    # 8 / 4 + 4 / 4 = 3; the draws have std below 10.
    assert result.returns.mean() == pytest.approx(3.0, abs=0.05 + 5 * 10 / np.sqrt(1e5))


def test_a_rare_action_of_many_equal_starts_is_drawn_as_often_as_it_is_taken():
    # 10,000 starts, 100,000 draws: equal steps of 0.1 starts would always pass by a chance of 0.02.
    weights = np.tile([0.02, 0.98], 10_000) / 10_000
    for seed in range(5):
        picks = systematic(weights, 100_000, np.random.default_rng(seed))
        counts = np.bincount(picks, minlength=weights.size)
        assert np.abs(counts - 100_000 * weights).max() <= 1
        # Independent draws would have a standard error of 44; five of them pass once in 2e6.
        assert np.sum(picks % 2 == 0) == pytest.approx(2_000, abs=5 * 44)


def test_questions_with_names_are_held_against_those_of_the_data(tmp_path):
    generator = np.random.default_rng(0)
    data = fle.Dataset(
        observations=generator.standard_normal((60, 2)),
        actions=np.zeros(60, int),
        rewards=generator.standard_normal(60),
        terminations=np.ones(60, bool),
        observation_names=("x", "y"),
    )
    recipe = fle.Recipe(steps=10, batch_size=50, weight_decay=0.0)
    fle.evaluate(data, [1.0], horizon=1, model=fle.Gaussian(hidden=()), recipe=recipe, out=tmp_path)
    result = fle.load(tmp_path)
    expected = result.at([0.5, 2.0], 0).mean()
    assert result.at({"x": 0.5, "y": 2.0}, 0).mean() == expected
    (row,) = result.at(pd.DataFrame({"x": [0.5], "y": [2.0]}), 0)
    assert row.mean() == expected
    with pytest.raises(DataError, match=r"observation: expected the columns 'x', 'y'.*the order"):
        result.at({"y": 2.0, "x": 0.5}, 0)
    with pytest.raises(DataError, match="'y' are missing and nothing knows 'z'"):
        result.at({"x": 0.5, "z": 2.0}, 0)


def test_questions_in_the_words_of_the_log(tmp_path):
    """Wards and drugs as they were logged, in a run that was saved and loaded."""
    generator = np.random.default_rng(0)
    wards, drugs = generator.choice(["er", "icu"], 80), generator.choice(["A", "none"], 80)
    frame = pd.DataFrame(
        {
            "observation.ward": wards,
            "observation.age": generator.uniform(20, 80, 80),
            "action": drugs,
            "reward": (wards == "icu") + 2.0 * (drugs == "A"),
            "terminated": True,
        }
    )
    recipe = fle.Recipe(steps=10, batch_size=50, weight_decay=0.0)
    data = fle.read(frame)
    model = fle.Gaussian(hidden=())
    fle.evaluate(data, [0.5, 0.5], horizon=1, model=model, recipe=recipe, out=tmp_path)
    result = fle.load(tmp_path)
    assert result.logged.action_labels == ("A", "none")
    asked = result.at({"ward": "icu", "age": 50.0}, "none")
    assert asked.mean() == result.at([0.0, 1.0, 50.0], 1).mean()
    both = result.at({"ward": "icu", "age": 50.0}, ["A", "none"])
    assert both[1].mean() == asked.mean()
    with pytest.raises(DataError, match="ward: row 0 is 'ward 9'; expected one of 'er', 'icu'"):
        result.at({"ward": "ward 9", "age": 50.0}, "A")
    with pytest.raises(DataError, match="action: expected one of 'A', 'none', got 'B'"):
        result.at([0.0, 1.0, 50.0], "B")
