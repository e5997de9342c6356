"""Where returns can lie, as logged rewards and drawn targets show it."""

import warnings

import numpy as np
import pytest
from quick_fits import GMM, bandit

import fle
from fle.models.support import (
    LEAST_TIES,
    MOST_ATOMS,
    OTHERS,
    WIDEST,
    Lattice,
    atoms_of,
    lattice_of,
    return_limits,
    support_of,
)

TARGETS = 8_192
BANDITS = 50_000
# The usual training, without the choice of a weight decay.
PLAIN = fle.Recipe(weight_decay=0.0)


def limits(rewards, ended, gamma, horizon=None):
    rewards = np.asarray(rewards, float).reshape(len(rewards), -1)
    found = return_limits(rewards, np.asarray(ended, bool), gamma, horizon)
    return [(low.tolist(), high.tolist()) for low, high in found]


def test_constant_rewards_add_up_until_the_end():
    # 1; then 1 (ended) to 1 + 0.5; then 1 to 1 + 0.5 * 1.5.
    assert limits([1, 1], [0, 1], 0.5, 3) == [([1], [1]), ([1], [1.5]), ([1], [1.75])]


def test_without_an_end_the_least_return_grows_too():
    assert limits([1], [0], 0.5, 2) == [([1], [1]), ([1.5], [1.5])]


def test_limits_are_those_of_the_rewards_and_no_more():
    # The end earns -1, the way 1: over two steps -1 or 1 - 1 = 0 at the least, 1 + 1 at the most.
    assert limits([1, -1], [0, 1], 1.0, 2) == [([-1], [1]), ([-1], [2])]


def test_where_all_rows_end_there_is_one_step():
    assert limits([1, 4, -2], [1, 1, 1], 0.9, 3) == [([-2], [4])] * 3
    assert limits([1, 4, -2], [1, 1, 1], 0.9) == [([-2], [4])]


def test_limits_of_a_discounted_problem_repeat_themselves():
    # The least is -1 / (1 - 0.75) on the way for ever; the most to end at once with 5, as 5 beats
    # 1 + 0.75 * 5 = 4.75, but not 2 + 0.75 * 5.
    assert limits([-1, 1, 5], [0, 0, 1], 0.75) == [([-4], [5])]
    assert limits([-1, 2, 5], [0, 0, 1], 0.75) == [([-4], [8])]


def test_limits_hold_for_every_sequence_of_rewards():
    generator = np.random.default_rng(0)
    rewards, ended = generator.normal(size=12), np.arange(12) % 3 == 0
    (low,), (high,) = return_limits(rewards[:, None], ended, 0.8, None)[0]
    least, largest = np.inf, -np.inf
    for _ in range(2_000):
        total, weight, over = 0.0, 1.0, False
        extreme = generator.random() < 0.5
        while not over and weight > 1e-8:
            row = generator.integers(12)
            if extreme:
                row = np.argmin(np.where(ended, np.inf, rewards))
            total, weight, over = total + weight * rewards[row], 0.8 * weight, ended[row]
        least, largest = min(least, total), max(largest, total)
    assert low <= least + 1e-6
    assert largest <= high
    # Reached: by the way that never ends.
    assert least == pytest.approx(low, abs=1e-6)


def test_every_coordinate_has_limits_of_its_own():
    assert limits([[1, -2], [1, -2]], [0, 0], 1.0, 2)[1] == ([2, -4], [2, -4])


def found_atoms(targets):
    atoms, bands = atoms_of(targets)
    number = int(np.isfinite(atoms).sum())
    assert np.all(np.isinf(atoms[number:]))
    assert np.all(bands[number:] == 0)
    return atoms[:number], bands[:number]


