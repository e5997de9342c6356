"""Other estimators beside an evaluation: when they warn, when they do not, and where they show."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tabular_logs import BEYOND, CHANCES, MDP, MODEL, SUPPORT, TARGET, logged, planned

import fle
from fle.baselines import fitted_q_evaluation, second_opinions_of
from fle.baselines.second_opinions import MOST_COUPLED, ROWS_FOR_COUPLING, _alike, _propensities
from fle.errors import DataError
from fle.fitting.plans import with_second_opinions
from fle.returns import risk
from fle.returns.opinions import COMPARED, FALSE_ALARM, Figure, Opinion, SecondOpinions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS)]

from tasks import acrobot, clinical, late_reward, point_mass, wide  # noqa: E402

MEAN = SUPPORT @ CHANCES
TRUTH = {
    "mean": MEAN,
    "std": np.sqrt((SUPPORT - MEAN) ** 2 @ CHANCES),
    "cvar:0.1": float(risk.cvar(SUPPORT, 0.1, CHANCES)),
}


@pytest.fixture(scope="module")
def opinions():
    """Of the log alone, without an evaluation."""
    return second_opinions_of(planned(2_000, 0)).opinions


def test_every_opinion_is_near_the_exact_answer(opinions):
    """9 figures at most, each with the false-alarm rate of BEYOND: one in 1,500 together."""
    assert {one.estimator for one in opinions if one.sees} == {
        "fitted Q evaluation",
        "weighted importance sampling",
        "per-decision importance sampling",
        "stitching",
    }
    for opinion in opinions:
        for asked, truth in TRUTH.items():
            if asked in opinion.figures:
                value, error = opinion.figures[asked]
                assert abs(value - truth) < BEYOND * error, (opinion.estimator, asked)


def test_an_exact_estimate_is_rarely_warned_of():
    """The true law, held against opinions of 60 logs: FALSE_ALARM is that of all figures together.

    More than 14 of 60 at a rate of a tenth: one false alarm in 1,000.
    """
    cut = SUPPORT[np.searchsorted(np.cumsum(CHANCES), 0.1)]
    short = np.maximum(cut - SUPPORT, 0.0)
    # Standard errors of a single return: a sample of n has them over the root of n.
    one = {
        "mean": TRUTH["std"],
        "std": _spread((SUPPORT - MEAN) ** 2) / (2 * TRUTH["std"]),
        "cvar:0.1": _spread(short) / 0.1,
    }
    exact = {asked: Figure(value, one[asked] / 1e3) for asked, value in TRUTH.items()}
    alarms = 0
    for seed in range(60):
        others = second_opinions_of(planned(500, 1_000 + seed, propensities=seed % 2 == 0)).opinions
        mine = Opinion("the truth", others[0].coordinate, exact, 1e6)
        alarms += bool(SecondOpinions((mine,), others).warnings)
    assert alarms <= 14


def _spread(values):
    return np.sqrt(values**2 @ CHANCES - (values @ CHANCES) ** 2)


def own(figures):
    return (Opinion("the estimate", "return", figures, 1_000.0),)


def test_false_alarms_are_as_rare_as_stated():
    """Six independent figures with right errors: at most FALSE_ALARM, here of 2,000 tries.

    Three standard deviations of a binomial beyond it: one false alarm in 700.
    """
    generator = np.random.default_rng(0)
    mine = {"mean": Figure(0.0, 0.0), "std": Figure(1e-3, 0.0)}
    alarms = 0
    for _ in range(2_000):
        others = [
            Opinion(
                f"number {i}",
                "return",
                {
                    "mean": Figure(generator.normal(), 1.0),
                    "std": Figure(1e-3 + generator.normal(), 1.0),
                },
                10_000.0,
            )
            for i in range(3)
        ]
        alarms += bool(SecondOpinions(own(mine), tuple(others)).disagreements)
    most = FALSE_ALARM + 3 * np.sqrt(FALSE_ALARM * (1 - FALSE_ALARM) / 2_000)
    assert 0.5 * FALSE_ALARM < alarms / 2_000 < most


def test_a_difference_must_be_beyond_chance_and_worth_a_word():
    mine = {"mean": Figure(0.0, 0.01), "std": Figure(1.0, 0.01)}

    def found(value, error, why=None):
        theirs = Opinion("another", "return", {"mean": Figure(value, error)}, 1_000.0, why)
        return SecondOpinions(own(mine), (theirs,)).warnings

    assert found(0.09, 0.01) == ()
    assert found(0.3, 0.2) == ()
    (warning,) = found(0.3, 0.05)
    assert "mean 0.3 (0.05) by another, 0 (0.01) by the estimate, +0.30" in warning
    assert "no second opinion can judge" in found(0.3, 0.05, "it is blind")[0]
    assert "no second opinion can judge" in found(0.3, 0.3)[0]


def test_the_alarm_is_in_standard_errors_and_says_what_it_cannot_see():
    mine = {"mean": Figure(0.0, 0.01), "std": Figure(1.0, 0.01), "loss": Figure(0.5, 0.01)}

    def held(why):
        theirs = {"mean": Figure(0.3, 0.05), "loss": Figure(0.99, 0.1)}
        robust = Opinion("doubly robust", "return", theirs, 1e9, why, ("ended early",))
        return SecondOpinions(own(mine), (robust,))

    found = held(None).checks("return", 0.9)
    assert found["mean"].errors == pytest.approx(6.0)
    # The 95% quantile of a normal law is 1.645; a chance ends at 1.
    assert (found["mean"].low, found["mean"].high) == pytest.approx((0.21776, 0.38224), abs=1e-4)
    assert found["loss"].high == 1.0
    assert "6.0 standard errors from the estimate" in held(None).alarm_in_words("return")
    assert held(None).alarm_in_words("return").endswith("ended early")
    assert held("weights are gone").checks("return") == {}
    assert "weights are gone" in held("weights are gone").alarm_in_words("return")


def test_a_tail_with_fewer_than_five_of_its_returns_is_not_checked():
    """53 returns: 5.3 beyond the 10% and the 90% quantile, 2.65 beyond 5% and 95%."""
    names = ("quantile:0.05", "quantile:0.1", "quantile:0.9", "quantile:0.95", "cvar:0.05")
    mine = {"mean": Figure(0.0, 0.01), "std": Figure(1.0, 0.01)}
    mine |= dict.fromkeys(names, Figure(0.0, 0.01))
    robust = Opinion("doubly robust", "return", dict.fromkeys(mine, Figure(0.1, 0.1)), 53.0)
    checks = SecondOpinions(own(mine), (robust,)).checks("return")
    assert set(checks) == {"mean", "std", "quantile:0.1", "quantile:0.9"}


def test_fitted_q_does_not_warn_where_the_log_itself_refutes_it():
    """Whole episodes with logged propensities rest on no class of functions."""
    mine = {"mean": Figure(0.0, 0.01), "std": Figure(1.0, 0.01)}

    def opinion(name, value, error, **more):
        return Opinion(name, "return", {"mean": Figure(value, error)}, 1_000.0, **more)

    def found(*, said=0.01, error=0.02, off=-0.2, **more):
        critic = opinion("fitted Q evaluation", off, 0.04)
        others = critic, opinion("importance sampling", said, error, sampled=True, **more)
        opinions = SecondOpinions(own(mine), others)
        assert SecondOpinions.from_plain(opinions.as_plain()) == opinions
        return opinions.opinions[0].cannot_see, opinions.warnings

    why, warned = found(model_free=True)
    assert "refuted by importance sampling, 0.01 (0.02)" in why
    assert warned == ()
    # It rests on a fit, knows the mean less well, does not contradict, or not only fitted Q.
    for case in (
        {},
        {"model_free": True, "error": 0.05},
        {"model_free": True, "said": -0.1},
        {"model_free": True, "said": 0.3},
    ):
        why, warned = found(**case)
        assert why is None
        assert "fitted Q evaluation" in warned[0]


def test_fitted_q_knows_what_many_actions_earn():
    """Every fifth of 20 actions earns 1, which a few of them, evenly chosen, would not show.

    One false alarm in 15,000.
    """
    generator = np.random.default_rng(0)
    worth, actions = np.arange(20) % 5 == 2, generator.integers(20, size=2_000)
    data = fle.Dataset(
        observations=generator.normal(size=(2_000, 1)),
        actions=actions,
        rewards=worth[actions] + 0.1 * generator.normal(size=2_000),
        terminations=np.ones(2_000, bool),
        number_of_actions=20,
    )
    chances = np.full((1, 20), 1 / 20)
    plan = fle.plan(data, lambda x: chances.repeat(len(x), axis=0), horizon=1, model=MODEL)
    value, error = fitted_q_evaluation(plan, replicates=0).mean()
    assert abs(value - 0.2) < BEYOND * error
    # Four actions at each of 2,000 starts, and noise of 0.1: sqrt(0.16 / 8,000 + 0.01 / 2,000).
    assert error < 0.01


def test_its_own_error_is_part_of_it():
    mine = {"mean": Figure(0.0, 0.2), "std": Figure(1.0, 0.2)}
    theirs = Opinion("another", "return", {"mean": Figure(0.3, 0.01)}, 1_000.0)
    assert SecondOpinions(own(mine), (theirs,)).disagreements == ()


@pytest.mark.second_opinions
def test_a_wrong_fit_is_warned_of_and_everything_is_kept(tmp_path):
    """A fixed standard deviation that is far too large, as any critic must say."""
    data = logged(1_000, 1)
    how = {
        "horizon": MDP.horizon,
        "model": replace(MODEL, std=3.0),
        "rows": "all",
        "recipe": {"steps": 30},
    }
    few = fle.Interval(replicates=2)
    with pytest.warns(fle.FLEWarning, match="second opinions disagree beyond chance"):
        result = fle.evaluate(data, TARGET, out=tmp_path / "run", interval=few, **how)
    found = result.second_opinions
    assert {d.asked for d in found.disagreements} >= {"std"}
    assert "doubly robust" in {one.estimator for one in found.opinions}
    assert any("disagree" in text for text in result.warnings)
    assert set(found.own[0].figures) >= set(COMPARED)
    # Doubly robust is right where the estimate is not, and says how far away it is.
    checks = found.checks("reward")
    for asked, truth in TRUTH.items():
        value, error = checks[asked].robust
        assert abs(value - truth) < BEYOND * error
        assert checks[asked].low < value < checks[asked].high
    # It is far too wide, and doubly robust says so, though with such a critic hardly more.
    assert checks["std"].errors < 0
    assert set(checks) >= {"median", "quantile:0.05", "loss", "cvar:0.05"}
    said = found.alarm_in_words("reward")
    assert "standard errors from the estimate" in said
    assert "fits to resampled episodes, asked about those that they lack" in said
    assert fle.load(tmp_path / "run").second_opinions == found
    assert "stitching" in repr(found)
    assert "<table>" in found._repr_html_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left_out = fle.evaluate(data, TARGET, second_opinions=False, **how)
    assert left_out.second_opinions is None
    assert left_out.provenance.identity != result.provenance.identity


@pytest.mark.second_opinions
def test_what_does_not_fit_in_memory_is_left_out_and_said():
    plan = planned(300, 0)
    evaluation = plan.carry_out(anyway=True)
    assert evaluation.second_opinions is not None
    # A ceiling below what the process has: the matrices do not fit, and the fit stands.
    with fle.memory_ceiling(1):
        without = with_second_opinions(plan, replace(evaluation, second_opinions=None))
    assert without.second_opinions is None
    assert "no second opinions: Second opinions would take about" in without.notes[-1]


def test_starts_of_another_law_are_noticed():
    """One false alarm in 10,000 each, by construction."""
    generator = np.random.default_rng(0)
    normal = generator.standard_normal((500, 3))
    assert _alike(normal[:200], normal[200:])
    assert not _alike(normal[:200] + np.array([0, 0, 0.5]), normal[200:])
    codes = generator.integers(5, size=500)
    assert _alike(codes[:200], codes[200:])
    assert not _alike(np.minimum(codes[:200], 3), codes[200:])


# The table of "tasks that nobody tuned for", before targets followed the log: errors of mean, of
# CVaR at 10%, in standard deviations of the return, and the ratio of standard deviations. Where the
# log does not tell the answer the true law is warned of too, so that only the old one is held
# against opinions. The task and the rows of its log; of the wide one the mean alone was known.
OLD = {
    "point mass": (point_mass, 0, 9_000, {"mean": 0.8, "std": 1.00, "cvar:0.1": -0.86}),
    "late reward": (late_reward, 0, 9_000, {"std": 1.49, "cvar:0.1": -0.79}),
    "clinical": (clinical, 0, 200_000, {"mean": 0.07, "std": 0.82, "cvar:0.1": 0.55}),
    "300 columns": (wide, 0, 2_000, {"mean": -1.2, "std": 1.00}),
    "clinical, rarely logged": (clinical, 2, 30_000, {"std": 0.71, "cvar:0.1": 0.88}),
    "Acrobot": (acrobot, 0, 9_000, {"mean": -0.28, "std": 1.39, "cvar:0.1": -1.45}),
}
TOLD = ("point mass", "late reward", "clinical", "300 columns")


@pytest.mark.parametrize("name", OLD)
def test_old_failures_would_have_been_warned_of(name, monkeypatch):
    """On a tenth of the rows that the old figures were measured with, or on twice as many.

    A death in 50 episodes decides the clinical tail: the log itself knows it to 0.13 standard
    deviations with 200,000 rows, and to 0.18, a third of the old error, with half of them. Of
    Acrobot the warning is that nothing can judge it.
    """
    family, number, rows, old = OLD[name]
    source = family.tasks()[number].source
    truth = source.truth(2_000 if family is acrobot else 20_000, 0)[:, 0]
    spread, tail = truth.std(), float(risk.cvar(truth, 0.1))
    right = {"mean": truth.mean(), "std": spread, "cvar:0.1": tail}

    def figures(errors):
        moved = {
            asked: error * spread if asked == "std" else right[asked] + error * spread
            for asked, error in errors.items()
        }
        return {asked: Figure(float(value), None) for asked, value in moved.items()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fle.FLEWarning)
        plan = fle.plan(
            fle.Dataset(**source.log(rows, 0)),
            source.policy.target,
            gamma=source.gamma,
            horizon=source.horizon,
            # What the log's policy is, and where the other goes, takes most of the time.
            recipe={"trace": float(source.horizon is None), "occupancy": source.horizon is None},
        )
    with monkeypatch.context() as patched:
        patched.setattr("fle.baselines.second_opinions.ROWS_FOR_COUPLING", np.inf)
        opinions = second_opinions_of(plan)
    (coordinate,) = plan.data.reward_names

    def warned(errors):
        mine = Opinion("the estimate", coordinate, figures(errors), 1_000.0)
        return SecondOpinions((mine,), opinions.opinions).warnings

    expected = "no second opinion can judge" if name == "Acrobot" else "disagree"
    assert expected in " ".join(warned(old))
    if name in TOLD:
        assert "disagree" not in " ".join(warned({"mean": 0.0, "std": 1.0, "cvar:0.1": 0.0}))


@pytest.mark.parametrize(
    ("rows", "actions", "steps", "why"),
    [
        (100, 2, 1, f"100 rows are too few .*from {ROWS_FOR_COUPLING:,} on"),
        (ROWS_FOR_COUPLING, MOST_COUPLED + 1, 1, f"{MOST_COUPLED + 1} actions are too many"),
        (ROWS_FOR_COUPLING, 2, 0, "to estimate them would take longer than this fit"),
    ],
)
def test_why_propensities_are_not_estimated_is_said(rows, actions, steps, why):
    data = fle.Dataset(
        observations=np.zeros((rows, 1)),
        actions=np.arange(rows) % 2,
        rewards=np.arange(rows, dtype=float),
        terminations=np.ones(rows, bool),
        number_of_actions=actions,
    )
    plan = SimpleNamespace(
        data=data,
        target=SimpleNamespace(coverage=1),
        logging=None,
        cost=SimpleNamespace(steps=steps),
    )
    with pytest.raises(DataError, match=f"no propensities were logged, and {why}"):
        _propensities(plan)
