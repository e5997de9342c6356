"""Least squares of many policies on one log: what it says of one, and of the difference of two."""

from dataclasses import replace

import numpy as np
import pytest
from tabular_logs import BEYOND, MDP, MODEL, TARGET, logged

import fle
from fle.baselines import fitted_q_evaluation
from fle.baselines.fitted_q import CandidateMeans
from fle.baselines.least_squares import Equations, product
from fle.fitting.planning import Asked, Planner
from fle.tasks.tabular import random_policy

OTHERS = [random_policy(4, 2, seed) for seed in range(3)]
# From the initial states, in closed form.
DISCOUNT = 0.8
QUESTIONS = {"discounted": {"gamma": DISCOUNT}, "horizon": {"horizon": MDP.horizon, "rows": "all"}}


def true_mean(policy, question):
    if question == "horizon":
        support, chances = MDP.policy_pmf(policy)
        return float(support @ chances)
    means, _ = MDP.discounted_moments(policy, DISCOUNT)
    return float(np.sum(MDP.initial[:, None] * policy * means))


def looked(data, policies, question):
    planner = Planner.of(data, Asked(model=MODEL, **QUESTIONS[question])).survey()
    plans = [planner.plan(policy) for policy in policies]
    means = CandidateMeans.of(plans[0], np.ones(1))
    return plans, [means.look(plan) for plan in plans]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.filterwarnings("ignore::fle.FLEWarning")
def test_the_truth_is_within_the_error_of_each_and_of_every_difference(question):
    policies = [TARGET, *OTHERS]
    plans, looks = looked(logged(1_500, seed=3), policies, question)
    truths = [true_mean(policy, question) for policy in policies]
    for look, truth in zip(looks, truths, strict=True):
        assert abs(look.value - truth) < BEYOND * look.standard_error
        assert look.moved == 0.0
    for look, truth in zip(looks[1:], truths[1:], strict=True):
        error = float(np.linalg.norm(look.influence - looks[0].influence))
        assert abs(look.value - looks[0].value - (truth - truths[0])) < BEYOND * error
        # What both owe to the same episodes cancels: not more than if each had a log of its own.
        alone = np.hypot(look.standard_error, looks[0].standard_error)
        assert error < alone
    # The same least squares as the second opinion, but for the draws of where the log is left.
    opinion = fitted_q_evaluation(plans[0], replicates=0)
    assert looks[0].value == pytest.approx(opinion.mean().value, abs=looks[0].standard_error)
    ratio = looks[0].standard_error / opinion.mean().standard_error
    assert ratio == pytest.approx(1.0, abs=0.1)


@pytest.mark.filterwarnings("ignore::fle.FLEWarning")
def test_errors_of_differences_are_what_logs_differ_by():
    """40 logs: the root mean square of z has a standard deviation of about 1 / sqrt(2 * 40) = 0.11.

    Four of them on either side: a false alarm in 15,000, as far as z is normal.
    """
    truth = true_mean(OTHERS[0], "discounted") - true_mean(TARGET, "discounted")
    scores = []
    for seed in range(40):
        _, (first, second) = looked(logged(200, seed), [TARGET, OTHERS[0]], "discounted")
        error = np.linalg.norm(second.influence - first.influence)
        scores.append((second.value - first.value - truth) / error)
    assert np.sqrt(np.mean(np.square(scores))) == pytest.approx(1.0, abs=0.45)


@pytest.mark.filterwarnings("ignore::fle.FLEWarning")
def test_features_of_each_action_are_multiplied_block_by_block():
    """Continuous observations: the product of blocks is that of the whole matrices."""
    generator = np.random.default_rng(0)
    log = logged(300, seed=1)
    noise = 0.1 * generator.standard_normal((len(log), 4))
    data = fle.Dataset(
        observations=np.eye(4)[log.observations] + noise,
        actions=log.actions,
        rewards=log.rewards,
        next_observations=np.eye(4)[log.next_observations],
        terminations=log.terminations,
        truncations=log.truncations,
        episodes=log.episodes,
        number_of_actions=2,
    )
    planner = Planner.of(data, Asked(gamma=DISCOUNT, model=MODEL)).survey()
    plan = planner.plan([0.3, 0.7])
    means = CandidateMeans.of(plan, np.ones(1))
    lines = means.used.lines(plan, np.random.default_rng(0))
    after, _ = means._asked(plan, lines)
    assert means.used.features.blocks() == 2
    weighted = means.used.phi * means.used.weights[:, None]
    whole = weighted.T @ after
    found = product(weighted, after, 2)
    np.testing.assert_allclose(found, whole, atol=1e-8 * np.abs(whole).max())


@pytest.mark.parametrize("horizon", [None, 3])
@pytest.mark.parametrize("varied", [False, True])
def test_products_are_those_of_half_the_class_and_of_squares(horizon, varied):
    """What is taken over from other equations is what these would have made."""
    generator = np.random.default_rng(0)
    phi, after, drawn = generator.normal(size=(3, 40, 6))
    discounts = np.where(generator.random(40) < 0.2, 0.0, 0.9 - 0.3 * varied * generator.random(40))
    equations = Equations(
        phi=phi,
        after=0.3 * after * discounts[:, None],
        drawn=0.3 * drawn * discounts[:, None],
        discounts=discounts,
        rewards=(generator.normal(size=(40, 1)),) * (horizon or 1),
        weights=generator.random(40),
        groups=np.arange(40),
        starts=phi[:5],
        drawn_starts=phi[:5],
        stages=None if horizon is None else (np.arange(40),) * horizon,
    )
    half = equations.columns(np.arange(3))
    for one in (equations, half, half.of_squares(half.solved())):
        np.testing.assert_allclose(one.solved().theta, replace(one, made=()).solved().theta)


@pytest.mark.filterwarnings("ignore::fle.errors.FLEWarning")
@pytest.mark.parametrize("horizon", [None, 2])
def test_pairs_that_were_never_logged_are_counted(horizon):
    """One state; half of the policy's actions were never logged. By hand: 0.5 a step."""
    data = fle.Dataset(
        observations=np.zeros(6, int),
        actions=np.zeros(6, int),
        rewards=np.arange(6.0) - 2.0,
        next_observations=np.zeros(6, int),
        terminations=np.zeros(6, bool),
        truncations=np.arange(6) % 3 == 2,
        episodes=np.arange(6) // 3,
        number_of_actions=2,
    )
    how = {"gamma": DISCOUNT} if horizon is None else {"horizon": horizon, "rows": "all"}
    plan = fle.plan(data, np.array([[0.5, 0.5]]), model=MODEL, recipe={"trace": 0.0}, **how)
    found = fitted_q_evaluation(plan, replicates=0)
    # What follows a pair that was never logged is not known either, and counts as nothing.
    kept = 0.5 * (DISCOUNT if horizon is None else 1.0)
    visits = 0.5 * sum(kept**step for step in range(horizon or 200))
    size = np.hypot(found.means[0].value, found.stds[0].value)
    assert found.class_errors[0] == pytest.approx(visits * size, rel=1e-3)
    assert f"{visits:.2g} visits an episode" in found.remarks[0]
    # The one logged pair is what a policy that takes it is worth.
    look = CandidateMeans.of(plan, np.ones(1)).look(plan)
    assert look.unseen == pytest.approx(2 * visits * abs(look.value), rel=1e-3)
