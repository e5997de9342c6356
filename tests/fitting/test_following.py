"""How far a target follows the log: held against an enumeration of all that can happen."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from scipy import stats

import fle
from fle.fitting.following import (
    Lines,
    Trail,
    by_fit,
    discrete_coupling,
    linked_rows,
    normal_coupling,
)
from fle.fitting.measurement import Before
from fle.policies import ActionTable, Behaviour, settle, tabulated

# Logs of a few rows are warned of, and rightly.
pytestmark = pytest.mark.filterwarnings("ignore::fle.FLEWarning")

GAMMA = 0.9
# Of actions 0 and 1 in three states, under the policy and under the one that logged.
POLICY = np.array([[0.7, 0.3], [0.4, 0.6], [1.0, 0.0]])
LOGGING = np.array([[0.2, 0.8], [0.5, 0.5], [0.6, 0.4]])
DRAWS = 20_000


def chain(**columns):
    """Two episodes in three states: four rows that terminate, five that are cut off."""
    states = np.array([0, 1, 2, 0, 1, 2, 2, 0, 1])
    after = np.array([1, 2, 0, 1, 2, 2, 0, 1, 2])
    last = np.isin(np.arange(9), (3, 8))
    fields = {
        "observations": states,
        "actions": np.array([0, 1, 0, 1, 1, 0, 0, 0, 1]),
        "rewards": 2.0 ** np.arange(9),
        "next_observations": after,
        "terminations": last & (np.arange(9) == 3),
        "truncations": last & (np.arange(9) == 8),
        "episodes": np.repeat([0, 1], [4, 5]),
    }
    return fle.Dataset(**{**fields, **columns})


def trail_of(data, trace=1.0, gamma=GAMMA, **changes):
    table = ActionTable.of_probabilities(POLICY[data.next_observations])
    return Trail.of(data, table, data.rewards, gamma, trace, **changes)


def enumerated(data, row, trace, left=None):
    """{(last row, next action or None): (probability, rewards, discount)} by hand."""
    outcomes = defaultdict(float)
    sums = {}
    probability, total, weight = 1.0, 0.0, 1.0
    for end in itertools.count(row):
        total, weight = total + weight * data.rewards[end, 0], weight * GAMMA
        steps, policy = end - row + 1, POLICY[data.next_observations[end]]
        over = data.terminations[end] or steps == left
        sums[end] = (total, 0.0 if over else weight)
        if over:
            outcomes[end, None] += probability
            return outcomes, sums
        if data.truncations[end]:
            for action, chance in enumerate(policy):
                outcomes[end, action] += probability * chance
            return outcomes, sums
        logged = data.actions[end + 1]
        follow = trace * policy[logged]
        for action, chance in enumerate(policy):
            asked = chance - (follow if action == logged else 0)
            outcomes[end, action] += probability * asked
        probability *= follow


@pytest.mark.parametrize("left", [None, 1, 3])
@pytest.mark.parametrize("trace", [0.0, 0.6, 1.0])
def test_lines_have_the_law_of_an_enumeration(trace, left):
    data, generator = chain(), np.random.default_rng(0)
    trail = trail_of(data, trace)
    for row in range(len(data)):
        lines = trail.lines(np.full(DRAWS, row), generator, fit=5, left=left)
        cumulative = np.cumsum(trail.probabilities[lines.ends], axis=1)
        taken = (generator.random((DRAWS, 1)) > cumulative).sum(axis=1)
        outcomes, sums = enumerated(data, row, trace, left)
        for end in np.unique(lines.ends):
            here = lines.ends == end
            assert np.allclose(lines.rewards[here], sums[end][0], rtol=1e-6)
            assert np.allclose(lines.discounts[here], sums[end][1], rtol=1e-6)
            asked = 5 if left is None else 5 - (end - row)
            assert np.all(lines.fits[here] == asked)
        asking = np.where(lines.discounts > 0, taken, -1)
        pairs, counts = np.unique([lines.ends, asking], axis=1, return_counts=True)
        found = defaultdict(float)
        for end, action, count in zip(*pairs.tolist(), counts, strict=True):
            found[end, None if action < 0 else action] = count / DRAWS
        # About 200 outcomes in all; five standard errors of each.
        for outcome in {*outcomes, *found}:
            chance = outcomes[outcome]
            error = 5 * np.sqrt(chance * (1 - chance) / DRAWS)
            assert found[outcome] == pytest.approx(chance, abs=error + 1e-12), (row, outcome)


@pytest.mark.parametrize("trace", [0.0, 0.3, 1.0])
def test_the_next_action_has_the_policys_law_whatever_was_logged(trace):
    data = chain()
    trail = trail_of(data, trace)
    logged = np.eye(2)[np.append(data.actions[1:], 0)]
    law = trail.chance[:, None] * logged + (1 - trail.chance)[:, None] * trail.probabilities
    assert np.allclose(law, POLICY[data.next_observations], atol=1e-12)
    assert np.array_equal(trail.chance > 0, linked_rows(data) & (trail.chance > 0))


def two_rows(state, action):
    """A row that leads to the state, where the action was logged."""
    return fle.Dataset(
        observations=np.array([0, state]),
        actions=np.array([0, action]),
        rewards=np.ones(2),
        next_observations=np.array([state, 2]),
        terminations=np.array([False, True]),
        truncations=np.zeros(2, bool),
        episodes=np.zeros(2, int),
        number_of_actions=2,
    )


@pytest.mark.parametrize("trace", [0.3, 1.0])
@pytest.mark.parametrize("state", range(3))
def test_coupled_with_the_logging_policy_it_is_the_policys_law_on_average(state, trace):
    law, agreement = np.zeros(2), 0.0
    for action in range(2):
        data = two_rows(state, action)
        following = data.next_observations
        coupling = discrete_coupling(data, POLICY[following], LOGGING[following])
        trail = trail_of(data, trace, coupling=coupling)
        chance = trail.chance[0]
        drawn = chance * np.eye(2)[action] + (1 - chance) * trail.probabilities[0]
        law += LOGGING[state, action] * drawn
        agreement += LOGGING[state, action] * chance
    assert np.allclose(law, POLICY[state], atol=1e-12)
    # No coupling of the two is followed more often.
    assert agreement == pytest.approx(trace * np.minimum(POLICY, LOGGING)[state].sum())


def test_normal_policies_are_coupled_by_their_densities():
    """An action of density ratio p/mu is followed with min(1, p/mu), and its draws likewise."""
    data = continuous(np.array([[0.0], [1.0], [-2.0]]))
    mean, std = np.zeros((3, 1)), np.ones((3, 1))
    table = ActionTable.of_draws(np.array([[[0.5], [3.0]]] * 3), (mean, std))
    # Logged by N(1, 1): p/mu = exp(1/2 - a), which is 1 at a = 1/2.
    coupling = normal_coupling(data, table, lambda a: stats.norm.pdf(a[..., 0] - 1))
    assert coupling.accepted[:2] == pytest.approx([np.exp(-0.5), 1.0])
    assert np.allclose(coupling.shared, [1.0, 1.0])
    assert normal_coupling(data, table, lambda a: stats.norm.pdf(a[..., 0] + 1)).shared[
        0
    ] == pytest.approx([np.exp(-1), np.exp(-3.5)])


def random_log(episodes, generator):
    """Whole episodes of the chain x' = (x + a + 1) mod 3, ended with probability 1/5 a step."""
    rows = []
    for episode in range(episodes):
        state, over = int(generator.integers(3)), False
        while not over:
            action = int(generator.random() < LOGGING[state, 1])
            over, after = bool(generator.random() < 0.2), (state + action + 1) % 3
            rows.append((state, action, reward_of(state, action), after, over, episode))
            state = after
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    names = ("observations", "actions", "rewards", "next_observations", "terminations", "episodes")
    flags = {"truncations": np.zeros(len(rows), bool), "number_of_actions": 2}
    return fle.Dataset(**dict(zip(names, columns, strict=True)), **flags)


