"""Runs of the combination lock, and their tables beside the published ones, with checks."""

import base64
import csv
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fle
from fle.files import make_directory, read_json, write_json
from fle.fitting import Progress, Silent
from fle.paper.presets import (
    ALL_METHODS,
    METHODS,
    PRESETS,
    Experiment,
    Key,
    Setting,
    setting_of,
    task_of,
)
from fle.returns import total_variation_from_samples, wasserstein
from fle.tasks import CombinationLock

FloatArray = NDArray[np.float64]
Distance = Literal["tv", "w1"]

# How the paper's short tables and the figures choose h.
SHORT_STEPS = {"1d": (1, 10, 19), "2d": (1, 5, 9)}
FILES = {
    ("1d", "tv"): ("combination_lock_1d_tv.csv", "sampling_floor_1d.csv", "tv_floor"),
    ("1d", "w1"): ("combination_lock_1d_w1.csv", "sampling_floor_1d.csv", "w1_floor"),
    ("2d", "tv"): ("combination_lock_2d_tv.csv", "sampling_floor_2d.csv", "tv_floor"),
}
# Half a unit of the last published digit.
ROUNDING = 0.0005
TITLES = {
    ("1d", "tv"): "Total variation, one-dimensional combination lock (H = 20)",
    ("1d", "w1"): "1-Wasserstein distance, one-dimensional combination lock (H = 20)",
    ("2d", "tv"): "Total variation, two-dimensional combination lock (H = 10)",
}
DISTANCES: tuple[tuple[str, Distance], ...] = (("1d", "tv"), ("1d", "w1"), ("2d", "tv"))
NONE = "-"
# What our figures are held to, in sampling floors, in W1 and in standard errors.
FLOOR_MULTIPLE_1D = 1.3
W1_LIMIT = 0.02
BEST_MULTIPLES_2D = (1.3, 1.6)
DIFFUSION_MULTIPLE_2D = 2.0
ALLOWED_ERRORS = 2.0
SAMPLES = 20_000
CONTEXTS = 4_000
TV_BINS, TV_LIMIT = 50, {1: 2.0, 2: 5.0}
# Figures show as many samples as the paper's.
FIGURE_SAMPLES = 50_000
FIGURE_BINS, FIGURE_LIMIT = {1: 100, 2: 80}, {1: 2.0, 2: 4.0}

