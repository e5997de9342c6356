import numpy as np
import pytest
from sample_runs import key

import fle
from fle.fitting.progress import Silent
from fle.paper.presets import Setting
from fle.paper.published import published
from fle.paper.runs import counts, measure, packed, perform, true_counts, unpacked
from fle.returns import ReturnDistribution
from fle.tasks import CombinationLock


class Truth:
    """What a perfect fit would answer."""

    def __init__(self, task):
        self.task = task

    def at(self, observations, actions, *, step):
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
    training = fle.Training(steps=5, weight_decay=0.0, draws=1)
    setting = Setting(fle.GMM(components=2, hidden=(4,)), training, 50, 1)
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
