"""Runs as files hold them, with figures chosen by hand."""

import numpy as np

from fle.paper.lock_runs import SHORT_STEPS, counts, packed, published
from fle.paper.presets import Key, setting_of


def made_up_run(key, setting=None, progress=None, *, tv=None, w1=None, seconds=10.0):
    """A run whose distances are the sampling floor, or those given."""
    experiment = key.experiment.removesuffix("-w1")
    dim = 2 if experiment == "2d" else 1
    draws = np.random.default_rng(key.seed).normal(0, 1, (1_000, dim))
    floor = published(experiment, "tv").floor
    setting = setting or setting_of(key.experiment, key.method, key.preset, quick=False)
    return {
        "experiment": key.experiment,
        "method": key.method,
        "preset": key.preset,
        "seed": key.seed,
        "settings": setting.as_plain(),
        "seconds": seconds,
        "notes": [],
        "tv": (floor if tv is None else np.broadcast_to(tv, floor.shape)).tolist(),
        "w1": [] if dim == 2 else np.broadcast_to(0.01 if w1 is None else w1, floor.shape).tolist(),
        "histograms": {str(h): packed(counts(draws, dim)) for h in SHORT_STEPS[experiment]},
    }


def key(experiment="1d", method="gmm", preset="ours", seed=0):
    return Key(experiment, method, preset, seed)