def reward_of(state, action):
    return 1.0 * state + 3.0 * action


def known_values():
    """Q(x, a) = r + 0.8 gamma sum_b p(b | x') Q(x', b), solved."""
    pairs = [(state, action) for state in range(3) for action in range(2)]
    step = np.zeros((6, 6))
    for place, (state, action) in enumerate(pairs):
        after = (state + action + 1) % 3
        step[place, 2 * after : 2 * after + 2] = POLICY[after]
    rewards = np.array([reward_of(*pair) for pair in pairs])
    return np.linalg.solve(np.eye(6) - 0.8 * GAMMA * step, rewards).reshape(3, 2)


@pytest.mark.parametrize("coupled", [False, True])
def test_a_target_is_right_on_average_where_the_fit_is(coupled):
    data = random_log(4_000, np.random.default_rng(1))
    values, following = known_values(), data.next_observations
    coupling = discrete_coupling(data, POLICY[following], LOGGING[following]) if coupled else None
    trail = trail_of(data, coupling=coupling)
    lines = trail.lines(np.arange(len(data)), np.random.default_rng(2), fit=0)
    asked = np.sum(trail.probabilities * values[following], axis=1)[lines.ends]
    targets = lines.rewards[:, 0] + lines.discounts * asked
    assert np.mean(lines.ends - lines.rows) > 0.5
    for state, action in itertools.product(range(3), range(2)):
        here = targets[(data.observations == state) & (data.actions == action)]
        # Rows of an episode share what follows them, by at most 1/0.2 rows on average.
        error = 5 * np.sqrt(5) * here.std() / np.sqrt(here.size)
        assert here.mean() == pytest.approx(values[state, action], abs=error)


