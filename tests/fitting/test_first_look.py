"""`quick=True`: less of everything, and marked as such wherever it is shown."""

import dataclasses
import json

import pytest
from quick_fits import TABLE, cycle

import fle
from fle.cli import evaluate_command
from fle.cli.messages import Messages
from fle.recipe import (
    FIRST_LOOK,
    HELD_OUT,
    NEGLIGIBLE,
    QUICK_LEFT,
    Tuning,
    first_look,
    resolve,
    usual,
)

GMM = Tuning(steps=4.0)


@pytest.mark.parametrize(
    ("stages", "repeats", "steps"),
    [
        # 4 * 2,000 steps in all, over the stages.
        (20, 20, 400),
        (20, 1, 400),
        # No more than usual, and no fewer than 50 a stage.
        (1, 1, 6_000),
        (400, 1, 50),
    ],
)
def test_steps_are_few_in_all(stages, repeats, steps):
    chosen = usual(repeats=repeats, rows=1_000, coordinates=2, tuning=GMM)
    quick = first_look(chosen, stages=stages, tuning=GMM)
    assert quick.steps == steps
    assert not quick.occupancy
    assert quick.weight_decay != HELD_OUT
    changed = {n for n, v in vars(quick).items() if v != getattr(chosen, n)}
    assert changed <= {"steps", "weight_decay", "occupancy"}


def test_what_is_given_still_counts():
    chosen = usual(repeats=1, rows=1_000, coordinates=2, tuning=GMM)
    quick = first_look(chosen, stages=2, tuning=GMM)
    assert resolve(fle.Recipe(steps=7, occupancy=True), quick) == dataclasses.replace(
        quick, steps=7, occupancy=True
    )


@pytest.fixture(scope="module")
def planned():
    with pytest.warns(fle.FLEWarning, match="a first look"):
        return fle.plan(cycle(100), [1.0], gamma=0.5, model=TABLE, recipe={"steps": 2}, quick=True)


def test_a_plan_says_what_it_leaves_out(planned):
    full = fle.plan(cycle(100), [1.0], gamma=0.5, model=TABLE, recipe={"steps": 2})
    assert FIRST_LOOK in planned.warnings
    assert FIRST_LOOK not in full.warnings
    assert not planned.second_opinions
    assert full.second_opinions
    assert len(planned.stages) <= len(full.stages)
    assert planned.provenance.identity != full.provenance.identity


def test_fewer_stages_where_little_may_be_left():
    """Of one step at gamma = 0.5: ten times as much may be left after log2(10) = 3.3 fewer."""
    recipe = {"steps": 2, "trace": 0.0}
    with pytest.warns(fle.FLEWarning, match="a first look"):
        quick = fle.plan(cycle(100), [1.0], gamma=0.5, model=TABLE, recipe=recipe, quick=True)
    full = fle.plan(cycle(100), [1.0], gamma=0.5, model=TABLE, recipe=recipe)
    assert round(QUICK_LEFT / NEGLIGIBLE, 6) == 10
    assert len(full.stages) - len(quick.stages) in (3, 4)


def test_it_is_marked_everywhere(planned, tmp_path, monkeypatch):
    result = planned.carry_out()
    assert result.quick
    assert "quick=True" in repr(result)
    assert "a first look" in result._repr_html_()
    assert FIRST_LOOK in result.warnings
    result.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["quick"] is True
    loaded = fle.load(tmp_path / "run")
    assert loaded.quick
    loaded.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "A first look, estimated from logged data alone" in page
    assert FIRST_LOOK in page
    # Where nothing can draw, the page has the tables, and says so.
    monkeypatch.setattr(evaluate_command, "DRAWING", ("no_such_package",))
    messages = Messages()
    context = evaluate_command.Context("", "", ("a <warning>",))
    tables = evaluate_command.draw_report(loaded, tmp_path / "tables.html", context, messages, None)
    assert "tables and no charts, as no_such_package is missing" in messages.warnings[0]
    page = tables.read_text()
    assert "a first look" in page
    assert "mean of the worst 10%" in page
    assert "a &lt;warning&gt;" in page


def test_it_has_no_intervals():
    with pytest.raises(fle.FLEError, match="quick=True gives no intervals"):
        fle.plan(cycle(100), [1.0], gamma=0.5, model=TABLE, quick=True, interval=0.9)
