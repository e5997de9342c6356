import json

import numpy as np
import pytest
from sample_runs import key, made_up_run

import fle
from fle.errors import FLEError
from fle.fitting import Silent
from fle.paper.lock_runs import (
    Store,
    counts,
    measure,
    packed,
    perform,
    published,
    true_counts,
    unpacked,
)
from fle.paper.presets import Setting, keys_of
from fle.returns import ReturnDistribution
from fle.tasks import CombinationLock


class Truth:
    """What a perfect fit would answer."""

    def __init__(self, task):
        self.task = task

    def mixture(self, observations, actions, *, step):
        rows = self.task.sample_true_returns(step, 50_000, np.random.default_rng(step))
        return ReturnDistribution.from_samples(rows)


@pytest.mark.parametrize("task", [CombinationLock.paper_1d(), CombinationLock.paper_2d()])
def test_the_truth_measures_as_the_sampling_floor(task):
    # The published floors are means over many samples. Ours draws again from 50,000, which adds
    # 20/50 of the variance of one sample to the difference of two: a factor of about √1.2 = 1.1.
    experiment = f"{task.reward_dim}d"
    found = measure(Truth(task), task, seed=0, repetitions=1)
    ratio = np.array(found["tv"]) / published(experiment, "tv").floor
    assert ratio.mean() == pytest.approx(1.1, abs=0.1)
    assert len(found["w1"]) == (20 if task.reward_dim == 1 else 0)


def test_a_short_run_has_every_figure():
    recipe = fle.Recipe(steps=5, weight_decay=0.0, draws=1)
    setting = Setting(fle.GMM(components=2, hidden=(4,)), recipe, 50, 1)
    run = perform(key(), setting, Silent())
    assert len(run["tv"]) == len(run["w1"]) == 20
    assert set(run["histograms"]) == {"1", "10", "19"}
    assert run["settings"] == setting.as_plain()
    assert run["seconds"] > 0


@pytest.mark.parametrize("dim", [1, 2])
def test_histograms_survive_packing(dim):
    cells = counts(np.random.default_rng(0).normal(0, 1, (5_000, dim)), dim)
    assert np.array_equal(unpacked(packed(cells), dim), cells)


def test_true_histogram_has_the_good_probability():
    task = CombinationLock.paper_1d()
    cells = true_counts(task, 10)
    share = cells[50:].sum() / cells.sum()
    # h = 10: (13/14)^10; 5 standard errors of 50,000 draws.
    expected = (13 / 14) ** 10
    assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / 50_000)


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "out", quick=False)
    made.prepare()
    return made


def test_only_missing_runs_are_made_again(store):
    keys = list(keys_of("1d", ("gmm", "categorical"), ("ours",), range(2)))
    assert store.missing(keys) == keys
    store.make(keys[0], made_up_run)
    store.make(keys[3], made_up_run)
    assert store.missing(keys) == keys[1:3]


def test_a_run_with_other_settings_is_missing_and_left_out(store):
    store.make(key(), made_up_run)
    path = store.directory / "runs" / key().file_name
    run = json.loads(path.read_text())
    run["settings"]["recipe"]["steps"] += 1
    path.write_text(json.dumps(run))
    assert store.missing([key()]) == [key()]
    assert store.collect() == ([], [key().file_name])


def test_a_run_that_fails_leaves_no_file(store):
    def fails(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.make(key(), fails)
    assert list((store.directory / "runs").iterdir()) == []


def test_a_damaged_file_is_named(store):
    store.make(key(), made_up_run)
    path = store.directory / "runs" / key().file_name
    path.write_text(path.read_text()[:100])
    with pytest.raises(FLEError, match=path.name):
        store.missing([key()])


def test_quick_runs_are_kept_apart(store, tmp_path):
    store.make(key(), made_up_run)
    quick = Store(tmp_path / "out", quick=True)
    quick.prepare()
    assert quick.missing([key()]) == [key()]
    quick.make(key(), made_up_run)
    assert store.missing([key()]) == []
    assert len(store.collect().runs) == len(quick.collect().runs) == 1
