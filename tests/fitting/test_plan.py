"""`fle.plan` resolves everything and trains nothing."""

import dataclasses
import inspect

import numpy as np
import pytest
from quick_fits import TABLE, bandit, cycle
from recipe_changes import CHANGES, changed

import fle
from fle.errors import CoverageError, FLEWarning
from fle.fitting.planning import Asked
from fle.recipe import Recipe, resolve

BRIEF = fle.Recipe(steps=2, batch_size=20, weight_decay=0.0)
PROBLEMS = {"finite": {"horizon": 10}, "discounted": {"gamma": 0.9}}


@pytest.fixture
def nothing_is_built(monkeypatch):
    def build(*_):
        raise AssertionError("a law was built")

    for spec in (fle.GMM, fle.Gaussian, fle.Autoregressive, fle.Categorical):
        monkeypatch.setattr(spec, "build", build)


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_nothing_is_trained(problem):
    plan = fle.plan(cycle(), [1.0], **problem)
    # Ten rewards of 0.9 or 1.1 have eleven sums.
    assert plan.model == (fle.Categorical(atoms=11) if "horizon" in problem else fle.GMM())
    assert plan.cost.seconds > 0
    assert repr(plan)
    assert plan.as_plain()["stages"] == len(plan.stages) == plan.problem.stages
    with pytest.raises(AssertionError, match="a law was built"):
        plan.carry_out()


def test_the_policy_is_asked_once():
    data, asked = cycle(200), []

    def policy(observations):
        asked.append(len(observations))
        return np.ones((len(observations), 1))

    plan = fle.plan(data, policy, gamma=0.5, stages=3, model=TABLE, recipe=BRIEF)
    # Every next observation, and every start: each once.
    assert sum(asked) == len(data) + len(data.require_initial_observations())
    calls = len(asked)
    result = plan.carry_out()
    assert np.isfinite(result.returns.mean())
    assert len(asked) == calls


def test_evaluate_is_the_plan_carried_out():
    settings = {"gamma": 0.5, "stages": 2, "model": TABLE, "recipe": BRIEF, "seed": 3}
    plan = fle.plan(cycle(200), [1.0], **settings)
    ours, theirs = plan.carry_out(), fle.evaluate(cycle(200), [1.0], **settings)
    assert np.array_equal(ours.returns.samples, theirs.returns.samples)
    assert (ours.recipe, ours.model, ours.problem) == (plan.recipe, plan.model, plan.problem)
    assert plan.provenance.settings == theirs.provenance.settings


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", CHANGES)
def test_one_setting_changes_that_setting_and_nothing_else(name, problem):
    data = cycle(400)
    if "horizon" not in problem:
        # How far the log is followed decides the number of stages, and that the steps of each.
        problem = {**problem, "stages": 20}
    usual = fle.plan(data, [1.0], **problem).recipe
    value = changed(usual)[name]
    expected = dataclasses.replace(usual, **{name: value})
    assert expected != usual
    for given in (fle.Recipe(**{name: value}), {name: value}):
        assert fle.plan(data, [1.0], **problem, recipe=given).recipe == expected
    # As presets do: what one recipe says, replaced.
    preset = dataclasses.replace(Recipe(), **{name: value})
    assert resolve(preset, usual) == expected


def test_every_setting_is_covered():
    assert list(CHANGES) == [field.name for field in dataclasses.fields(Recipe)]


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_none_leaves_a_setting_to_be_chosen(problem):
    usual = fle.plan(cycle(400), [1.0], **problem)
    assert fle.plan(cycle(400), [1.0], **problem, recipe={"steps": None}).recipe == usual.recipe


def test_decisions_are_noted():
    plan = fle.plan(cycle(100), [1.0], gamma=0.9, horizon=4)
    notes = "\n".join(plan.notes)
    assert "model: GMM" in notes
    assert "batch size 100: all rows there are" not in notes
    assert "returns are discounted by 0.9 and end after 4 steps" in notes
    few = fle.plan(cycle(50), [1.0], gamma=0.9, recipe={"batch_size": 300})
    assert few.recipe.batch_size == 50
    assert "batch size 50: all rows there are" in few.notes
    assert any("stages: targets follow the log for" in note for note in few.notes)
    assert any(
        "3 stages: what the first fit has wrong is still in the last one" in note
        for note in (fle.plan(cycle(100), [1.0], gamma=0.9, stages=3).notes)
    )


def uncovered():
    return bandit(np.random.default_rng(0).normal(size=100), number_of_actions=2)


def test_numbers_that_would_be_extrapolated_are_withheld():
    with pytest.warns(FLEWarning):
        plan = fle.plan(uncovered(), [0.0, 1.0], horizon=1, model=TABLE, recipe=BRIEF)
    assert "100.0% of its actions were never logged there" in plan.withheld
    assert any("never logged" in warning for warning in plan.warnings)
    assert plan.rows()[-1] == ("withheld", f"no headline number: {plan.withheld}")
    with pytest.raises(CoverageError, match=r"No estimate: 100.0% .* anyway=True"):
        plan.carry_out()
    assert np.isfinite(plan.carry_out(anyway=True).returns.mean())
    assert fle.plan(uncovered(), [1.0, 0.0], horizon=1).withheld is None


def test_the_cost_grows_with_the_steps():
    costs = [
        fle.plan(cycle(400), [1.0], gamma=0.9, stages=5, recipe={"steps": steps}).cost
        for steps in (100, 200, 100_000)
    ]
    assert [cost.steps for cost in costs] == [500, 1_000, 500_000]
    batch = fle.plan(cycle(400), [1.0], gamma=0.9).recipe.batch_size
    assert costs[0].row_uses == 500 * batch
    assert 0 < costs[0].seconds < costs[1].seconds < costs[2].seconds
    assert costs[0].in_words().startswith("500 optimiser steps")


def test_a_plan_is_printed():
    plan = fle.plan(cycle(400), [1.0], gamma=0.9, recipe={"steps": 123})
    lines = repr(plan).splitlines()
    assert lines[0] == "Plan"
    assert "  problem   discounted return, gamma = 0.9" in lines
    assert any(line.startswith("  recipe    steps 123, batch_size") for line in lines)
    # As people write numbers: 0.7 times 5e-3.
    assert any("learning_rate 0.0035, " in line for line in lines)
    assert {line.split()[0] for line in lines[1:]} >= {
        *("problem", "data", "policy", "model", "stages", "recipe", "cost", "note")
    }


def test_a_page_shows_it_escaped():
    rewards = np.random.default_rng(0).normal(size=(100, 2))
    hostile = "<script>alert(1)</script>"
    data = bandit(rewards, reward_names=("gain", hostile))
    plan = fle.plan(data, [1.0], horizon=1)
    plan = dataclasses.replace(plan, notes=(*plan.notes, f"about {hostile} & more"))
    page = plan._repr_html_()
    assert hostile not in page
    assert "about &lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert page.count("<tr>") == len(plan.rows())


@pytest.mark.parametrize(
    ("function", "without"),
    [
        (fle.plan, set()),
        (fle.evaluate, set()),
        (fle.compare, {"calibration", "earlier"}),
        (fle.gate, {"interval", "second_opinions", "calibration", "quick", "earlier"}),
    ],
)
def test_what_is_asked_is_the_same_everywhere(function, without):
    """Each has the arguments of a plan with the defaults of a plan, but for what has no sense."""
    asked = {field.name: field.default for field in dataclasses.fields(Asked)}
    given = {
        name: one.default
        for name, one in inspect.signature(function).parameters.items()
        if name in asked
    }
    assert given == {name: value for name, value in asked.items() if name not in without}