Perform = Callable[[Key, Setting, Progress], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Published:
    """One table of the paper: means and standard errors over five runs, at h = 1, 2, ..., H.

    floor: the same distance between two samples of the truth; no method can be below it on average.
    """

    means: dict[str, FloatArray]
    standard_errors: dict[str, FloatArray]
    floor: FloatArray


@cache
def published(experiment: str, distance: Distance) -> Published:
    """The paper's table of an experiment ("1d" or "2d") and a distance."""
    name, floor_name, floor_column = FILES[experiment, distance]
    columns, floors = _columns(name), _columns(floor_name)
    methods = [column for column in columns if f"{column}_se" in columns]
    return Published(
        means={method: columns[method] for method in methods},
        standard_errors={method: columns[f"{method}_se"] for method in methods},
        floor=floors[floor_column],
    )


def _columns(name: str) -> dict[str, FloatArray]:
    text = resources.files("fle.paper").joinpath("tables", name).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return {column: np.array([float(row[column]) for row in rows]) for column in rows[0]}


class Column(NamedTuple):
    """One method in one preset: its distances at h = 1..H, averaged over seeds.

    each: (seeds, H).
    standard_errors: NaN where there is one seed.
    """

    seeds: tuple[int, ...]
    each: FloatArray
    means: FloatArray
    standard_errors: FloatArray
    seconds: float
    settings: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table as text: one row of the header, then the rows; the first column is a name."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remark: str = ""

    def text(self) -> str:
        """For a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        body = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *filter(None, [self.remark]), "", *body])

    def markdown(self) -> str:
        """For a page that is read as it is."""
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([f"## {self.title}", *filter(None, [self.remark]), "", *body])


def aggregate(
    runs: list[dict[str, Any]], experiment: str, distance: Distance
) -> dict[tuple[str, str], Column]:
    """Columns by (method, preset).

    Where a method was also run for W1 with another learning rate, the W1 table shows that.
    """
    chosen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    special = {(r["method"], r["preset"]) for r in runs if r["experiment"] == f"{experiment}-w1"}
    for run in runs:
        pair = run["method"], run["preset"]
        wanted = experiment
        if distance == "w1" and pair in special:
            wanted = f"{experiment}-w1"
        if run["experiment"] == wanted:
            chosen.setdefault(pair, []).append(run)
    return {pair: _column(several, distance) for pair, several in chosen.items()}


def _column(runs: list[dict[str, Any]], distance: Distance) -> Column:
    ordered = sorted(runs, key=lambda run: run["seed"])
    values = np.array([run[distance] for run in ordered])
    number = len(ordered)
    spread = values.std(axis=0, ddof=1) if number > 1 else np.full(values.shape[1], np.nan)
    return Column(
        tuple(run["seed"] for run in ordered),
        values,
        values.mean(axis=0),
        spread / np.sqrt(number),
        float(np.mean([run["seconds"] for run in ordered])),
        ordered[0]["settings"],
    )


def short_table(
    columns: dict[tuple[str, str], Column], experiment: str, distance: Distance, remark: str
) -> Table:
    """The paper's main table: three values of h, all methods and presets below one another."""
    source = published(experiment, distance)
    places = [h - 1 for h in SHORT_STEPS[experiment]]
    rows = []
    for method in _methods(columns, source):
        if method in source.means:
            errors = source.standard_errors[method]
            cells = [_cell(source.means[method][i], errors[i]) for i in places]
            rows.append((f"{method}, published", *cells, "5", NONE))
        for preset in PRESETS[::-1]:
            column = columns.get((method, preset))
            if column is not None:
                cells = [_cell(column.means[i], column.standard_errors[i]) for i in places]
                end = (str(len(column.seeds)), f"{column.seconds:.0f}")
                rows.append((f"{method}, {preset}", *cells, *end))
    rows.append(("sampling floor", *(f"{source.floor[i]:.4f}" for i in places), NONE, NONE))
    header = ("", *(f"h = {i + 1}" for i in places), "seeds", "seconds")
    return Table(TITLES[experiment, distance], header, tuple(rows), remark)


def full_tables(
    columns: dict[tuple[str, str], Column], experiment: str, distance: Distance, remark: str
) -> list[Table]:
    """Every h, one table a method."""
    source = published(experiment, distance)
    tables = []
    for method in _methods(columns, source):
        presets = [preset for preset in PRESETS[::-1] if (method, preset) in columns]
        rows = []
        for i in range(len(source.floor)):
            told = [
                _cell(columns[method, p].means[i], columns[method, p].standard_errors[i])
                for p in presets
            ]
            first = NONE
            if method in source.means:
                first = _cell(source.means[method][i], source.standard_errors[method][i])
            rows.append((str(i + 1), first, *told, f"{source.floor[i]:.4f}"))
        header = ("h", "published", *presets, "floor")
        title = f"{TITLES[experiment, distance]}: {method}"
        tables.append(Table(title, header, tuple(rows), remark))
    return tables


def _methods(columns: dict[tuple[str, str], Column], source: Published) -> list[str]:
    """Those that have a result, in the paper's order."""
    present = {method for method, _ in columns}
    return [method for method in ALL_METHODS if method in present]


def _cell(mean: float, standard_error: float) -> str:
    return f"{mean:.3f}" if np.isnan(standard_error) else f"{mean:.3f} ± {standard_error:.3f}"


Columns = dict[tuple[str, str], Column]


class Check(NamedTuple):
    """A statement, whether it holds, and the figures behind it."""

    statement: str
    holds: bool
    figures: str


def all_checks(columns: dict[tuple[str, Distance], Columns]) -> list[Check]:
    """Every statement for which there are results."""
    checks = []
    for experiment, distance in DISTANCES:
        present = columns.get((experiment, distance), {})
        for method, preset in present:
            if method not in published(experiment, distance).means:
                continue
            if preset == "paper":
                checks.append(_matches(experiment, distance, method, present[method, preset]))
            else:
                checks.append(_beats(experiment, distance, method, present[method, preset]))
    gmm_tv = columns.get(("1d", "tv"), {}).get(("gmm", "ours"))
    if gmm_tv is not None:
        ratios = gmm_tv.means / published("1d", "tv").floor
        statement = f"1d: ours, GMM at most {FLOOR_MULTIPLE_1D} × the sampling floor in TV"
        checks.append(_at_most(statement, ratios, np.full(ratios.size, FLOOR_MULTIPLE_1D)))
    gmm_w1 = columns.get(("1d", "w1"), {}).get(("gmm", "ours"))
    if gmm_w1 is not None:
        statement = f"1d: ours, GMM at most {W1_LIMIT} in W1"
        checks.append(_at_most(statement, gmm_w1.means, np.full(gmm_w1.means.size, W1_LIMIT)))
    return checks + _vector_checks(columns.get(("2d", "tv"), {}))


def _matches(experiment: str, distance: Distance, method: str, column: Column) -> Check:
    """At the h of the paper's main tables, not above the published figure by two errors."""
    source = published(experiment, distance)
    places = np.array(SHORT_STEPS[experiment]) - 1
    ours, theirs = column.means[places], source.means[method][places]
    errors = np.hypot(
        np.nan_to_num(column.standard_errors[places]), source.standard_errors[method][places]
    )
    excess = (ours - theirs - ROUNDING) / errors
    figures = ", ".join(
        f"h = {h}: {a:.3f} against {b:.3f} ± {s:.3f}"
        for h, a, b, s in zip(
            SHORT_STEPS[experiment],
            ours,
            theirs,
            source.standard_errors[method][places],
            strict=True,
        )
    )
    statement = (
        f"{experiment}: paper preset, {method} matches or beats the published "
        f"{distance.upper()} within {ALLOWED_ERRORS:g} standard errors"
    )
    return Check(statement, bool(np.all(excess <= ALLOWED_ERRORS)), figures)


def _beats(experiment: str, distance: Distance, method: str, column: Column) -> Check:
    source = published(experiment, distance).means[method]
    statement = (
        f"{experiment}: ours, {method} at least as good as published in {distance.upper()} "
        "at every h"
    )
    return _at_most(statement, column.means, source + ROUNDING)


def _vector_checks(columns: Columns) -> list[Check]:
    floor = published("2d", "tv").floor
    ours = {m: column.means / floor for (m, preset), column in columns.items() if preset == "ours"}
    checks = []
    if ours:
        best = min(ours, key=lambda method: float(ours[method].max()))
        near, far = BEST_MULTIPLES_2D
        limits = np.where(np.arange(floor.size) < floor.size // 2, near, far)
        statement = (
            f"2d: ours, the best model ({best}) at most {near} × the sampling floor for h = 1..5 "
            f"and {far} × for h = 6..10"
        )
        checks.append(_at_most(statement, ours[best], limits))
    if "diffusion" in ours:
        limit = DIFFUSION_MULTIPLE_2D
        statement = f"2d: ours, diffusion at most {limit:g} × the sampling floor"
        checks.append(_at_most(statement, ours["diffusion"], np.full(floor.size, limit)))
    return checks


def _at_most(statement: str, values: np.ndarray, limits: np.ndarray) -> Check:
    worst = int(np.argmax(values / limits))
    over = [str(i + 1) for i in np.flatnonzero(values > limits)]
    figures = f"closest to the limit at h = {worst + 1}: {values[worst]:.3f} ≤ {limits[worst]:.3f}"
    if over:
        figures = (
            f"exceeded at h = {', '.join(over)}; worst at h = {worst + 1}: "
            f"{values[worst]:.3f} > {limits[worst]:.3f}"
        )
    return Check(statement, not over, figures)


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
