"""The bounds against measured errors: exact fits of known tasks, C and ζ computed exactly."""

import numpy as np
import pytest
from scipy import stats

import fle
from fle.paper import exact, theory
from fle.tasks import LQR, random_mdp, random_policy, sparse_terminal, uniform_policy
from fle.trust import bounds

# Over a 64-fold range of n the slope's standard error is 0.03 (40 seeds, an error whose standard
# deviation is half its mean): 0.1 is more than three of them.
SIZES = (900, 7_200, 57_600)
SEEDS = range(40)
SLOPE_TOLERANCE = 0.1


@pytest.fixture(scope="module")
def tabular():
    return theory.tabular_study(SIZES, SEEDS)


@pytest.fixture(scope="module")
def lqr():
    return theory.lqr_study(SIZES, SEEDS)


@pytest.fixture(scope="module")
def cvar():
    return theory.cvar_study(SIZES, range(200))


@pytest.fixture(scope="module")
def discounted():
    return theory.discounted_study(SIZES, range(100))


STUDIES = ["tabular", "lqr", "cvar", "discounted"]


@pytest.mark.parametrize("name", STUDIES)
def test_no_bound_is_ever_violated(name, request):
    study = request.getfixturevalue(name)
    assert study.violations() == dict.fromkeys(study.bounds, 0)
    assert all(0 < used.median <= used.largest <= 1 for used in study.looseness().values())
    assert study.coverage >= 1


@pytest.mark.parametrize("name", STUDIES)
def test_errors_fall_as_one_over_the_root_of_the_rows(name, request):
    study = request.getfixturevalue(name)
    assert study.slope_error < SLOPE_TOLERANCE / 3
    assert study.slope == pytest.approx(-0.5, abs=SLOPE_TOLERANCE)


def test_the_bounds_fall_at_the_same_rate(tabular, lqr):
    # ζ is a root mean square over 18 weights or 30 coefficients: its slope is known to 0.01.
    for study in (tabular, lqr):
        means = np.log(study.bounds["theorem"].mean(axis=1))
        assert np.polyfit(np.log(SIZES), means, 1)[0] == pytest.approx(-0.5, abs=0.05)


def test_a_badly_covered_lqr():
    cart = LQR.example(horizon=4)
    narrow = LQR(
        *(getattr(cart, name) for name in "ABQRK"),
        noise_std=0.2,
        horizon=4,
        data_halfwidth=0.3,
        exploration_std=0.1,
    )
    study = theory.lqr_study((500, 2_000), range(20), task=narrow)
    # Squares of states 0.3 / 1 as large: moments of fourth order differ by about (1 / 0.3)^4.
    assert study.coverage > 50
    assert study.violations() == {"theorem": 0}


def test_discounted_bounds_hold_for_other_orders():
    study = theory.discounted_study((1_000, 8_000), range(5), order=2.0, stages=7)
    assert study.violations() == {"refined": 0, "simplified": 0}


def test_the_class_bounds_fail_no_more_often_than_they_say():
    # 64 similar laws on 5 points for each of 3 inputs, one of them true; 2,000 data sets.
    generator = np.random.default_rng(0)
    n, trials, delta = 100, 2_000, 0.2
    laws = np.exp(0.4 * generator.normal(size=(64, 3, 5)))
    laws /= laws.sum(axis=-1, keepdims=True)
    inputs = np.array([0.5, 0.3, 0.2])
    joint = (inputs[:, None] * laws[0]).reshape(-1)
    counts = generator.multinomial(n, joint, size=trials).reshape(trials, -1)
    best = np.argmax(counts @ np.log(laws).reshape(64, -1).T, axis=1)
    distances = 0.5 * np.abs(laws[best] - laws[0]).sum(axis=-1)
    errors = np.sqrt(distances**2 @ inputs)
    (zeta,) = bounds.finite_class_zetas(n, 1, np.log(64), delta)
    # The share is at most delta; 5 standard deviations of 2,000 trials on top.
    assert np.mean(errors > zeta) <= delta + 5 * np.sqrt(delta * (1 - delta) / trials)
    # It is not for want of errors.
    assert np.mean(errors > 0) > 0.1


