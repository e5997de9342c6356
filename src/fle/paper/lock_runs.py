"""Runs of the combination lock: fitted with one seed, measured at every h, kept in a file each."""

import base64
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fle
from fle.files import make_directory, read_json, write_json
from fle.fitting import Progress, Silent
from fle.paper.lock_tables import SHORT_STEPS
from fle.paper.presets import METHODS, Experiment, Key, Setting, setting_of, task_of
from fle.returns import total_variation_from_samples, wasserstein
from fle.tasks import CombinationLock

SAMPLES = 20_000
CONTEXTS = 4_000
TV_BINS, TV_LIMIT = 50, {1: 2.0, 2: 5.0}
# Figures show as many samples as the paper's.
FIGURE_SAMPLES = 50_000
FIGURE_BINS, FIGURE_LIMIT = {1: 100, 2: 80}, {1: 2.0, 2: 4.0}

Perform = Callable[[Key, Setting, Progress], dict[str, Any]]


def perform(key: Key, setting: Setting, progress: Progress) -> dict[str, Any]:
    """Fit and measure; plain values for a file."""
    task = task_of(key.experiment)
    data = fle.Dataset(**task.offline_data(setting.rows, key.seed))
    began = time.perf_counter()
    result = fle.evaluate(
        data,
        task.target_policy,
        horizon=task.horizon,
        model=setting.model,
        recipe=setting.recipe,
        seed=key.seed,
        # What is off is what these tables show.
        anyway=True,
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
    result: fle.Evaluation, task: CombinationLock, seed: int, repetitions: int
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
    result: fle.Evaluation,
    task: CombinationLock,
    step: int,
    number: int,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Returns that the fit expects after the optimal action in the good state."""
    good = np.zeros(CONTEXTS, dtype=int)
    observations = task.observe(good, step, generator)
    return result.mixture(observations, good, step=step).sample(
        number, seed=int(generator.integers(2**31))
    )


def histograms(
    result: fle.Evaluation, experiment: Experiment, task: CombinationLock
) -> dict[str, str]:
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


class Collected(NamedTuple):
    """Runs that were made with the present settings, and the names of files that were not."""

    runs: list[dict[str, Any]]
    outdated: list[str]


class Store:
    """Runs of one directory. Quick ones are kept apart, so that they replace nothing."""

    def __init__(self, directory: Path, *, quick: bool):
        self.directory = directory
        self.quick = quick
        self.runs = directory / ("runs-quick" if quick else "runs")

    def prepare(self) -> None:
        """Make the directories before anything is trained."""
        make_directory(self.runs)

    def setting(self, key: Key) -> Setting:
        """How the run of a key is to be made."""
        return setting_of(key.experiment, key.method, key.preset, quick=self.quick)

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those that have no file, or one that was made with other settings."""
        return [key for key in keys if not self._has(key)]

    def make(self, key: Key, perform: Perform, progress: Progress | None = None) -> None:
        """Perform a run and keep what it found."""
        content = perform(key, self.setting(key), progress or Silent())
        write_json(self.runs / key.file_name, content)

    def collect(self) -> Collected:
        """All runs there are, whichever call made them."""
        runs, outdated = [], []
        for path in sorted(self.runs.glob("*_seed*.json")):
            run = read_json(path)
            known = run["method"] in METHODS.get((run["experiment"], run["preset"]), ())
            if known and self._is_current(run):
                runs.append(run)
            else:
                outdated.append(path.name)
        return Collected(runs, outdated)

    def study_path(self, name: str) -> Path:
        """The file of a study of the theory."""
        return self.runs / f"study_{name}.json"

    def _has(self, key: Key) -> bool:
        path = self.runs / key.file_name
        return path.exists() and read_json(path)["settings"] == self.setting(key).as_plain()

    def _is_current(self, run: dict[str, Any]) -> bool:
        setting = setting_of(run["experiment"], run["method"], run["preset"], quick=self.quick)
        return bool(run["settings"] == setting.as_plain())