def test_sums_of_rewards_keep_their_digits():
    """Against a plain sum in float64, over episodes of very different rewards."""
    generator = np.random.default_rng(0)
    n = 500
    last = np.arange(n) % 50 == 49
    rewards = generator.normal(size=(n, 2)) * 10.0 ** generator.integers(-2, 4, size=(n, 1))
    data = fle.Dataset(
        observations=np.arange(n)[:, None] * 1.0,
        actions=np.zeros(n, int),
        rewards=rewards,
        next_observations=np.arange(1, n + 1)[:, None] * 1.0,
        terminations=last,
        truncations=np.zeros(n, bool),
        episodes=np.arange(n) // 50,
    )
    table = ActionTable.of_probabilities(np.ones((n, 1)))
    trail = Trail.of(data, table, data.rewards, 0.97, 0.9)
    lines = trail.lines(np.arange(n), generator, fit=0)
    sizes = []
    for row, end, found in zip(lines.rows, lines.ends, lines.rewards, strict=True):
        powers = 0.97 ** np.arange(end - row + 1)
        expected = powers @ rewards[row : end + 1]
        # Half a unit in the last place of float32, and what adding up in float64 loses.
        slack = 6e-8 * np.abs(expected) + 1e-12 * np.abs(rewards).sum()
        assert np.all(np.abs(found - expected) <= slack)
        sizes.append(end - row)
    assert max(sizes) > 20


def test_nothing_follows_before_the_first_fit():
    trail = trail_of(chain(), trace=0.5)
    rows, generator = np.arange(9), np.random.default_rng(0)
    assert np.all(trail.lines(rows, generator, fit=-1).discounts == 0)
    # With a horizon the first fit is of one step; without, of all that the log itself earned.
    finite = Before((None,), last=-1, left=1).lines(trail, rows, generator)
    assert np.array_equal(finite.ends, rows)
    assert np.array_equal(finite.rewards[:, 0], 2.0**rows)
    discounted = Before((None,), last=-1, left=None).lines(trail, rows, generator)
    assert discounted.ends.tolist() == [3] * 4 + [8] * 5
    assert np.all(discounted.discounts == 0)
    to_go = [sum(GAMMA ** (k - row) * 2.0**k for k in range(row, 4)) for row in range(4)]
    assert discounted.rewards[:4, 0] == pytest.approx(to_go)


def test_a_horizon_ends_targets_and_names_the_fit_of_each_step():
    rows, generator = np.arange(9), np.random.default_rng(0)
    # The third stage: three steps to go, fits 0 and 1 are there.
    lines = trail_of(chain()).of_log.lines(rows, generator, fit=1, left=3)
    assert (lines.ends - rows).tolist() == [2, 2, 1, 0, 2, 2, 2, 1, 0]
    # Cut off after two rows or one, with one step or two to go; all others are over.
    assert np.flatnonzero(lines.discounts).tolist() == [7, 8]
    assert lines.discounts[7:] == pytest.approx([GAMMA**2, GAMMA])
    assert lines.fits[7:].tolist() == [0, 1]


