"""One verdict from all that was measured: its rule, and what it withholds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import fle
from fle.errors import CoverageError
from fle.fitting.measurement import StepRows, Visits
from fle.policies.answers import Coverage
from fle.returns.measures import Requirement
from fle.returns.opinions import Figure, Opinion, SecondOpinions
from fle.trust.gate import Gate
from fle.trust.verdict import CHANCE, MOST_CHANCE, WRONG, verdict_of

pytestmark = pytest.mark.filterwarnings("ignore::fle.FLEWarning")
SEEN = Coverage(0.0, 900.0, 1_000, True, ())
GONE = Visits(800.0, 1_000, 0.0, (StepRows(0, 800.0),), "", "")


def opinions(error=0.02, theirs=0.0, theirs_error=0.02):
    """An estimate of mean 0 and standard deviation 1, and one other of its mean."""
    mine = {"mean": Figure(0.0, error), "std": Figure(1.0, 0.01)}
    other = Opinion("another", "return", {"mean": Figure(theirs, theirs_error)}, 1_000.0)
    return SecondOpinions((Opinion("the estimate", "return", mine, 1_000.0),), (other,))


def judged(**changed):
    """The verdict on an evaluation that is beyond doubt, but for what is changed."""
    facts = {
        "coverage": SEEN,
        "visits": GONE,
        "second_opinions": opinions(),
        "bellman": None,
        "calibration": None,
        "records": (),
        "refits": (),
        "horizon": 5,
        "quick": False,
        "warnings": (),
        "logged": SimpleNamespace(episodes=100, rows=1_000),
    }
    return verdict_of(SimpleNamespace(**(facts | changed)))


def test_nothing_speaks_against_what_is_beyond_doubt():
    assert judged().level == "trust"
    assert judged().reasons == judged().changes == ()
    # The log's own policy covers itself.
    assert judged(coverage=None, visits=None).level == "trust"


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({"coverage": replace(SEEN, share_unseen=0.2)}, "caution", "20% of the policy's actions"),
        ({"coverage": replace(SEEN, share_unseen=0.6)}, "do not use", "60% of the policy's"),
        ({"coverage": replace(SEEN, effective_sample_size=29.0)}, "do not use", "about 29 "),
        ({"visits": replace(GONE, beyond=0.2)}, "caution", "20% of where the policy goes"),
        ({"visits": replace(GONE, beyond=0.6)}, "do not use", "60% of where the policy goes"),
        ({"visits": replace(GONE, effective_rows=100.0)}, "caution", "worth about 100 "),
        ({"visits": replace(GONE, effective_rows=20.0)}, "do not use", "worth about 20 "),
        ({"second_opinions": None}, "caution", "no other estimator"),
        ({"second_opinions": opinions(theirs=0.2)}, "caution", "+0.20 standard deviations"),
        ({"second_opinions": opinions(theirs=-0.4)}, "do not use", "20.0 standard errors"),
        ({"second_opinions": opinions(theirs_error=0.3)}, "caution", "can judge"),
        ({"second_opinions": opinions(error=0.15)}, "caution", "off by 0.15 standard"),
        ({"second_opinions": opinions(error=0.6)}, "do not use", "off by 0.60 standard"),
        # Another estimator's error is no ground to withhold a number.
        ({"second_opinions": opinions(error=0.6), "refits": None}, "caution", "fitted Q"),
        ({"warnings": ("the reward has a heavy tail.",)}, "caution", "heavy tail"),
    ],
)
def test_every_figure_beyond_its_threshold_is_a_reason(changed, level, said):
    verdict = judged(**changed)
    assert verdict.level == level
    assert said in verdict.reasons[0].words
    assert len(verdict.reasons) == 1
    assert verdict.in_words().startswith(f"{level}: ")


def test_the_gravest_reason_comes_first():
    verdict = judged(
        coverage=replace(SEEN, share_unseen=0.06),
        visits=replace(GONE, beyond=0.6),
        second_opinions=opinions(error=0.15),
    )
    assert [one.level for one in verdict.reasons] == ["do not use", "caution", "caution"]
    assert [one.what for one in verdict.reasons][1:] == ["chance", "actions never logged"]
    assert "(and 2 more reasons)" in verdict.in_words()


def test_what_would_change_it_is_said_with_figures():
    """A standard error of 0.2 with 100 episodes is CHANCE with four times as many."""
    verdict = judged(
        second_opinions=opinions(error=2 * CHANCE),
        visits=replace(GONE, beyond=0.1, where="dose from 3 on", actions="action B"),
    )
    assert "about 400 episodes of the same kind (now 100)" in verdict.changes
    assert "data closer to the policy: dose from 3 on and action B" in verdict.changes


def test_thresholds_of_chance_are_what_they_are_said_to_be():
    wrong_by_chance = 2 * norm.sf(WRONG / np.array([CHANCE, MOST_CHANCE]))
    assert wrong_by_chance[0] < 1 / 80
    assert wrong_by_chance[1] > 0.6


# A policy that leaves the log at the second of five steps.


STATES, HORIZON = 5, 5


def one_hot(states, actions):
    return np.eye(2 * STATES)[2 * np.asarray(states).astype(int) + np.asarray(actions).astype(int)]


def stepping():
    """Action 1 goes on to the next state, action 0 back to the first; 1 was tried there, rarely.

    So nearly all logged rows are at the first state, where both actions are known.
    """
    generator = np.random.default_rng(0)
    rows = []
    for episode in range(800):
        state = 0
        for step in range(HORIZON):
            action = int(state == 0 and generator.random() < 0.02)
            following = min(state + 1, STATES - 1) if action else 0
            rows.append((episode, state, action, generator.normal(), following, step))
            state = following
    episodes, states, actions, rewards, following, steps = map(np.array, zip(*rows, strict=True))
    return fle.Dataset(
        episodes=episodes,
        observations=states,
        actions=actions,
        rewards=rewards,
        next_observations=following,
        truncations=steps == HORIZON - 1,
        number_of_actions=2,
    )


ASKED = {
    "horizon": HORIZON,
    "model": fle.Linear(lambda x, a: one_hot(x, a)[:, 1:]),
    "rows": "all",
    "second_opinions": False,
}


@pytest.fixture(scope="module")
def data():
    return stepping()


def onward(states):
    """Four times in five action 1."""
    return np.tile([0.2, 0.8], (len(states), 1))


@pytest.fixture(scope="module")
def withheld(data, tmp_path_factory):
    return fle.evaluate(data, onward, **ASKED, anyway=False)


def test_where_the_policy_leaves_the_log_nothing_is_said(withheld):
    """Action 1 at state 1 was never logged. At step t the policy is at state 1, and takes it, with
    q_t = 0.64, 0.128, 0.128, 0.04608 for t = 1 to 4; then the 5 - t steps to come are unknown:
    0.64 · 4 + 0.128 · 3 + 0.128 · 2 + 0.04608 = 3.24608 of 5.
    """
    assert withheld.verdict.level == "do not use"
    assert withheld.visits.beyond == pytest.approx(3.24608 / 5, abs=1e-6)
    assert "state 1 (" in withheld.verdict.changes[0]
    for ask in (lambda: withheld.returns, lambda: withheld.at(0, 1), withheld.columns):
        with pytest.raises(CoverageError, match=r"hardly logged.*anyway=True"):
            ask()
    assert "verdict='do not use'" in repr(withheld)
    page = withheld._repr_html_()
    assert "do not use" in page
    assert "CVaR" not in page
    printed = str(withheld).splitlines()
    assert printed[0] == "verdict: do not use"
    assert "withheld" in printed[-1]
    assert not any(line.startswith("mean ") for line in printed)
    assert np.isfinite(withheld.anyway().returns.mean())


def test_a_saved_run_keeps_its_verdict(withheld, tmp_path):
    """Linear needs its function, so the fit is one that files can hold."""
    import json

    model = fle.Gaussian(std=1.0, hidden=())
    asked = ASKED | {"model": model, "recipe": {"steps": 2}}
    result = fle.evaluate(stepping(), onward, **asked, out=tmp_path / "run")
    loaded = fle.load(tmp_path / "run")
    assert loaded.verdict == result.verdict
    assert loaded.visits == result.visits
    with pytest.raises(CoverageError):
        loaded.returns  # noqa: B018
    facts = json.loads((tmp_path / "run" / "result.json").read_text())
    assert facts["verdict"]["level"] == "do not use"
    again = fle.evaluate(stepping(), onward, **asked, out=tmp_path / "run", anyway=True)
    assert np.isfinite(again.returns.mean())


def test_a_comparison_refuses_it(data):
    found = fle.compare(data, {"new": onward}, **ASKED)
    assert list(found.evaluations) == []
    assert "do not use" in found.refused["new"].withheld
    assert "no estimate for new: do not use" in repr(found)
    assert found.columns()["policy"] == ["new"]


def test_a_gate_on_it_is_undecided(withheld, data):
    plan = SimpleNamespace(data=data, withheld=None, interval=0.9, carry_out=lambda: withheld)
    gate = Gate.of(lambda _: plan, onward, None, [Requirement.of("mean >= 0")], 0.95)
    assert gate.answer == "undecided"
    assert "do not use" in gate.decisions[0].why
    assert gate.as_plain()["verdict"]["level"] == "do not use"


def test_the_worst_covered_region_has_the_names_of_the_data():
    """Visits that lie where one row in ten is: half of them from its lowest value on."""
    from fle.fitting.measurement import _column

    values = np.linspace(0, 1, 1_001)[:, None]
    chances = np.where(values[:, 0] >= 0.9, 1.0, 0.0)
    words = _column(values, chances / chances.sum(), ("dose",), "action")
    assert words == "dose from 0.95 on (half of its visits, 5.1% of the rows)"
    assert _column(values, np.full(1_001, 1 / 1_001), ("dose",), "action") == ""


def test_a_first_look_is_said_once():
    """Its own warning says that nobody else was asked; a first look cannot be told to ask."""
    verdict = judged(second_opinions=None, quick=True, warnings=("a first look",))
    assert [one.what for one in verdict.reasons] == ["warning"]
    assert verdict.changes == ("an evaluation without quick=True",)
    assert judged(second_opinions=None).changes == ("second_opinions=True",)
