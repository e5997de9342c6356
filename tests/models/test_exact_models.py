"""The two Bellman-complete classes: closed form, rate of convergence, and what they refuse."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
from scipy import stats

import fle
from fle.errors import ModelError, SettingsError
from fle.models.families.linear_quadratic import LinearQuadraticLaw
from fle.tasks import LQR, random_policy, sparse_terminal

SIZES = (1_000, 10_000, 100_000)
SEEDS = range(3)
RECIPE = fle.Recipe(held_out=0.01)

SPARSE = sparse_terminal(3, 2, horizon=3, seed=0, laws=3)
SPARSE_POLICY = random_policy(3, 2, seed=1)
SPARSE_LAWS = tuple(stats.norm(m, s) for m, s in zip(*SPARSE.reward_laws, strict=True))
CART = LQR.example(horizon=5)


def sparse_data(n, seed):
    """About n rows, the same number at each of the 3 steps, so that little is compiled anew."""
    columns = SPARSE.offline_data(int(1.3 * n) + 100, seed)
    steps = columns["steps"]
    rows = np.concatenate([np.flatnonzero(steps == step)[: n // 3] for step in range(3)])
    return fle.Dataset(
        **{
            name: values if name in ("initial_observations", "number_of_actions") else values[rows]
            for name, values in columns.items()
        }
    )


def reward_mixture_error(n, seed):
    """Root mean square error of the mixture weights at step 0, over states, actions and laws."""
    data = sparse_data(n, seed)
    result = fle.evaluate(
        data, SPARSE_POLICY, horizon=3, model=fle.RewardMixture(SPARSE_LAWS), recipe=RECIPE
    )
    error = result.fits[-1].law.weights - SPARSE.exact_weights(SPARSE_POLICY)
    return float(np.sqrt(np.mean(error**2)))


def linear_quadratic_error(n, seed):
    """Root mean square error of the mean return at step 0 over random probes."""
    data = fle.Dataset(**CART.offline_data(n, seed))
    spec = fle.LinearQuadratic(CART.noise_std)
    result = fle.evaluate(data, CART.target_policy, horizon=5, model=spec, recipe=RECIPE)
    generator = np.random.default_rng(0)
    observations, actions = generator.uniform(-1, 1, (200, 2)), generator.uniform(-1, 1, (200, 1))
    means = jax.vmap(result.fits[-1].law.mean)(result.encoder.inputs(observations, actions))
    return float(np.sqrt(np.mean((means - CART.true_mean(observations, actions, 0)) ** 2)))


def scaled_errors(error):
    """error * sqrt(n) for every n, as a root mean square over seeds."""
    return [np.sqrt(n * np.mean([error(n, seed) ** 2 for seed in SEEDS])) for n in SIZES]


def test_reward_mixture_converges_at_the_parametric_rate():
    scaled = scaled_errors(reward_mixture_error)
    # A weight at one pair is an average over n / 18 rows (3 steps, 6 pairs) of numbers in [0, 1],
    # of variance at most 1/4, in two stages: error * sqrt(n) <= sqrt(18 * 2 / 4) = 3 for the pair.
    assert max(scaled) < 3
    # Each is a root mean square over 3 seeds with about 12 free numbers: 36 degrees of freedom, a
    # relative error of 0.12. A factor 2 between two of them is 4 deviations: false alarm 1e-4.
    assert max(scaled) < 2 * min(scaled)


def test_linear_quadratic_converges_at_the_parametric_rate():
    scaled = scaled_errors(linear_quadratic_error)
    # One least-squares fit has error noise * sqrt(6 features / n) on the logged rows: 0.2 * 2.45.
    # The fits of five stages use the same noise, and their errors add up: at most five times that.
    assert max(scaled) < 5 * 0.2 * np.sqrt(6)
    # 3 seeds with 6 coefficients: 18 degrees of freedom, a relative error of 0.17, so a factor 3
    # between the largest and the smallest of three is more than 4 deviations: false alarm 1e-4.
    assert max(scaled) < 3 * min(scaled)


def test_reward_mixture_recovers_the_distribution():
    data = sparse_data(100_000, seed=5)
    result = fle.evaluate(
        data, SPARSE_POLICY, horizon=3, model=fle.RewardMixture(SPARSE_LAWS), recipe=RECIPE
    )
    points = np.linspace(-0.5, 1.5, 101)
    peak = 1 / (SPARSE.reward_laws.stds[0] * np.sqrt(2 * np.pi))
    for state, action in [(0, 0), (2, 1)]:
        weights = SPARSE.exact_weights(SPARSE_POLICY)[state, action]
        truth = np.exp(SPARSE.mixture_log_density(points, weights))
        ours = np.exp(result.at(state, action).log_prob(points))
        # Five times the bound 3 / sqrt(n) on a weight's error, times the peak of a law's density.
        assert np.abs(ours - truth).max() < 5 * 3 / np.sqrt(100_000) * peak


def test_linear_quadratic_recovers_mean_and_variance_at_every_step():
    data = fle.Dataset(**CART.offline_data(10_000, seed=5))
    spec = fle.LinearQuadratic(CART.noise_std)
    result = fle.evaluate(data, CART.target_policy, horizon=5, model=spec, recipe=RECIPE)
    observation, action = np.array([0.5, -0.4]), np.array([0.3])
    for step in range(5):
        law = result.at(observation, action, step=step)
        truth = CART.true_mean(observation[None], action[None], step)[0]
        variance = CART.true_variance(step)
        # The bound of the rate test at n = 10,000, and 5 standard errors of 100,000 draws.
        assert abs(law.mean() - truth) < 2.5 / np.sqrt(10_000) + 5 * np.sqrt(variance / 1e5)
        assert law.variance() == pytest.approx(variance, rel=5 * np.sqrt(2 / 1e5))


def test_linear_quadratic_discounted():
    data = fle.Dataset(**CART.offline_data(10_000, seed=6))
    spec = fle.LinearQuadratic(CART.noise_std)
    result = fle.evaluate(data, CART.target_policy, gamma=0.8, model=spec, stages=40, recipe=RECIPE)
    observation, action = np.array([0.5, -0.4]), np.array([0.3])
    law = result.at(observation, action)
    truth = CART.discounted_mean(observation[None], action[None], 0.8)[0]
    # Five effective stages, as above; 0.8^40 = 1e-4 is left out.
    assert abs(law.mean() - truth) < 2.5 / np.sqrt(10_000) + 5 * law.std() / np.sqrt(1e5)
    assert law.variance() == pytest.approx(CART.discounted_variance(0.8), rel=5 * np.sqrt(2 / 1e5))


TRACES = []


class CountedLaw(LinearQuadraticLaw):
    """Notes each time its mean is traced: Python runs only then."""

    def mean(self, inputs):
        TRACES.append(1)
        return super().mean(inputs)


@dataclass(frozen=True)
class Counted(fle.LinearQuadratic):
    def build(self, sizes, recipe, generator):
        return CountedLaw(**vars(super().build(sizes, recipe, generator)))


def test_steps_with_unequal_numbers_of_rows_are_compiled_once():
    columns = CART.offline_data(600, seed=7)
    # 200, 160, 120, 80 and 40 rows.
    columns["steps"] = np.repeat(np.arange(5), np.arange(200, 0, -40))
    TRACES.clear()
    result = fle.evaluate(
        fle.Dataset(**columns), CART.target_policy, horizon=5, model=Counted(CART.noise_std)
    )
    # Least squares, draws, and, for the held-out loss, next returns, their shape, and the
    # density of targets.
    assert len(TRACES) == 5
    # Rows that only fill up count for nothing: the bound of the rate test at the 40 rows of the
    # last step, the fewest.
    probe = np.array([[0.5, -0.4]]), np.array([[0.3]])
    mean = result.fits[-1].law.mean(result.encoder.inputs(*probe)[0])
    assert abs(mean - CART.true_mean(*probe, 0)[0]) < 5 * 0.2 * np.sqrt(6 / 40)


def test_reward_mixture_refuses_rewards_on_the_way():
    columns = SPARSE.offline_data(600, seed=0)
    columns["rewards"] = np.ones(600)
    with pytest.raises(ModelError, match=r"only at the end: row .* has reward 1"):
        fle.evaluate(
            fle.Dataset(**columns), SPARSE_POLICY, horizon=3, model=fle.RewardMixture(SPARSE_LAWS)
        )


def test_reward_mixture_refuses_discounting():
    data = fle.Dataset(**SPARSE.offline_data(600, seed=0))
    spec = fle.RewardMixture(SPARSE_LAWS)
    with pytest.raises(
        ModelError, match=r"undiscounted updates only, and the discount here is 0\.9"
    ):
        fle.evaluate(data, SPARSE_POLICY, horizon=3, gamma=0.9, model=spec)


def test_reward_mixture_refuses_continuous_observations_and_no_laws():
    data = fle.Dataset(**CART.offline_data(100, seed=0))
    with pytest.raises(ModelError, match="tabular"):
        fle.evaluate(data, CART.target_policy, horizon=2, model=fle.RewardMixture(SPARSE_LAWS))
    with pytest.raises(SettingsError, match="at least one reward law"):
        fle.RewardMixture(())


def test_linear_quadratic_refuses_termination():
    columns = CART.offline_data(100, seed=0)
    columns["terminations"] = np.arange(100) % 10 == 0
    data = fle.Dataset(**columns)
    with pytest.raises(ModelError, match="only if no row terminates"):
        fle.evaluate(data, CART.target_policy, horizon=2, model=fle.LinearQuadratic(0.2))


def test_linear_quadratic_refuses_discrete_actions_and_no_noise():
    data = fle.Dataset(**SPARSE.offline_data(600, seed=0))
    with pytest.raises(ModelError, match="continuous observations and actions"):
        fle.evaluate(data, SPARSE_POLICY, horizon=2, model=fle.LinearQuadratic(0.2))
    with pytest.raises(SettingsError, match="noise_std: expected a positive"):
        fle.LinearQuadratic(0.0)
