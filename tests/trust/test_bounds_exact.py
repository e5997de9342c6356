"""What the simulations take for exact, against simulation and against other exact answers."""

import numpy as np
import pytest
from scipy import stats

from fle.errors import SettingsError
from fle.paper import exact
from fle.paper.theory import Study
from fle.returns import total_variation, wasserstein
from fle.tasks import LQR, draw_categorical, random_mdp, random_policy, sparse_terminal

MDP = random_mdp(3, 2, seed=0, horizon=4, reward_values=(0, 1, 3), termination=0.2)
POLICY = random_policy(3, 2, seed=1)


def test_step_occupancies_against_simulation():
    generator = np.random.default_rng(0)
    n = 50_000
    states, alive = MDP.initial_states(n, generator), np.ones(n, dtype=bool)
    for occupancy in exact.step_occupancies(MDP, POLICY):
        actions = draw_categorical(POLICY[states], generator)
        counts = np.zeros((3, 2))
        np.add.at(counts, (states[alive], actions[alive]), 1)
        # Shares of n draws; 5 standard deviations: false alarm below 1e-5.
        assert np.abs(counts / n - occupancy).max() < 5 * np.sqrt(0.25 / n)
        alive &= generator.random(n) >= MDP.terminations[states, actions]
        states = draw_categorical(MDP.transitions[states, actions], generator)


def test_discounted_occupancy_is_the_discounted_sum():
    long = random_mdp(3, 2, seed=0, horizon=200, termination=0.1)
    steps = exact.step_occupancies(long, POLICY)
    summed = 0.2 * np.einsum("h,hsa->sa", 0.8 ** np.arange(200), steps)
    # 0.8^200 is left out.
    assert exact.discounted_occupancy(long, POLICY, 0.8) == pytest.approx(summed, abs=1e-12)
    going_on = sparse_terminal(3, 2, horizon=3, seed=0)
    assert exact.discounted_occupancy(going_on, POLICY, 0.8).sum() == pytest.approx(1)


def test_mixture_total_variation():
    laws = sparse_terminal(3, 2, horizon=3, seed=0, laws=3).reward_laws
    first, second = np.array([0.2, 0.3, 0.5]), np.array([0.25, 0.35, 0.4])
    expected = total_variation(
        lambda z: stats.norm.pdf(z[:, None], *laws) @ first,
        lambda z: stats.norm.pdf(z[:, None], *laws) @ second,
        low=-1,
        high=2,
    )
    ours = exact.mixture_total_variation(laws, first, second)
    assert ours == pytest.approx(expected, abs=1e-6)
    # Laws that hardly overlap: half the sum of the differences.
    assert ours == pytest.approx(0.1, abs=1e-3)


def test_true_weights_have_no_bellman_error():
    task = sparse_terminal(3, 2, horizon=3, seed=0, laws=3)
    weights = np.stack([task.exact_weights(POLICY, step) for step in range(3)])
    uniform = np.full((3, 2), 1 / 6)
    assert exact.mixture_zetas(task, POLICY, weights, uniform) == pytest.approx(0, abs=1e-12)
    # Wrong at one pair of step 1 alone, by 0.1 from one law to another (these hardly overlap).
    weights[1, 2, 0] += [0.1, -0.1, 0.0]
    zetas = exact.mixture_zetas(task, POLICY, weights, uniform)
    assert zetas[1] == pytest.approx(0.1 * np.sqrt(1 / 6), rel=0.02)
    onward = 0.1 * task.transitions[:, :, 2] * POLICY[2, 0]
    assert zetas[0] == pytest.approx(np.sqrt(np.mean(onward**2)), rel=0.02)
    assert zetas[2] == 0


def test_quadrature_of_the_lqr_against_its_draws():
    task = LQR.example(horizon=4)
    n = 50_000
    columns = task.offline_data(n, seed=0)
    generator = np.random.default_rng(1)
    x = task.initial_observations(n, generator)
    for _ in range(2):
        x = x @ task.closed_loop.T
    drawn = {
        "data": np.hstack([columns["observations"], columns["actions"]]),
        "policy": np.hstack([x, task.target_policy(x)]),
    }
    nodes = {"data": exact.data_nodes(task), "policy": exact.policy_nodes(task, 2)}
    pairs = np.triu_indices(3)
    for name, rows in drawn.items():
        features = rows[:, pairs[0]] * rows[:, pairs[1]]
        products = np.einsum("ni,nj->nij", features, features)
        # 5 standard errors for each of 36 numbers: false alarm below 1e-4.
        slack = 5 * products.std(axis=0) / np.sqrt(n)
        assert np.all(np.abs(products.mean(axis=0) - exact.second_moment(nodes[name])) <= slack)


def test_quadratic_forms():
    task = LQR.example(horizon=4)
    generator = np.random.default_rng(2)
    inputs = generator.normal(size=(20, 3))
    pairs = np.triu_indices(3)
    coefficients = generator.normal(size=6)
    expected = (inputs[:, pairs[0]] * inputs[:, pairs[1]]) @ coefficients
    assert exact.evaluate_form(exact.quadratic_form(coefficients), inputs) == pytest.approx(
        expected
    )
    truth = task.true_mean(inputs[:, :2], inputs[:, 2:], 0)
    assert exact.evaluate_form(exact.true_form(task), inputs) == pytest.approx(truth)


