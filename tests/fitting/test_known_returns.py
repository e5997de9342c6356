"""Fits against exact answers.

The truth is taken of the MDP that the rows themselves describe, so that sampling error drops out
and the tolerances are for the fit alone.
"""

from dataclasses import replace

import numpy as np
import pytest
from quick_fits import GMM, QUICK, ROWS

import fle
from fle.returns import cvar
from fle.tasks import TabularMDP, random_mdp, random_policy

HORIZON = 3
NORMAL = fle.Gaussian(hidden=(32, 32))
POLICY = random_policy(4, 2, seed=1)
DATA = fle.Dataset(
    **random_mdp(4, 2, seed=0, horizon=HORIZON, termination=0.2).offline_data(ROWS, seed=2)
)


def empirical_mdp():
    """The MDP of the logged frequencies, started where the data starts."""
    pair = DATA.observations, DATA.actions
    values, kinds = np.unique(DATA.rewards[:, 0].astype(int), return_inverse=True)
    moves, rewards, ends = np.zeros((4, 2, 4)), np.zeros((4, 2, values.size)), np.zeros((4, 2))
    goes_on = ~DATA.terminations
    np.add.at(moves, (*(p[goes_on] for p in pair), DATA.next_observations[goes_on]), 1)
    np.add.at(rewards, (*pair, kinds), 1)
    np.add.at(ends, pair, DATA.terminations)
    return TabularMDP(
        transitions=moves / moves.sum(axis=2, keepdims=True),
        reward_values=values,
        reward_probabilities=rewards / rewards.sum(axis=2, keepdims=True),
        terminations=ends / rewards.sum(axis=2),
        initial=np.bincount(DATA.initial_observations, minlength=4)
        / len(DATA.initial_observations),
        horizon=HORIZON,
    )


def nearest_pmf(samples, support):
    """Share of the samples nearest to each point of an integer support."""
    places = np.clip(np.round(samples).astype(int) - support[0], 0, len(support) - 1)
    return np.bincount(places, minlength=len(support)) / len(samples)


@pytest.fixture(scope="module", params=["gmm", "categorical"])
def finite_horizon(request):
    # 49 atoms: fine enough that a return is read off as the nearest whole number.
    spec = {"gmm": GMM, "categorical": fle.Categorical(atoms=49, hidden=(32, 32))}[request.param]
    return fle.evaluate(DATA, POLICY, horizon=HORIZON, model=spec, recipe=QUICK)


def test_finite_horizon_law(finite_horizon):
    support, pmf = empirical_mdp().policy_pmf(POLICY)
    ours = nearest_pmf(finite_horizon.returns.samples[:, 0], support)
    # 5% of the rows are held out, which moves the truth by about 0.01; the rest is for training
    # and, with atoms, for the projection's diffusion.
    assert 0.5 * np.abs(ours - pmf).sum() < 0.08


def test_sums_of_whole_rewards_are_whole(finite_horizon):
    assert np.all(finite_horizon.returns.samples % 1 == 0)
    assert np.all(finite_horizon.at(0, 0, step=1).samples % 1 == 0)


def test_finite_horizon_law_at_every_pair_and_step(finite_horizon):
    mdp = empirical_mdp()
    for step in range(HORIZON):
        support, pmf = mdp.exact_pmf(POLICY, step)
        for state, action in [(0, 0), (1, 1), (3, 0)]:
            law = finite_horizon.at(state, action, step=step)
            mean = pmf[state, action] @ support
            std = np.sqrt(pmf[state, action] @ (support - mean) ** 2)
            assert abs(law.mean() - mean) < 0.2 * std
            assert law.std() == pytest.approx(std, rel=0.15)


def test_records_tell_the_truth_at_the_end(finite_horizon):
    records = finite_horizon.records
    assert [record.stage for record in records] == [1, 2, 3]
    assert [record.discount for record in records] == [0.0, 1.0, 1.0]
    assert all(record.step is None for record in records)
    for record in records:
        assert np.isfinite([record.loss, record.held_out_loss]).all()
        assert record.seconds > 0
        assert record.mean.shape == record.std.shape == record.cvar.shape == (1,)
    support, pmf = empirical_mdp().policy_pmf(POLICY)
    mean = pmf @ support
    std = np.sqrt(pmf @ (support - mean) ** 2)
    tail = cvar(support, 0.1, weights=pmf)
    # A fit within 0.1 std, and 5 standard errors of 8192 draws; CVaR rests on a tenth of them.
    assert abs(records[-1].mean[0] - mean) < (0.1 + 5 / np.sqrt(8192)) * std
    assert abs(records[-1].std[0] - std) < (0.1 + 5 / np.sqrt(8192)) * std
    assert abs(records[-1].cvar[0] - tail) < (0.2 + 5 / np.sqrt(819)) * std


def test_held_out_loss_is_in_the_units_of_the_rewards():
    # Of a normal reward with std s the entropy is log(s sqrt(2 pi e)); 5 standard errors of about
    # 200 held-out rows (std of the log density: sqrt(1/2)), and 0.03 for the fit.
    generator = np.random.default_rng(0)
    columns = {
        "observations": np.arange(ROWS) % 4,
        "actions": generator.integers(2, size=ROWS),
        "next_observations": np.zeros(ROWS, int),
        "terminations": np.ones(ROWS, bool),
        "truncations": np.zeros(ROWS, bool),
    }
    noise = generator.standard_normal(ROWS)
    for std in (0.01, 100.0):
        data = fle.Dataset(**columns, rewards=std * noise)
        (record,) = fle.evaluate(data, POLICY, gamma=0.0, model=NORMAL, recipe=QUICK).records
        entropy = np.log(std * np.sqrt(2 * np.pi * np.e))
        assert abs(record.held_out_loss - entropy) < 5 * np.sqrt(0.5 / 200) + 0.03


@pytest.mark.parametrize("spec", [NORMAL, GMM], ids=["gaussian", "gmm"])
def test_discounted_moments(spec):
    gamma = 0.7
    mean, variance = empirical_mdp().discounted_moments(POLICY, gamma)
    # As discounted fits are trained: one decay over all stages. 0.7^14 is below 0.01.
    training = replace(QUICK, steps=500, schedule="fit", frame_tolerance=0.1, start="previous")
    result = fle.evaluate(DATA, POLICY, gamma=gamma, stages=14, model=spec, recipe=training)
    for state, action in [(0, 0), (1, 1), (2, 0), (3, 1)]:
        law, std = result.at(state, action), np.sqrt(variance[state, action])
        # The rows held out (5%, 25 of the 500 of a pair) and training, as above.
        assert abs(law.mean() - mean[state, action]) < 0.15 * std
        assert law.std() == pytest.approx(std, rel=0.15)


def test_rewards_that_are_all_zero_give_zero_at_every_stage():
    # Zero is an atom of every stage: no blur is left that a frame could be taken from.
    data = fle.Dataset(
        observations=DATA.observations,
        actions=DATA.actions,
        rewards=np.zeros(ROWS),
        next_observations=DATA.next_observations,
        terminations=DATA.terminations,
        truncations=DATA.truncations,
        initial_observations=np.arange(4),
    )
    small = fle.GMM(components=2, hidden=(4,))
    with pytest.warns(fle.FLEWarning, match="point mass"):
        result = fle.evaluate(data, POLICY, gamma=0.9, stages=12, model=small, recipe={"steps": 50})
    assert np.isfinite([record.loss for record in result.records]).all()
    assert np.all(result.returns.samples == 0)
    assert result.fits[-1].frame.scale[0] == 1
