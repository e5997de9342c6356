"""`fle.compare`: rankings, paired differences and dominance, on distributions that are known."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from quick_fits import TABLE, TABLE_TRAINING, bandit
from scipy import stats

import fle
from fle.errors import FLEWarning, SettingsError
from fle.fitting import Silent
from fle.fitting.comparison import (
    PAIRS,
    Comparison,
    _paired_starts,
    _returns_from,
)
from fle.fitting.encoding import Fitted, Frame
from fle.models.support import anywhere
from fle.policies import ActionTable
from fle.returns import ReturnDistribution
from fle.returns.intervals import Difference, pairs_of

# Six standard errors of a share: a false alarm in 5e8 comparisons.
SHARE = 6 * np.sqrt(0.25 / PAIRS)
BRIEF = fle.Recipe(steps=2, batch_size=20, weight_decay=0.0)


def known(**samples):
    """A comparison of policies whose returns are these."""
    rows = {name: np.asarray(values, dtype=float) for name, values in samples.items()}
    evaluations = {
        name: SimpleNamespace(
            returns=ReturnDistribution.from_samples(values),
            verdict=SimpleNamespace(level="trust"),
            quick=False,
        )
        for name, values in rows.items()
    }
    paired = {name: values.reshape(len(values), -1) for name, values in rows.items()}
    return Comparison(evaluations, {}, paired, starts=1)


def exact(law, n=4_096):
    """A sample without luck: the middles of n equal shares."""
    return law.ppf((np.arange(n) + 0.5) / n)


RANKED = known(
    sure=np.full(1000, 2.0), wide=np.linspace(-6.0, 12.0, 1000), low=np.linspace(0.5, 1.5, 1000)
)


@pytest.mark.parametrize(
    ("by", "order"),
    [
        # Means 3, 2 and 1.
        ("mean", ["wide", "sure", "low"]),
        # Less is better: a spread of 0, 1/sqrt(12) and 18/sqrt(12); a third of `wide` is a loss.
        ("std", ["sure", "low", "wide"]),
        ("loss", ["sure", "low", "wide"]),
        ("cvar:0.1", ["sure", "low", "wide"]),
        # All of `low` and `sure`, half of `wide` is below 3.
        ("below:3", ["wide", "sure", "low"]),
        ("above:1.9", ["sure", "wide", "low"]),
    ],
)
def test_the_best_comes_first_by_any_measure(by, order):
    ranking = RANKED.ranking(by)
    assert [name for name, _ in ranking] == order
    assert dict(ranking)["wide"] == RANKED.returns["wide"].measure(by)
    assert RANKED.ranking(fle.returns.measure(by)) == ranking


def test_the_mean_orders_what_is_printed():
    lines = repr(RANKED).splitlines()
    assert lines[0] == "Comparison"
    assert lines[1] == "  1. wide: mean 3 (trust)"
    assert lines[3].startswith("  3. low: mean 1")


def test_very_many_policies_are_not_all_held_against_each_other():
    names = [f"p{number}" for number in range(1000)]
    pairs = pairs_of(names)
    # The best with each of 999, and the 998 neighbours after it; all would be 499,500.
    assert len(pairs) == 999 + 998
    assert len(set(pairs)) == len(pairs)
    assert {("p0", "p999"), ("p1", "p2"), ("p998", "p999")} < set(pairs)
    many = known(**{name: [float(place), 1.0] for place, name in enumerate(names[:30])})
    assert len(many.differences()) == len(many.dominance_in_words()) == 29 + 28
    assert len(many.dominance(2)) == 2 * (29 + 28)
    assert "the first is held against every other" in many.pairing()


def test_differences_and_ties_are_counted_once_for_each_pair():
    found = known(a=[1.0, 2.0], b=[1.0, 3.0], c=[0.0, 0.0]).differences()
    assert [(pair.first, pair.second) for pair in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert (found[0].beats, found[0].ties, found[0].mean) == (0.0, 0.5, -0.5)
    assert (found[1].beats, found[1].ties) == (1.0, 0.0)
    turned = known(a=[1.0, 2.0], b=[1.0, 3.0]).differences(["b", "a"])
    assert [(pair.first, pair.second, pair.beats) for pair in turned] == [("b", "a", 0.5)]


def holding(comparison, order):
    return {(one.first, one.second) for one in comparison.dominance(order) if one.holds}


def test_a_shift_dominates_in_the_first_order():
    comparison = known(high=exact(stats.norm(1, 1)), low=exact(stats.norm(0, 1)))
    assert holding(comparison, 1) == holding(comparison, 2) == {("high", "low")}
    assert comparison.dominance_in_words() == ["high dominates low in the first order"]
    # max over z of Phi(z) - Phi(z - 1) is at z = 1/2: 2 Phi(1/2) - 1 = 0.3829. What sampling could
    # explain is taken off: at most 4 sqrt(2 * 0.25 / 4096) = 0.044.
    back = next(one for one in comparison.dominance(1) if one.first == "low")
    assert 0.3829 - 0.045 < back.violation < 0.3829
    assert next(one for one in comparison.dominance(1) if one.first == "high").violation == 0


def test_less_spread_around_the_same_mean_dominates_in_the_second_order_only():
    comparison = known(calm=exact(stats.norm(0, 1)), wild=exact(stats.norm(0, 2)))
    assert holding(comparison, 1) == set()
    assert holding(comparison, 2) == {("calm", "wild")}
    assert comparison.dominance_in_words(["wild", "calm"]) == [
        "calm dominates wild in the second order only"
    ]
    # The largest E[(z - wild)+] - E[(z - calm)+] is at z = 0: (2 - 1) / sqrt(2 pi) = 0.399. Four
    # standard errors there: both have variance s² (1/2 - 1/(2 pi)), so 4 sqrt(5 * 0.341 / 4096).
    back = next(one for one in comparison.dominance(2) if one.first == "wild")
    assert 0.399 - 0.085 < back.violation < 0.399


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
def test_dominance_does_not_depend_on_where_returns_lie(offset):
    calm, wild = exact(stats.norm(offset, 1)), exact(stats.norm(offset, 2))
    assert holding(known(calm=calm, wild=wild), 2) == {("calm", "wild")}


def test_point_masses():
    comparison = known(two=np.full(50, 2.0), one=np.ones(50), also=np.ones(50))
    assert holding(comparison, 1) == holding(comparison, 2)
    assert comparison.dominance_in_words()[2].startswith("one and also cannot be told apart")
    assert ("two", "one") in holding(comparison, 1)
    assert ("one", "two") not in holding(comparison, 2)


def test_where_each_is_better_somewhere_neither_dominates():
    # The second has the larger mean and the worse lower tail.
    comparison = known(calm=exact(stats.norm(0, 1)), wild=exact(stats.norm(1, 3)))
    assert holding(comparison, 1) == holding(comparison, 2) == set()
    assert comparison.dominance_in_words() == ["neither of calm and wild dominates the other"]


def test_two_samples_of_one_distribution_cannot_be_told_apart():
    """By simulation, one pair of samples in a hundred would be."""
    generator = np.random.default_rng(0)
    comparison = known(a=generator.normal(size=PAIRS), b=generator.normal(size=PAIRS))
    assert holding(comparison, 1) == {("a", "b"), ("b", "a")}
    assert "cannot be told apart" in comparison.dominance_in_words()[0]


@pytest.mark.parametrize("order", [0, 3, "first"])
def test_orders_of_dominance(order):
    with pytest.raises(SettingsError, match=f"order: expected 1 or 2, got {order!r}"):
        RANKED.dominance(order)


class NormalReturn(eqx.Module):
    """Return = observation + action + noise, in the place of a fitted law."""

    spread: float
    noise_size: int = eqx.field(static=True, default=1)

    def sample(self, inputs, uniforms):
        return (inputs[0] + inputs[1] + self.spread * norm.ppf(uniforms[0]))[None]


def drawn(spread, starts, probabilities, seed):
    encoder = SimpleNamespace(
        inputs=lambda x, a: np.stack([x[:, 0], a], axis=1).astype(np.float32),
        reward_unit=np.array([2.0]),
        reward_centre=np.zeros(1),
    )
    frame = Frame(jnp.zeros(1), jnp.ones(1))
    fitted = Fitted(NormalReturn(jnp.asarray(spread)), frame, anywhere(1))
    actions = np.tile(np.arange(len(probabilities)), (len(starts), 1))
    table = ActionTable(actions, np.tile(probabilities, (len(starts), 1)))
    planned = SimpleNamespace(
        data=SimpleNamespace(require_initial_observations=lambda: starts),
        target=SimpleNamespace(initial=table),
    )
    problem = SimpleNamespace(gamma=0.5, horizon=None)
    model = SimpleNamespace(any_shape=False)
    evaluation = SimpleNamespace(fits=(fitted,), encoder=encoder, problem=problem, model=model)
    which = _paired_starts(len(starts), 0)
    return _returns_from(evaluation, planned, which, np.random.default_rng(seed))[:, 0]


def test_starts_are_shared_and_the_rest_is_independent():
    # Starts far apart: unpaired, each would win about half; paired, the start cancels.
    starts = np.array([[-100.0], [0.0], [100.0]])
    ours = drawn(1.0, starts, [0.0, 1.0], 1)
    theirs = drawn(1.0, starts, [1.0, 0.0], 2)
    pair = Difference.of("a", "b", ours, theirs)
    # Units of 2: the difference is 2 * N(1, 2), so the first wins with Phi(1 / sqrt(2)).
    assert pair.beats == pytest.approx(0.76025, abs=SHARE)
    assert pair.mean == pytest.approx(2, abs=6 * 2 * np.sqrt(2 / PAIRS))
    assert pair.ties == 0
    # 5% and 95% quantiles: 2 * (1 -+ 1.64485 sqrt(2)); the density there is about 0.036.
    assert pair.low == pytest.approx(2 - 4.6523, abs=6 * np.sqrt(0.05 * 0.95 / PAIRS) / 0.036)
    assert pair.high == pytest.approx(2 + 4.6523, abs=6 * np.sqrt(0.05 * 0.95 / PAIRS) / 0.036)
    rest = ours - 2 * starts[_paired_starts(3, 0), 0]
    other = theirs - 2 * starts[_paired_starts(3, 0), 0]
    assert abs(np.corrcoef(rest, other)[0, 1]) < 6 / np.sqrt(PAIRS)


def test_actions_follow_the_policy():
    # No noise: the return is twice the action, 1 with probability 0.3.
    returns = drawn(0.0, np.zeros((1, 1)), [0.7, 0.3], 3)
    assert set(np.round(returns, 5)) == {0.0, 2.0}
    assert np.mean(returns > 1) == pytest.approx(0.3, abs=SHARE)


def test_all_starts_are_used_equally():
    counts = np.bincount(_paired_starts(60, 5))
    assert counts.max() - counts.min() <= 1
    assert len(counts) == 60


def two_armed(rewards=None, **columns):
    """Action 1 earns 1 more than action 0."""
    actions = np.arange(400) % 2
    noise = np.random.default_rng(0).normal(size=400)
    return bandit(actions + noise if rewards is None else rewards, actions, **columns)


POLICIES = {"bad": [0.9, 0.1], "good": [0.1, 0.9]}


def test_policies_on_one_log(tmp_path):
    titles = []

    class Heard(Silent):
        def start(self, stages, title):
            titles.append(title)

    settings = {"horizon": 1, "model": TABLE, "recipe": TABLE_TRAINING, "progress": Heard()}
    found = fle.compare(two_armed(), POLICIES, **settings, out=tmp_path)
    assert [name for name, _ in found.ranking()] == ["good", "bad"]
    assert [title.split(":")[0] for title in titles] == ["bad", "good"]
    (pair,) = found.differences(["good", "bad"])
    # 0.8 more of an action that earns 1 more. An arm has 200 rows: a standard error of
    # 0.8 sqrt(2 / 200) = 0.08; and the fit.
    assert pair.mean == pytest.approx(0.8, abs=5 * 0.08 + 0.05)
    # Each alone is what `evaluate` gives, and is found in its run directory.
    assert np.array_equal(
        fle.load(tmp_path / "good").returns.samples, found.returns["good"].samples
    )
    assert "400 logged starts" in found.pairing()
    # A comparison of the same runs is the same, whatever stands beside a policy.
    again = fle.compare(two_armed(), POLICIES, **settings, out=tmp_path)
    assert again.differences() == found.differences()


def test_policies_without_coverage_are_refused():
    alone = two_armed(number_of_actions=3)
    policies = {"unseen": [0.0, 0.0, 1.0], "seen": [0.5, 0.5, 0.0]}
    settings = {"horizon": 1, "model": TABLE, "recipe": BRIEF}
    with pytest.warns(FLEWarning, match="^unseen: "):
        found = fle.compare(alone, policies, **settings)
    assert list(found.evaluations) == list(found.paired) == ["seen"]
    assert list(found.refused) == ["unseen"]
    assert found.differences() == found.dominance() == []
    assert "no estimate for unseen: 100.0% of its actions were never logged" in repr(found)
    assert found.refused["unseen"].coverage.share_unseen == 1.0
    with pytest.warns(FLEWarning):
        found = fle.compare(alone, policies, **settings, anyway=True)
    assert list(found.evaluations) == ["unseen", "seen"]
    assert found.refused == {}


def test_nobody_is_left():
    with pytest.warns(FLEWarning):
        found = fle.compare(
            two_armed(number_of_actions=3), {"unseen": [0.0, 0.0, 1.0]}, gamma=0.5, recipe=BRIEF
        )
    assert found.ranking() == []
    assert found.problem.gamma == 0.5


def test_vector_rewards_are_ranked_by_a_weighted_sum():
    actions = np.arange(400) % 2
    rewards = np.stack([actions, -2.0 * actions], axis=1)
    data = two_armed(rewards, reward_names=("gain", "cost"))
    settings = {"horizon": 1, "model": TABLE, "recipe": TABLE_TRAINING}
    found = fle.compare(data, POLICIES, **settings, weights=[1, 1])
    assert found.summed() == ", of the weighted sum 1 gain + 1 cost"
    # The sum is minus the action.
    assert [name for name, _ in found.ranking()] == ["bad", "good"]
    alone = found.evaluations["bad"].returns.scalarize([1, 1])
    assert found.returns["bad"].mean() == alone.mean()
    (pair,) = found.differences()
    # -0.1 + 0.9, known exactly: noise is that of the fit and of the pairs.
    assert pair.mean == pytest.approx(0.8, abs=0.05 + 6 * 3 / np.sqrt(PAIRS))
    with pytest.raises(SettingsError, match="one number, but there are 2 rewards: gain, cost"):
        fle.compare(data, POLICIES, **settings)
    with pytest.raises(SettingsError, match=r"expected 2 finite numbers, for gain, cost; got \[1"):
        fle.compare(data, POLICIES, **settings, weights=[1.0])
    with pytest.raises(SettingsError, match="finite"):
        fle.compare(data, POLICIES, **settings, weights=[1.0, np.nan])


def test_what_cannot_be_compared():
    with pytest.raises(SettingsError, match="policies: expected at least one, got none"):
        fle.compare(two_armed(), {}, gamma=0.5)
    with pytest.raises(SettingsError, match="weights is for several rewards"):
        fle.compare(two_armed(), POLICIES, gamma=0.5, weights=[2.0])
    with pytest.raises(SettingsError, match="neither was given"):
        fle.compare(two_armed(), POLICIES)
    one = fle.plan(two_armed(), [0.5, 0.5], gamma=0.5)
    other = fle.plan(two_armed(), [0.5, 0.5], gamma=0.6)
    with pytest.raises(SettingsError, match="same data and problem, got others for 'a' and 'b'"):
        Comparison.of({"a": one, "b": other})
    moved = fle.plan(
        two_armed(np.linspace(0, 1, 400)), [0.5, 0.5], gamma=0.5, stages=one.problem.stages
    )
    with pytest.raises(SettingsError, match="same data"):
        Comparison.of({"a": one, "b": dataclasses.replace(moved, problem=one.problem)})


def test_what_is_no_mapping_or_no_data_set_is_named():
    frame = {"observation": [0.0, 1.0]}
    for data, policies, expected in (
        (None, [1, 2], "policies: expected a mapping from names to policies"),
        (
            frame,
            {"one": None},
            "data: expected a fle.Dataset, got dict; make one of it",
        ),
    ):
        with pytest.raises(SettingsError, match=expected):
            fle.compare(data, policies, horizon=1)