def test_a_lattice_has_an_atom_a_value():
    generator = np.random.default_rng(0)
    targets = generator.choice([-0.02, 0.0, 0.3], TARGETS)
    atoms, bands = found_atoms(targets)
    assert np.array_equal(atoms, [-0.02, 0.0, 0.3])
    # Halfway to the nearer neighbour: there is nothing else.
    assert bands == pytest.approx([0.01, 0.01, 0.15])
    # Other returns could be anywhere: never beyond a share of the scale.
    targets[:4] = 40.0, 50.0, 60.0, 70.0
    atoms, bands = found_atoms(targets)
    assert bands == pytest.approx([0.01, 0.01, min(0.15, WIDEST * targets.std())])


def test_the_digits_of_float32_make_no_difference():
    generator = np.random.default_rng(0)
    values = np.float32(generator.choice([0.1, 0.7], TARGETS))
    noise = generator.choice([-1, 0, 1], TARGETS) * np.spacing(values)
    atoms, _ = found_atoms((values + noise).astype(float))
    assert atoms == pytest.approx([0.1, 0.7], rel=1e-6)


def test_a_zero_inflated_return_has_one_atom():
    generator = np.random.default_rng(0)
    positive = np.float32(generator.lognormal(0.0, 1.0, TARGETS))
    targets = np.where(generator.random(TARGETS) < 0.8, 0.0, positive)
    (atom,), (band,) = found_atoms(targets)
    assert atom == 0
    others, own = targets[targets > 0], (targets == 0).sum()
    # It takes few of the others along, and is as wide as that allows.
    assert (others <= band).sum() <= OTHERS * own < (others <= 2.001 * band).sum()


@pytest.mark.parametrize("name", ["standard_normal", "standard_cauchy", "standard_exponential"])
def test_continuous_returns_have_no_atoms(name):
    drawn = getattr(np.random.default_rng(0), name)(TARGETS).astype(np.float32)
    assert found_atoms(drawn.astype(float))[0].size == 0


def test_a_sure_return_is_an_atom():
    atoms, bands = found_atoms(np.full(TARGETS, 3.5))
    assert atoms.tolist() == [3.5]
    # As wide as its frame, a hundredth of its size.
    assert bands == pytest.approx([WIDEST * 0.035])


def test_few_equal_targets_are_no_atom():
    targets = np.random.default_rng(0).standard_normal(TARGETS)
    targets[: LEAST_TIES - 1] = 2.0
    assert found_atoms(targets)[0].size == 0
    targets[:LEAST_TIES] = 2.0
    assert found_atoms(targets)[0].tolist() == [2.0]


def test_of_many_atoms_the_most_frequent_are_kept():
    # A value's number of targets grows with it.
    targets = np.repeat(np.arange(100.0), 10 + np.arange(100))
    atoms, bands = found_atoms(targets)
    assert np.array_equal(atoms, np.arange(100 - MOST_ATOMS, 100))
    # The values that are left out begin one below the least.
    assert bands == pytest.approx([0.5] * MOST_ATOMS)


def test_coordinates_have_atoms_of_their_own():
    generator = np.random.default_rng(0)
    targets = np.stack([generator.integers(2, size=400), generator.normal(size=400)], axis=1)
    support = support_of(targets, (np.zeros(2), np.ones(2)))
    assert np.asarray(support.atoms)[0, :3].tolist() == [0, 1, np.inf]
    assert np.all(np.isinf(support.atoms[1]))


@pytest.mark.parametrize("rows", [60, 1_000])
def test_rows_that_are_used_again_make_no_atoms(rows):
    """Stages are measured on as many targets, however few rows there are."""
    recipe = fle.Recipe(steps=2, batch_size=20, weight_decay=0.0)
    rewards = np.random.default_rng(0).standard_normal(rows)
    model = fle.GMM(2, ())
    result = evaluated(rewards, model=model, recipe=recipe)
    assert np.all(np.isinf(result.fits[-1].support.atoms))
    twice = evaluated(rewards > 0, model=model, recipe=recipe)
    atoms = twice.encoder.reward_unit * np.asarray(twice.fits[-1].support.atoms)[0, :3]
    assert atoms == pytest.approx([0, 1, np.inf], rel=1e-6)
    # What is reported has the digits of the rewards.
    assert set(np.unique(twice.returns.sample(500, seed=0))) >= {0.0, 1.0}