def test_rows_that_are_missing_are_not_jumped_over():
    data = chain()
    everything = np.array([True, True, True, False, True, True, True, True, False])
    assert np.array_equal(linked_rows(data), everything)
    # State 2 comes twice in a row: without steps, nobody could tell that rows are missing.
    assert not linked_rows(data.subset(np.delete(np.arange(9), 5))).any()
    known = data.with_steps().subset(np.delete(np.arange(9), 5))
    assert linked_rows(known).tolist() == [1, 1, 1, 0, 0, 1, 1, 0]
    assert linked_rows(data.subset(np.arange(4, 9))).tolist() == [1, 1, 1, 1, 0]
    assert not linked_rows(data.subset(np.arange(9)[::-1])).any()


def test_transitions_without_episodes_are_not_followed():
    data = chain(episodes=None, initial_observations=np.zeros(1, int))
    separate = data.subset(np.arange(9)[::-1])
    assert not linked_rows(separate).any()
    trail = trail_of(separate)
    assert not trail.follows
    assert np.array_equal(trail.probabilities, POLICY[separate.next_observations])


def continuous(actions):
    """One episode of three rows; observations are vectors."""
    return fle.Dataset(
        observations=np.array([[0.0], [0.5], [1.0]]),
        actions=actions,
        rewards=np.array([1.0, 2.0, 4.0]),
        next_observations=np.array([[0.5], [1.0], [1.5]]),
        terminations=np.array([False, False, True]),
        truncations=np.zeros(3, bool),
        episodes=np.zeros(3, int),
    )


def test_gaps_between_vectors_are_seen():
    data = continuous(np.zeros((3, 1)))
    assert linked_rows(data).tolist() == [True, True, False]
    assert not linked_rows(data.subset([0, 2])).any()


@pytest.mark.parametrize("actions", [np.array([0, 1, 1]), np.array([[0.1], [0.2], [0.3]])])
def test_the_policy_that_logged_is_followed_to_the_end(actions):
    data = continuous(actions)
    table = tabulated(settle(Behaviour(), data, seed=0), data, draws=4, seed=0).following
    trail = Trail.of(data, table, data.rewards, GAMMA, 1.0)
    lines = trail.lines(np.arange(3), np.random.default_rng(0), fit=0)
    assert trail.is_certain
    assert lines.ends.tolist() == [2, 2, 2]
    assert lines.rewards[:, 0] == pytest.approx([1 + 1.8 + 4 * GAMMA**2, 2 + 3.6, 4])
    assert np.all(lines.discounts == 0)


def test_other_continuous_actions_are_not_followed():
    data = continuous(np.array([[0.1], [0.2], [0.3]]))
    candidates = np.array([[[0.2], [0.7]], [[0.5], [0.7]], [[0.5], [0.7]]])
    trail = Trail.of(data, ActionTable.of_draws(candidates), data.rewards, GAMMA, 1.0)
    # One of two draws happens to be what was logged.
    assert trail.chance.tolist() == [0.5, 0, 0]
    assert trail.probabilities.tolist() == [[0, 1], [0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("number", [1, 7, 40, 41])
def test_every_line_stands_in_a_block_of_its_fit(number):
    generator = np.random.default_rng(number)
    fits, size = 6, 8
    asked = generator.choice([0, 1, 1, 1, 4], number).astype(np.int32)
    index = np.arange(number, dtype=np.int32)
    lines = Lines(index, index + 1, generator.normal(size=(number, 2)), index / 100, asked)
    placed, places = by_fit(lines, size, fits)
    # As many blocks whatever the fits are, so that nothing is compiled anew.
    assert len(placed.rows) == (-(-number // size) + fits) * size
    assert np.unique(places).size == number
    for before, after in zip(lines, placed, strict=True):
        assert np.array_equal(before, after[places])
    for block in range(len(placed.rows) // size):
        here = slice(block * size, (block + 1) * size)
        used = np.isin(np.arange(here.start, here.stop), places)
        if used.any():
            assert np.unique(placed.fits[here]).size == 1
