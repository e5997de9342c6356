"""A budget is spent on policies that may be the best; what became of the others is said."""

import re

import jax
import numpy as np
import pytest

import fle
from fle.errors import SettingsError
from fle.fitting import contest as contests
from fle.fitting.contest import Contest
from fle.fitting.planning import Asked, LogFacts, Planner
from fle.report.comparison_page import render_comparison
from fle.returns import measure
from fle.screen import Silent
from fle.tasks import random_mdp, random_policy

TASK = random_mdp(5, 2, seed=4, termination=0.1)
DATA = fle.Dataset(**TASK.offline_data(2_000, seed=0))
GAMMA = 0.6
MODEL = fle.Gaussian(std=1.0, hidden=())
BRIEF = fle.Recipe(steps=40, batch_size=200, learning_rate=0.05, weight_decay=0.0)
SETTINGS = {"gamma": GAMMA, "model": MODEL, "recipe": BRIEF, "second_opinions": False}
pytestmark = pytest.mark.filterwarnings("ignore::fle.FLEWarning")


def policies(number):
    return {f"p{seed}": random_policy(5, 2, seed) for seed in range(number)}


def true_mean(policy):
    means, _ = TASK.discounted_moments(policy, GAMMA)
    return float(np.sum(TASK.initial[:, None] * policy * means))


TRUTH = {name: true_mean(policy) for name, policy in policies(12).items()}
BEST = max(TRUTH, key=TRUTH.get)


@pytest.fixture(scope="module")
def found():
    return fle.compare(DATA, policies(12), **SETTINGS, budget=3, progress=Silent())


def test_every_policy_is_fitted_dropped_or_undecided(found):
    assert BEST in found.evaluations
    assert len(found.evaluations) <= 3
    assert sorted([*found.evaluations, *found.unfitted]) == sorted(TRUTH)
    values = [left.value for left in found.unfitted.values()]
    assert values == sorted(values, reverse=True)
    for name, left in found.unfitted.items():
        assert left.look == "least squares"
        assert left.worse == (left.lead > left.margin)
        # 2,000 rows of 10 pairs; rewards and returns have a spread of about 1 to 2.
        assert left.value == pytest.approx(TRUTH[name], abs=0.4)
        assert ("dropped" if left.worse else "the budget was spent") in left.in_words()
    # Whoever is dropped is worse in truth: an error has a chance of at most 5% for this log.
    assert all(TRUTH[name] < TRUTH[BEST] for name, left in found.unfitted.items() if left.worse)
    assert any(left.worse for left in found.unfitted.values())


def test_the_answer_says_what_became_of_all(found):
    text = repr(found)
    assert all(name in text for name in TRUTH)
    table = found.columns()
    assert table["policy"] == [*(n for n, _ in found.ranking()), *found.unfitted]
    assert set(table["verdict"]) & {"dropped", "undecided"}
    page = render_comparison(found, measure("mean"), "t")
    assert "Without a full fit" in page
    assert "the best of all is among them is at most 5%" in page
    assert all(f">{name}</th>" in page for name in TRUTH)


def test_without_need_nobody_is_left_out():
    few = dict(list(policies(3).items()))
    found = fle.compare(DATA, few, **SETTINGS, budget=3, progress=Silent())
    assert list(found.evaluations) == list(few)
    assert found.unfitted == {}


def test_one_compilation_serves_all(caplog):
    # Policies that need different numbers of stages, one of them with a single action a state.
    given = {**policies(4), "first": lambda states: np.zeros(len(states), int)}
    # Steps that no other test has, so that nothing was compiled before.
    recipe = fle.Recipe(steps=41, batch_size=200, learning_rate=0.05, weight_decay=0.0)
    settings = SETTINGS | {"recipe": recipe, "anyway": True, "progress": Silent()}
    with jax.log_compiles():
        found = fle.compare(DATA, given, **settings)
    assert len(found.evaluations) == 5
    assert len({len(one.records) for one in found.evaluations.values()}) == 1
    compiled = re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text)
    assert compiled.count("train_stage") == 1


def test_the_logging_policy_is_estimated_once(monkeypatch):
    made = []
    known = LogFacts.logging.func
    monkeypatch.setattr(LogFacts.logging, "func", lambda facts: made.append(1) or known(facts))
    planner = Planner.of(DATA, Asked(**SETTINGS))
    for policy in policies(3).values():
        planner.survey().plan(policy)
        planner.sharing(5).plan(policy)
    assert len(made) <= 1


def contest(given, data=DATA, **how):
    usual = {"by": measure("mean"), "progress": Silent()}
    return Contest.of(Planner.of(data, Asked(**SETTINGS)), given, **usual | how)


def test_answers_of_many_policies_are_not_all_held(monkeypatch):
    given = policies(12)
    assert len(contest(given, budget=1).answers) == 12
    # A table of probabilities takes 2,000 rows and 1,000 starts, times two actions of 8 bytes.
    size = 3_000 * 2 * 8
    monkeypatch.setattr(contests, "KEPT_BYTES", 3.5 * size)
    kept = contest(given, budget=1)
    assert len(kept.answers) <= 3
    name = kept.contenders[0]
    assert np.array_equal(
        kept.plan(name).target.following.probabilities,
        contest({name: given[name]}).plan(name).target.following.probabilities,
    )


def test_hundreds_of_policies_are_asked_one_by_one(monkeypatch):
    """Each is asked for once, in order, and its table is let go of."""
    asked = []

    class Made(dict):
        def __getitem__(self, name):
            policy = super().__getitem__(name)
            asked.append(name)
            return policy

    monkeypatch.setattr(contests, "KEPT_BYTES", 0)
    given = Made({f"p{i}": random_policy(5, 2, i) for i in range(250)})
    small = fle.Dataset(**TASK.offline_data(200, seed=0, initial=20))
    chosen = contest(given, small, budget=5)
    assert asked == list(given)
    assert len(chosen.contenders) <= 5
    assert len(chosen.unfitted) == 250 - len(chosen.contenders)
    assert chosen.answers == {}


@pytest.mark.parametrize("by", ["cvar:0.1", "below:0"])
def test_another_measure_is_looked_at_by_short_fits(by):
    given = {name: policies(12)[name] for name in (BEST, "p0", "p1")}
    chosen = contest(given, budget=1, by=measure(by))
    assert len(chosen.contenders) == 1
    assert {left.look for left in chosen.unfitted.values()} == {"a first look"}
    assert all(left.margin > 0 for left in chosen.unfitted.values())
    # The best first: of a chance of losing the least, in its own units.
    values = [left.value for left in chosen.unfitted.values()]
    assert values == sorted(values, reverse=measure(by).direction > 0)
    assert by != "below:0" or all(0 < value < 1 for value in values)


def test_a_budget_is_a_number_of_fits():
    with pytest.raises(SettingsError, match="budget: expected a whole number"):
        fle.compare(DATA, policies(2), **SETTINGS, budget=0)


def test_an_error_says_whose_it_is():
    def broken(states):
        return np.full((len(states), 2), np.nan)

    with pytest.raises(fle.errors.PolicyError, match="policy strange: "):
        fle.compare(DATA, {**policies(2), "strange": broken}, **SETTINGS)