def evaluated(rewards, **settings):
    with warnings.catch_warnings():
        # Of few rows, and of rewards with a heavy tail.
        warnings.simplefilter("ignore", fle.FLEWarning)
        return fle.evaluate(
            bandit(rewards), [1.0], horizon=1, seed=0, progress=fle.fitting.Silent(), **settings
        )


@pytest.fixture(scope="module")
def revenue():
    """Seven of ten earn nothing, the others something: the rewards and what was fitted."""
    generator = np.random.default_rng(0)
    sales = generator.random(BANDITS) < 0.3
    rewards = np.where(sales, generator.lognormal(0.0, 0.8, BANDITS), 0.0)
    return rewards, evaluated(rewards, model=GMM, recipe=PLAIN).returns.sample(200_000, seed=0)


def test_a_zero_inflated_revenue_is_never_lost(revenue):
    rewards, drawn = revenue
    assert drawn.min() == 0
    assert drawn.max() <= np.float32(rewards.max())


def test_a_zero_inflated_revenue_is_zero_as_often_as_logged(revenue):
    rewards, drawn = revenue
    # Five standard errors of the rows, and of the draws.
    error = 5 * np.sqrt(0.3 * 0.7) * (BANDITS**-0.5 + 200_000**-0.5)
    assert np.mean(drawn == 0) == pytest.approx(np.mean(rewards == 0), abs=error)


def test_rare_rewards_survive():
    """A hundred of fifty thousand, fifty standard deviations away."""
    generator = np.random.default_rng(0)
    rewards = generator.standard_normal(BANDITS)
    rewards[generator.permutation(BANDITS)[:100]] -= 50
    drawn = evaluated(rewards, model=GMM, recipe=PLAIN).returns.sample(1_000_000, seed=0)
    share = 100 / BANDITS
    error = 1.3 * np.sqrt(share * (1 - share) / BANDITS)
    assert np.mean(drawn < -40) == pytest.approx(share, abs=error)
    # Nothing in between: the normal rewards end at 4.5.
    assert np.mean((drawn > -40) & (drawn < -8)) < 1e-4


def lattice(values, *, ends=True):
    rewards = np.random.default_rng(0).choice(np.asarray(values, float), (500, 1))
    found = lattice_of(rewards, np.full(500, ends))
    return found.origin.tolist(), found.spacing.tolist()


def test_rewards_on_a_lattice_are_found():
    assert lattice([-1, 0, 2]) == ([0], [1])
    # Nothing ends early: sums of h rewards are h · 5 + 4 k. Else they are multiples of 1.
    assert lattice([5, 9, 17], ends=False) == ([5], [4])
    assert lattice([5, 9, 17]) == ([0], [1])
    # Decimals, as single precision holds them.
    _, (spacing,) = lattice(np.float32([0.1, 0.3, -0.7]))
    assert spacing == pytest.approx(0.1, rel=1e-6)
    # A constant reward until the end: the return counts the steps.
    assert lattice([-1.5]) == ([0], [1.5])


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(1).standard_normal(50),
        # The signal is in the seventh digit, and must not be rounded away.
        [1e6, 1e6 + 1],
        [0.0],
        [1.0, 1.00001],
        [1.0, np.sqrt(2), np.pi],
    ],
)
def test_other_rewards_have_no_lattice(values):
    assert lattice(values) == ([0], [0])


def test_every_coordinate_has_a_lattice_of_its_own():
    found = Lattice(np.array([0.0, 0.0, 0.5]), np.array([0.0, 2.0, 1.0]))
    returns = np.array([[0.3, 2.9, 2.9], [-0.3, 3.1, 0.1]])
    assert found.nearest(returns).tolist() == [[0.3, 2, 2.5], [-0.3, 4, 0.5]]