def test_the_contraction_lemma():
    # Random laws on 9 points, discounted by one half, on MDPs that terminate at times.
    generator = np.random.default_rng(1)
    for trial in range(100):
        mdp = random_mdp(3, 2, seed=trial, reward_values=(0, 1), termination=0.1)
        policy = random_policy(3, 2, seed=trial + 1)
        truth = exact.true_outcomes(mdp)
        first, second = generator.dirichlet(np.full(9, 0.3), size=(2, 3, 2))
        occupancy = exact.discounted_occupancy(mdp, policy, 0.5)
        # Stage 4 of the half-discounted lattice: spacing 1/8 becomes what 1/4 was.
        after = [
            exact.lattice_update(truth, policy, f, stage=4, discount="half")
            for f in (first, second)
        ]
        for order in (1.0, 2.0):
            gaps = exact.lattice_wasserstein(first, second, 1 / 4, order)
            left = exact.lattice_wasserstein(*after, 1 / 8, order)
            before, now = (
                np.sum(occupancy * gap ** (2 * order)) ** (1 / (2 * order)) for gap in (gaps, left)
            )
            assert now <= bounds.contraction_factor(0.5, order) * before * (1 + 1e-9)


def test_the_theorem_holds_for_a_fit_of_fle_evaluate():
    task, policy = sparse_terminal(3, 2, horizon=3, seed=0, laws=3), random_policy(3, 2, seed=1)
    laws = tuple(stats.norm(m, s) for m, s in zip(*task.reward_laws, strict=True))
    behaviour = 0.5 * uniform_policy(3, 2) + 0.5 * random_policy(3, 2, seed=2)
    data = behaviour / 3
    coverage = bounds.density_ratio(exact.step_occupancies(task, policy), data)
    rows = fle.Dataset(**task.offline_data(900, 0, behaviour=behaviour))
    result = fle.evaluate(rows, policy, horizon=3, model=fle.RewardMixture(laws))
    weights = np.stack([np.asarray(fit.law.weights, float) for fit in result.fits[::-1]])
    zetas = exact.mixture_zetas(task, policy, weights, data)
    start = task.initial[:, None] * policy
    estimate = np.einsum("sa,sak->k", start, weights[0])
    error = exact.mixture_total_variation(task.reward_laws, estimate, task.policy_weights(policy))
    assert 0 < error <= bounds.total_variation_bound(zetas, coverage)


def test_the_refined_theorem_holds_for_a_discounted_lqr():
    task, gamma = LQR.example(), 0.8
    for seed in range(3):
        forms = theory.fit_lqr(task, 40, seed, stages=25, gamma=gamma)
        check_discounted_lqr(task, gamma, forms[::-1])


def check_discounted_lqr(task, gamma, forms):
    """W_1 of Gaussians with one variance is the distance of their means: C is the condition number.

    The first law is a certain 0, as far from the truth as sqrt(mean² + variance) at most.
    """
    inputs, weights = exact.data_nodes(task)
    before = [np.zeros_like(forms[0]), *forms[:-1]]
    gaps = [f - exact.bellman_form(task, b, gamma) for f, b in zip(forms, before, strict=True)]
    zetas = [np.sqrt(weights @ exact.evaluate_form(gap, inputs) ** 2) for gap in gaps]
    steps = range(120)
    share = (1 - gamma) * gamma ** np.array(steps)
    nodes = [exact.policy_nodes(task, step) for step in steps]
    policy = exact.Nodes(
        np.concatenate([node.inputs for node in nodes]),
        np.concatenate([p * node.weights for p, node in zip(share, nodes, strict=True)]),
    )
    number = bounds.relative_condition_number(
        exact.second_moment(policy), exact.second_moment(exact.Nodes(inputs, weights))
    )
    truth = np.zeros_like(forms[0])
    for _ in range(400):
        truth = exact.bellman_form(task, truth, gamma)
    dx = task.state_dim
    points = policy.inputs
    assert exact.evaluate_form(truth, points) == pytest.approx(
        task.discounted_mean(points[:, :dx], points[:, dx:], gamma)
    )
    start = policy.weights @ exact.evaluate_form(truth, points) ** 2
    far = np.sqrt(start + task.discounted_variance(gamma))
    bound = bounds.wasserstein_bound(zetas, max(1.0, number), gamma, far)
    # W_1 of the mixtures is at most the mean of W_1 over initial pairs: means, and the variance
    # that the stages not fitted would add, as a distance of standard deviations.
    first = exact.policy_nodes(task, 0, 20)
    gap = first.weights @ np.abs(exact.evaluate_form(forms[-1] - truth, first.inputs))
    std = np.sqrt(task.discounted_variance(gamma))
    assert 0 < gap + std * gamma ** len(forms) <= bound
