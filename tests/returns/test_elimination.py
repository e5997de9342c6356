"""Candidates are dropped by paired differences, at no more than the stated error rate."""

import numpy as np
import pytest
from scipy import stats

from fle.errors import SettingsError
from fle.returns.intervals import ERROR, Looks


def looks(values, influence, moved=0.0, errors=0.0):
    number = len(values)
    return Looks(
        [str(place) for place in range(number)],
        np.asarray(values, float),
        np.asarray(influence, float),
        np.full(number, errors),
        np.broadcast_to(np.asarray(moved, float), number),
    )


def test_what_two_share_is_no_error_of_their_difference():
    # Both were moved by the same 3: the difference of 1 has the error of the 0.1 they differ in.
    shared = [[3.0, 0.1], [3.0, 0.0]]
    first, second = looks([1.0, 0.0], shared).outcomes()
    # One rival: the 95% quantile of a normal law, 1.645, times 0.1.
    assert second.margin == pytest.approx(1.6449 * 0.1, rel=1e-3)
    assert (second.rival, second.lead, second.dropped) == ("0", 1.0, True)
    assert not first.dropped
    # Moved by as much but apart, they cannot be told from each other: sqrt(3² + 3²) = 4.2.
    apart = looks([1.0, 0.0], [[3.0, 0.0], [0.0, 3.0]]).outcomes()
    assert apart[1].margin == pytest.approx(1.6449 * 18**0.5, rel=1e-3)
    assert not apart[1].dropped


def test_a_class_that_is_too_coarse_drops_nobody():
    nothing = np.zeros((2, 1))
    assert looks([1.0, 0.0], nothing).outcomes()[1].dropped
    # Half of the class moves one by 1.5 more than the other, which is more than the lead.
    assert not looks([1.0, 0.0], nothing, moved=[0.2, -1.3]).outcomes()[1].dropped
    # What it moves in both it does not move in the difference.
    assert looks([1.0, 0.0], nothing, moved=[1.5, 1.5]).outcomes()[1].dropped
    assert not looks([1.0, 0.0], nothing, errors=1.0).outcomes()[1].dropped


def test_the_rival_is_the_one_whose_lead_is_clearest():
    # 2 leads by more, and nobody knows how far it is off; 1 leads by 1 for certain.
    influence = [[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]]
    assert looks([0.0, 1.0, 2.0], influence).outcomes()[0].rival == "1"
    assert looks([0.0], [[1.0]]).outcomes()[0].dropped is False


def test_the_best_is_dropped_no_more_often_than_is_stated():
    """Forty candidates that are all equally good: the hardest case. 400 logs, 60 episodes each.

    Errors of candidates are correlated by 0.8. The first is dropped in at most 5% of the logs; more
    than 5% + 4 sqrt(0.05 * 0.95 / 400) = 9.4% is a false alarm in 30,000.
    """
    generator = np.random.default_rng(0)
    candidates, episodes, logs = 40, 60, 400
    dropped = []
    for _ in range(logs):
        shared = generator.standard_normal(episodes)
        own = generator.standard_normal((candidates, episodes))
        earned = np.sqrt(0.8) * shared + np.sqrt(0.2) * own
        values = earned.mean(axis=1)
        influence = (earned - values[:, None]) / episodes
        dropped.append(looks(values, influence).outcomes()[0].dropped)
    assert np.mean(dropped) <= ERROR + 4 * np.sqrt(ERROR * (1 - ERROR) / logs)
    # And the test could fail: point estimates alone would drop it in 39 of 40.
    assert np.mean(dropped) < 0.5


def test_the_rate_goes_with_the_number_of_candidates():
    influence = np.zeros((1_000, 2))
    influence[0] = 1.0
    outcome = looks(np.arange(1_000.0), influence).outcomes()[0]
    # Bonferroni over 999 rivals.
    expected = stats.norm.ppf(1 - ERROR / 999) * 2**0.5
    assert outcome.margin == pytest.approx(expected, rel=1e-6)


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(SettingsError, match="1 not finite"):
        looks([0.0, np.nan], np.zeros((2, 1)))
