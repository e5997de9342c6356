"""How much work rows make outside the training of networks: passes and rows, counted."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fle
from fle.data import passes
from fle.fitting import cross_fitting, occupancy
from fle.screen import Silent

# From 10,000 rows on the logging policy is estimated; a network of a few steps, as it is not what
# is looked at, and fewer rows for an occupancy than there are.
ROWS, LENGTH, STEPS, BATCH, MOST = 12_000, 20, 10, 100, 3_000
# In blocks, from the data set to the fit; of five million rows one takes up to 0.2 s. Fingerprints
# take one for each column, 8 in all, and 4 for what tells whether a log has grown. Sums along the
# log take 16: by doubling, up to the longest way that targets follow it.
PASSES = 40


def log_of(rows):
    generator = np.random.default_rng(0)
    observations = generator.standard_normal((rows, 3)).astype(np.float32)
    return fle.Dataset(
        observations=observations,
        actions=(generator.random(rows) < 1 / (1 + np.exp(-observations[:, 0]))).astype(int),
        rewards=observations[:, 1],
        terminations=np.isin(np.arange(rows) % LENGTH, (7, LENGTH - 1)),
        number_of_actions=2,
    )


def policy(observations):
    right = 1 / (1 + np.exp(-2 * observations[:, :1] - 1))
    return np.concatenate([1 - right, right], axis=1)


def count_rows(monkeypatch, module, name):
    """Of each call of a function, wherever it was imported, the rows of its first argument."""
    original, rows = getattr(module, name), []

    def counted(first, *others, **named):
        rows.append(first if isinstance(first, int) else len(first))
        return original(first, *others, **named)

    for place in [place for key, place in sys.modules.items() if key.startswith("fle")]:
        if getattr(place, name, None) is original:
            monkeypatch.setattr(place, name, counted)
    return rows


@pytest.fixture(scope="module")
def counts():
    """Of one evaluation: rows in each pass, of each input, asked, and of each tilt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_fitting, "STEPS", STEPS)
        patch.setattr(cross_fitting, "BATCH", BATCH)
        patch.setattr(occupancy, "MOST_ROWS", MOST)
        blocks = count_rows(patch, passes, "row_blocks")
        inputs, asked, tilted = [], [], []
        make, ask, law = (
            cross_fitting.Inputs.__call__,
            cross_fitting.CrossFitted.ask,
            occupancy._Tilts.law,
        )

        def making(self, rows, *, following=False):
            found = make(self, rows, following=following)
            inputs.append(len(found))
            return found

        def asking(self, rows, actions, *, following=False):
            asked.append(len(rows))
            return ask(self, rows, actions, following=following)

        def tilting(self, means, step):
            tilted.append(len(self.rows))
            return law(self, means, step)

        patch.setattr(cross_fitting.Inputs, "__call__", making)
        patch.setattr(cross_fitting.CrossFitted, "ask", asking)
        patch.setattr(occupancy._Tilts, "law", tilting)
        data = log_of(ROWS)
        blocks.clear()
        plan = fle.plan(
            data,
            policy,
            gamma=0.9,
            stages=2,
            model=fle.Gaussian(hidden=()),
            recipe=fle.Recipe(steps=10, batch_size=50, weight_decay=0.01),
            second_opinions=False,
        )
        assert plan.logging is not None
        assert plan.occupancy is not None
        plan.carry_out(anyway=True, progress=Silent())
        return blocks, inputs, asked, tilted


def test_all_rows_are_passed_over_a_known_number_of_times(counts):
    whole = [rows for rows in counts[0] if rows > ROWS // 2]
    assert len(whole) <= PASSES


def test_the_logging_policy_is_asked_once_a_row(counts):
    """At every row, and where the next observation is no row; fitted to what its steps use."""
    _, inputs, asked, _ = counts
    ends = 2 * ROWS // LENGTH
    assert sum(asked) == ROWS + ends
    used = STEPS * BATCH + cross_fitting.MOST_JUDGES
    assert sum(inputs) <= sum(asked) + cross_fitting.FOLDS * used


def test_a_part_of_the_rows_says_where_the_policy_goes(counts):
    assert counts[3]
    assert max(counts[3]) <= MOST


def test_a_pass_is_handed_out_in_few_shares(monkeypatch):
    """However many blocks it has; and nothing is lost or put in another order."""
    given = []
    mapped = ThreadPoolExecutor.map

    def mapping(self, function, items):
        given.append(len(items))
        return mapped(self, function, items)

    monkeypatch.setattr(ThreadPoolExecutor, "map", mapping)
    monkeypatch.setattr(passes.os, "cpu_count", lambda: 2)
    for number in (2, 3, 17, 5_000):
        found = passes.in_parallel(lambda item: 2 * item, range(number), passes.FEW_ROWS)
        assert found == [2 * item for item in range(number)]
    assert given == [2, 3, 9, 2 * passes.SHARES]
