"""The draws of r + discount * y that the likelihood is taken of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import build, transition, with_outputs
from scipy import stats

import fle
from fle.models.law import pick
from fle.models.objectives import draw_updates, next_laws

SHIFTS = 20_000
PROBABILITIES = np.array([0.5, 0.3, 0.2])


def drawn(draws):
    """(SHIFTS, draws) updates of 0.5 + 0.8 y; action 0, 10, 20 gives y ~ N(action, 1)."""
    law = with_outputs(build(fle.Gaussian(std=1.0, hidden=())), [0.0], [[0.0], [1.0]])
    laws = next_laws(law, transition(0.5, 0.8, PROBABILITIES, next_actions=[0.0, 10.0, 20.0]))
    shifts = jax.random.uniform(jax.random.key(0), (SHIFTS, 1 + law.noise_size))
    updates = jax.jit(jax.vmap(lambda u: draw_updates(law, laws, u, draws)))(shifts)
    return np.asarray(updates)[:, :, 0]


@pytest.mark.parametrize("draws", [1, 2, 4, 7])
def test_every_draw_of_the_lattice_has_the_right_distribution(draws):
    updates = drawn(draws)
    mean = 0.5 + 0.8 * 10 * (0.3 + 2 * 0.2)
    for column in updates.T:
        actions = np.clip(np.round((column - 0.5) / 8), 0, 2).astype(int)
        counts = np.bincount(actions, minlength=3)
        # False-alarm rate 1e-5 for each of 14 columns and two tests. A normal is misread as a
        # neighbouring action with probability 3e-7.
        assert stats.chisquare(counts, SHIFTS * PROBABILITIES).pvalue > 1e-5
        noise = (column - 0.5) / 0.8 - 10 * actions
        assert stats.kstest(noise, stats.norm.cdf).pvalue > 1e-5
        assert abs(column.mean() - mean) < 5 * column.std() / np.sqrt(SHIFTS)


def test_lattice_means_vary_less_than_independent_ones():
    # Averages of n independent draws have variance var / n; the lattice covers the actions evenly.
    single = drawn(1).var()
    assert drawn(4).mean(axis=1).var() < 0.5 * single / 4


def test_a_single_candidate_needs_no_pick():
    law = with_outputs(build(fle.Gaussian(std=1.0, hidden=())), [3.0])
    laws = next_laws(law, transition(1.0, 0.0))
    updates = draw_updates(law, laws, jnp.asarray([0.4, 0.9]), 3)
    assert np.allclose(updates, 1.0)


def test_pick_by_hand():
    cumulative = jnp.asarray([0.0, 0.25, 0.25, 1.0])
    # Actions of probability zero, the first and the third, are never picked, not even at a tie.
    levels = jnp.asarray([0.0, 0.1, 0.25, 0.9, 1.0])
    assert pick(cumulative, levels).tolist() == [1, 1, 3, 3, 3]


def test_thinned_candidates_follow_their_probabilities():
    row = transition(0.0, 1.0, PROBABILITIES, next_actions=[0.0, 1.0, 2.0])
    levels = jax.random.uniform(jax.random.key(1), (SHIFTS,))
    thinned = jax.jit(jax.vmap(lambda u: row.thinned(u, 2).next_actions[:, 0]))(levels)
    assert np.allclose(row.thinned(jnp.float32(0.3), 2).probabilities, 0.5)
    shares = np.bincount(np.asarray(thinned).astype(int).reshape(-1)) / (2 * SHIFTS)
    # Pairs are evenly spaced, so 5 standard errors of independent picks are more than enough.
    assert np.all(np.abs(shares - PROBABILITIES) < 5 * 0.5 / np.sqrt(2 * SHIFTS))
