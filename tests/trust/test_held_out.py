"""Measured on rows and episodes that a fit has not seen: Bellman errors and calibration."""

from types import SimpleNamespace

import numpy as np
import pytest

import fle
from fle.fitting.measurement import BellmanErrors, Measured, StageError, _stage_error
from fle.trust.verdict import error_estimate

HORIZON, EPISODES = 2, 500
SPREAD = 3.0


def log():
    """Two steps; action 1 earns SPREAD more than action 0; noise is standard normal."""
    generator = np.random.default_rng(0)
    rows = HORIZON * EPISODES
    actions = generator.integers(2, size=rows)
    cut = np.arange(rows) % HORIZON == HORIZON - 1
    # A tenth of the episodes is cut off after its first step.
    short = np.repeat(generator.random(EPISODES) < 0.1, HORIZON)
    kept = ~(short & cut)
    cut = cut | short
    return fle.Dataset(
        observations=np.zeros(int(kept.sum()), int),
        actions=actions[kept],
        rewards=(SPREAD * actions + generator.standard_normal(rows))[kept],
        episodes=np.repeat(np.arange(EPISODES), HORIZON)[kept],
        next_observations=np.zeros(int(kept.sum()), int),
        truncations=cut[kept],
        number_of_actions=2,
    )


def by_action(x, a):
    return 1.0 * a[:, None]


def nothing(x, a):
    return 0.0 * a[:, None]


@pytest.fixture(scope="module", params=["right", "wrong"])
def fit(request):
    """Of a class that has the truth, up to the mixture over actions, and one blind to actions."""
    model = fle.Linear(by_action if request.param == "right" else nothing)
    policy = np.array([0.1, 0.9])
    return request.param, fle.evaluate(
        log(),
        policy,
        horizon=HORIZON,
        model=model,
        second_opinions=False,
        calibration=request.param == "right",
    )


def test_a_fit_is_held_against_its_own_targets(fit):
    """Blind to actions, the law of a reward is N(1.5, 1 + 2.25) at both; where the policy goes it
    is 3 · 0.9 = 2.7 on average. Over two steps the mean misses 2 · 1.2 = 2.4, of a standard
    deviation of √(2 · 3.25) = 2.55: 0.94. Of the right class residuals add nothing: within four of
    their own standard errors, one false alarm in 16,000.
    """
    name, result = fit
    found = result.bellman
    assert found.rows == len(log())
    assert not found.held_out
    if name == "right":
        assert abs(found.bias) < 4 * found.bias_error
        assert found.bias_error < 0.1
    else:
        assert found.bias == pytest.approx(0.94, abs=4 * found.bias_error)
        assert any(one.what == "Bellman residuals" for one in result.verdict.reasons)


def test_held_out_episodes_are_predicted(fit):
    """100 episodes, some of them cut off and filled up by the fit.

    The right class predicts what is normal up to the second action as normal too, a mixture of two
    normals 3 apart: 0.05 from uniform, within the 0.16 that 100 returns deny.
    """
    name, result = fit
    if name == "wrong":
        assert result.calibration is None
        return
    found = result.calibration
    assert found.episodes == EPISODES // 5
    assert 0 < found.cut < 30
    assert sum(found.coordinates[0].counts) == found.episodes
    assert not found.denied
    assert found.coordinates[0].crps < found.coordinates[0].reference
    assert result.plot("calibration").to_dict()["layer"]


def test_the_floor_is_that_of_a_right_fit():
    """Fit and targets of one law at every row: beyond 2.33 deviations of the floor in 1 of 100.

    The law of W1 is skewed; 60 tries have at most 6 (one false alarm in 1,000 at a rate of 3%).
    """
    generator = np.random.default_rng(0)
    beyond = 0
    for _ in range(60):
        places = generator.normal(size=(200, 1))
        draws = [places + generator.standard_normal((200, 1)) for _ in range(2)]
        measured = Measured(np.arange(200), *draws, draws[1] - draws[0])
        found = _stage_error(1, None, measured, np.ones(1), generator)
        beyond += found.errors > 2.33
    assert beyond <= 6


def test_a_fit_that_is_off_stands_out():
    """Moved by half a standard deviation: W1 is 0.5 / √1.25 in those of the targets' law."""
    generator = np.random.default_rng(0)
    drawn, targets = generator.standard_normal((2, 4_000, 1))
    measured = Measured(np.arange(4_000), drawn, targets + 0.5, targets + 0.5 - drawn)
    found = _stage_error(3, 7, measured, np.ones(1), generator)
    assert found.distance == pytest.approx(0.5, abs=0.07)
    errors = BellmanErrors((found,), 4_000, True, 1.0, 0.0, 0.1)
    assert errors.standing_out == found
    assert BellmanErrors.from_plain(errors.as_plain()) == errors


def test_the_estimate_has_the_form_of_the_theorem():
    """√C Σ_h γ^h ζ_h: errors 0.1 and 0.2 of two stages, discounts 0.5 and 1, C = 4."""
    stages = (
        StageError(1, None, 0.15, 0.05, 0.01, 1.0),
        StageError(2, None, 0.15, 0.05, 0.01, 2.0),
    )
    errors = BellmanErrors(stages, 100, True, 1.0, 0.0, 0.1)
    visits = SimpleNamespace(rows=400, effective_rows=100.0)
    asked = SimpleNamespace(bellman=errors, visits=visits, horizon=2, gamma=0.5)
    assert error_estimate(asked) == pytest.approx(2 * (0.5 * 0.1 + 0.2))