def test_true_forms_have_no_bellman_error():
    task = LQR.example(horizon=3)
    shorter = [LQR.example(horizon=h) for h in (3, 2, 1)]
    forms = [exact.true_form(other) for other in shorter]
    assert exact.lqr_zetas(task, forms) == pytest.approx(0, abs=1e-12)
    # Off by c a² at the last step: E a⁴ = 3 v² for a Gaussian, here a = Kx + noise, by its draws.
    forms[2] = forms[2] + np.diag([0, 0, 0.1])
    actions = task.offline_data(400_000, seed=3)["actions"][:, 0]
    rms = 0.1 * np.sqrt(np.mean(actions**4))
    zetas = exact.lqr_zetas(task, forms)
    # The fourth power of a near-Gaussian has a standard deviation of 3.3 means: 5 * 1.6 / sqrt(n).
    assert zetas[2] == pytest.approx(rms / (np.sqrt(2 * np.pi) * 0.2), rel=0.015)
    assert zetas[0] == pytest.approx(0, abs=1e-12)


def test_lattice_updates_give_the_exact_law():
    truth = exact.true_outcomes(MDP)
    laws = exact.start_laws(truth)
    for stage in range(1, 5):
        laws = exact.lattice_update(truth, POLICY, laws, stage=stage, discount="none")
    assert laws == pytest.approx(MDP.exact_pmf(POLICY)[1])


def test_half_discounted_updates_have_the_exact_moments():
    truth = exact.true_outcomes(MDP)
    laws = exact.start_laws(truth)
    for stage in range(1, 15):
        laws = exact.lattice_update(truth, POLICY, laws, stage=stage, discount="half")
    returns = np.arange(laws.shape[-1]) * exact.spacing(14, "half")
    mean, variance = MDP.discounted_moments(POLICY, 0.5)
    # At most 6 * 2^-14 of a return is left out, and twice that times the return of its square.
    assert laws @ returns == pytest.approx(mean, abs=6 * 2**-14)
    assert laws @ returns**2 - (laws @ returns) ** 2 == pytest.approx(variance, abs=72 * 2**-14)


def test_logged_outcomes_are_frequencies():
    truth = exact.true_outcomes(MDP)
    generators = [np.random.default_rng(seed) for seed in range(3)]
    logged = exact.logged_outcomes(truth, np.full((3, 2), 1 / 6), 60_000, generators)
    assert logged.probabilities.shape == (3, *truth.probabilities.shape)
    assert logged.probabilities.sum(axis=(-2, -1)) == pytest.approx(1)
    # About 10,000 rows a pair; 5 standard deviations of a share.
    assert np.abs(logged.probabilities - truth.probabilities).max() < 5 * np.sqrt(0.25 / 9_500)
    assert not np.array_equal(logged.probabilities[0], logged.probabilities[1])
    none = exact.logged_outcomes(truth, np.eye(3)[:, :2] / 2, 100, generators[:1])
    assert none.probabilities[0, 2, 0] == pytest.approx(1 / 12)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_lattice_wasserstein_against_samples(order):
    generator = np.random.default_rng(4)
    counts = generator.multinomial(40, np.full(7, 1 / 7), size=(2, 5))
    ours = exact.lattice_wasserstein(counts[0] / 40, counts[1] / 40, 0.5, order)
    for row in range(5):
        first, second = (np.repeat(0.5 * np.arange(7), side[row]) for side in counts)
        assert ours[row] == pytest.approx(wasserstein(first, second, order=order))


def test_refined_laws_have_the_same_returns():
    law = np.array([0.2, 0.5, 0.3])
    fine = exact.refined(law, 3, 5)
    assert fine @ np.arange(fine.size) * exact.spacing(5, "half") == pytest.approx(
        law @ np.arange(3) * exact.spacing(3, "half")
    )


def test_negative_rewards_have_no_lattice():
    with pytest.raises(SettingsError, match="at least 0 on a lattice, got -1"):
        exact.true_outcomes(random_mdp(2, 2, seed=0))


def test_a_study_of_a_known_power_law():
    sizes, seeds = np.array([100, 1_000, 10_000]), np.array([0.5, 1.0, 1.5])
    errors = np.sqrt(1 / sizes)[:, None] * seeds
    study = Study("power", "none", sizes, errors, {"twice": 2 * errors, "half": errors / 2}, 1.0)
    assert study.slope == pytest.approx(-0.5)
    assert study.violations() == {"twice": 0, "half": 9}
    assert study.looseness()["twice"] == pytest.approx((0.5, 0.5))
    # Relative standard errors 0.5 / sqrt(3); slope weights (-1, 0, 1) / (2 log 10).
    assert study.slope_error == pytest.approx(0.5 / np.sqrt(3) * np.sqrt(2) / (2 * np.log(10)))
    with pytest.raises(SettingsError, match="at least 2 sizes"):
        Study("one", "none", sizes[:1], errors[:1], {}, 1.0)
