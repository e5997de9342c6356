"""One run: a method fitted to the combination lock with one seed, and measured at every h."""

import base64
import time
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fle.data import Dataset
from fle.fitting import Evaluation, evaluate
from fle.fitting.progress import Progress
from fle.paper.presets import Experiment, Key, Setting, task_of
from fle.paper.published import SHORT_STEPS
from fle.returns import total_variation_from_samples, wasserstein
from fle.tasks import CombinationLock

SAMPLES = 20_000
CONTEXTS = 4_000
TV_BINS, TV_LIMIT = 50, {1: 2.0, 2: 5.0}
# Figures show as many samples as the paper's.
FIGURE_SAMPLES = 50_000
FIGURE_BINS, FIGURE_LIMIT = {1: 100, 2: 80}, {1: 2.0, 2: 4.0}


def perform(key: Key, setting: Setting, progress: Progress) -> dict[str, Any]:
    """Fit and measure; plain values for a file."""
    task = task_of(key.experiment)
    data = Dataset(**task.offline_data(setting.rows, key.seed))
    began = time.perf_counter()
    result = evaluate(
        data,
        task.target_policy,
        horizon=task.horizon,
        model=setting.model,
        training=setting.training,
        seed=key.seed,
        progress=progress,
    )
    seconds = time.perf_counter() - began
    return {
        "experiment": key.experiment,
        "method": key.method,
        "preset": key.preset,
        "seed": key.seed,
        "settings": setting.as_plain(),
        "seconds": seconds,
        "notes": list(result.notes),
        **measure(result, task, key.seed, setting.repetitions),
        "histograms": histograms(result, key.experiment, task),
    }


def measure(
    result: Evaluation, task: CombinationLock, seed: int, repetitions: int
) -> dict[str, list[float]]:
    """TV and, in one dimension, W1 at h = 1..H, from the good state and the optimal action."""
    limit = TV_LIMIT[task.reward_dim]
    distances: dict[str, list[float]] = {"tv": [], "w1": []}
    for step in range(task.horizon):
        generator = np.random.default_rng([seed, 1, step])
        tv, w1 = [], []
        for _ in range(repetitions):
            learned = sample_learned(result, task, step, SAMPLES, generator)
            true = task.sample_true_returns(step, SAMPLES, generator)
            tv.append(
                total_variation_from_samples(learned, true, bins=TV_BINS, low=-limit, high=limit)
            )
            if task.reward_dim == 1:
                w1.append(wasserstein(learned, true))
        distances["tv"].append(float(np.mean(tv)))
        if w1:
            distances["w1"].append(float(np.mean(w1)))
    return distances


def sample_learned(
    result: Evaluation,
    task: CombinationLock,
    step: int,
    number: int,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Returns that the fit expects after the optimal action in the good state."""
    good = np.zeros(CONTEXTS, dtype=int)
    observations = task.observe(good, step, generator)
    return result.at(observations, good, step=step).sample(
        number, seed=int(generator.integers(2**31))
    )


def histograms(result: Evaluation, experiment: Experiment, task: CombinationLock) -> dict[str, str]:
    """What the figures show, by h."""
    generator = np.random.default_rng(0)
    return {
        str(h): packed(
            counts(sample_learned(result, task, h - 1, FIGURE_SAMPLES, generator), task.reward_dim)
        )
        for h in SHORT_STEPS[experiment.removesuffix("-w1")]
    }


def true_counts(task: CombinationLock, h: int) -> NDArray[np.int64]:
    """The true histogram, of as many samples as the learned ones."""
    returns = task.sample_true_returns(h - 1, FIGURE_SAMPLES, np.random.default_rng(h))
    return counts(returns, task.reward_dim)


def counts(returns: NDArray[np.float64], dim: int) -> NDArray[np.int64]:
    """Samples in each cell, (bins,) or (bins, bins) with the first coordinate first."""
    limit, bins = FIGURE_LIMIT[dim], FIGURE_BINS[dim]
    ranges = [(-limit, limit)] * dim
    return np.histogramdd(returns.reshape(-1, dim), bins, ranges)[0].astype(np.int64)


def packed(values: NDArray[np.int64]) -> str:
    """Counts as short text."""
    return base64.b64encode(zlib.compress(values.astype("<u2").tobytes(), 9)).decode("ascii")


def unpacked(text: str, dim: int) -> NDArray[np.int64]:
    """Counts from their text."""
    flat = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u2")
    return flat.astype(np.int64).reshape((FIGURE_BINS[dim],) * dim)
