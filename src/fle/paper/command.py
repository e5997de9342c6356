"""`fle reproduce`: the paper's tables and figures, beside the published numbers."""

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from pathlib import Path
from typing import Any, TextIO, cast

from fle.cli.options import size
from fle.data import memory_ceiling
from fle.files import read_json, remove_leftovers, sole_writer

EXPERIMENTS = ("1d", "2d", "figures", "tabular", "lqr", "cvar", "discounted")
DEFAULT_SEEDS = 5
INTERRUPTED = 130


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add `reproduce` to a command line."""
    parser = subparsers.add_parser(
        "reproduce",
        help="the paper's tables and figures, beside the published numbers",
        description=(
            "Runs the paper's experiments. Stopped at any time, it goes on where it was: every run "
            "has a file, and is not repeated while its settings stay the same."
        ),
    )
    parser.add_argument(
        "experiments",
        nargs="+",
        choices=EXPERIMENTS,
        metavar="EXPERIMENT",
        help="1d, 2d: the tables; figures: densities and rings of one seed; tabular, lqr, cvar, "
        "discounted: error against n, with its bound",
    )
    parser.add_argument(
        "--seeds",
        type=_at_least_one,
        help=f"runs of every method (default: {DEFAULT_SEEDS}; figures alone or --quick: 1)",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=("categorical", "quantile", "diffusion", "gmm", "autoregressive", "flow"),
        help="only these",
    )
    parser.add_argument(
        "--presets",
        nargs="+",
        choices=("ours", "paper"),
        help="ours: our defaults; paper: its settings, hours (default: both; --quick: ours)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="minutes: fewer rows, short training, one seed"
    )
    parser.add_argument(
        "--jobs",
        type=_at_least_one,
        help="runs at the same time, each on a core of its own (default: one a core)",
    )
    parser.add_argument(
        "--memory",
        type=size,
        metavar="SIZE",
        help="ceiling, as 4G: a fit that would take more is refused (default: what is left)",
    )
    parser.add_argument(
        "--out", default="reproduction", metavar="DIR", help="directory of results (%(default)s)"
    )
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Do what is missing, then write and print everything there is."""
    # The models are imported here: asking for help must not wait for them.
    from fle.paper.lock_runs import Store
    from fle.paper.presets import ALL_METHODS, PRESETS, Key, Preset, keys_of
    from fle.paper.theory import STUDIES
    from fle.report.style import altair_or_error

    altair_or_error()
    store = Store(Path(options.out), quick=options.quick)
    store.prepare()
    methods = tuple(options.methods or ALL_METHODS)
    default_presets: tuple[Preset, ...] = ("ours",) if options.quick else PRESETS
    wanted = options.presets or default_presets
    presets = tuple(preset for preset in PRESETS if preset in wanted)
    tables = [name for name in ("1d", "2d") if name in options.experiments]
    keys: list[Key] = []
    if tables:
        seeds = range(options.seeds or (1 if options.quick else DEFAULT_SEEDS))
        for preset in presets:
            for name in ("1d", "1d-w1", "2d"):
                if name.removesuffix("-w1") in tables:
                    keys += keys_of(cast(Any, name), methods, (preset,), seeds)
    if "figures" in options.experiments:
        for name in ("1d", "2d"):
            keys += keys_of(cast(Any, name), methods, presets, range(1))
    studies = [name for name in STUDIES if name in options.experiments]
    with sole_writer(store.runs), memory_ceiling(options.memory):
        remove_leftovers(store.runs, r".+\.json")
        remove_leftovers(store.directory, r"index\.html|tables\.md|results\.json")
        jobs = options.jobs or os.cpu_count() or 1
        finished = _fill(store, list(dict.fromkeys(keys)), studies, jobs)
        _tell(store, _command(options))
    if not finished:
        print("Stopped. The same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    return 0


def _fill(store: Any, keys: Sequence[Any], studies: Sequence[str], jobs: int) -> bool:
    """Make the runs and studies that are missing, some at a time; False if interrupted."""
    from fle.paper.lock_runs import perform
    from fle.paper.presets import task_of
    from fle.paper.theory import is_kept, keep

    todo = store.missing(keys)
    left = [name for name in studies if not is_kept(store.study_path(name), quick=store.quick)]
    works = [
        float(task_of(key.experiment).horizon * store.setting(key).resolved.steps) for key in todo
    ]
    bar = RunsBar([*works, *(1_000.0 for _ in left)])
    if len(keys) > len(todo):
        print(f"{len(keys) - len(todo)} of {len(keys)} runs are there already.", file=sys.stderr)

    def make(number: int) -> None:
        # A run that failed leaves its thread free before the others are called off.
        if bar.stopped:
            return
        try:
            run = bar.begin(number, todo[number].label)
            store.make(todo[number], perform, run)
            bar.end(run)
        except BaseException:
            bar.stop()
            raise

    try:
        # Threads, so that the runs of a method share compiled code; a fit leaves Python alone.
        with ThreadPoolExecutor(jobs) as pool:
            # Each in a context as this one is, where the ceiling of memory is known.
            waiting = [pool.submit(copy_context().run, make, number) for number in range(len(todo))]
            try:
                for future in as_completed(waiting):
                    future.result()
            except BaseException:
                bar.stop()
                pool.shutdown(cancel_futures=True)
                raise
        for number, name in enumerate(left, start=len(todo)):
            run = bar.begin(number, name)
            keep(name, store.study_path(name), quick=store.quick)
            bar.end(run)
    except KeyboardInterrupt:
        return False
    finally:
        bar.close()
    return True


def _tell(store: Any, command: str) -> None:
    """Write tables, figures and the page from all files there are, and print the tables."""
    from fle.paper.environment import describe
    from fle.paper.results import Results, lock_figures, study_figure, write_figures, write_results
    from fle.paper.theory import STUDIES, from_plain, is_kept

    began = time.perf_counter()
    collected = store.collect()
    studies = {
        name: from_plain(read_json(store.study_path(name)))
        for name in STUDIES
        if is_kept(store.study_path(name), quick=store.quick)
    }
    results = Results(collected.runs, studies, store.quick, describe(), command)
    figures = lock_figures(collected.runs)
    figures |= {f"study-{name}": study_figure(study) for name, study in studies.items()}
    write_figures(figures, store.directory / "figures")
    write_results(results, list(figures), store.directory)
    for table in [*results.main_tables(), *results.full_tables()]:
        print(table.text(), end="\n\n")
    for check in results.checks():
        print(f"{'holds ' if check.holds else 'MISSED'}  {check.statement}; {check.figures}")
    for name in collected.outdated:
        print(f"Left out, as it was made with other settings: {name}")
    print(
        f"Written to {store.directory} in {time.perf_counter() - began:.0f} s: index.html, "
        "tables.md, results.json, figures/."
    )


def _command(options: argparse.Namespace) -> str:
    parts = ["fle reproduce", *options.experiments]
    if options.seeds:
        parts.append(f"--seeds {options.seeds}")
    for name in ("methods", "presets"):
        if getattr(options, name):
            parts.append(f"--{name} {' '.join(getattr(options, name))}")
    return " ".join([*parts, *(["--quick"] if options.quick else [])])


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return number


class RunsBar:
    """One line for all runs, drawn over itself on a terminal; a line a run in a pipe.

    Runs are weighed by their expected work, so that the time left is not misled by short ones.
    Several may be under way at once.
    """

    def __init__(self, works: Sequence[float], stream: TextIO | None = None, width: int = 24):
        self._works = works
        self._stream = sys.stderr if stream is None else stream
        self._width = width
        self._shares = [0.0] * len(works)
        self._ended = 0
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.stopped = False

    def begin(self, number: int, label: str) -> "RunProgress":
        """A run begins; what comes back is told how it gets on."""
        run = RunProgress(self, number, label)
        self.draw(run, 0.0, "")
        return run

    def end(self, run: "RunProgress") -> None:
        """A run is over."""
        self._ended += 1
        if self._stream.isatty():
            self.draw(run, 1.0, "")
        else:
            seconds = time.monotonic() - run.began
            self._stream.write(f"{self._ended}/{len(self._works)} {run.label}: {seconds:.0f} s\n")
            self._stream.flush()

    def stop(self) -> None:
        """Runs under way end at their next stage."""
        self.stopped = True

    def close(self) -> None:
        """Leave the line."""
        if self._stream.isatty():
            self._stream.write("\n")
            self._stream.flush()

    def draw(self, run: "RunProgress", share: float, text: str) -> None:
        """Show that a run has done this share of its work."""
        with self._lock:
            self._shares[run.number] = share
            if not self._stream.isatty():
                return
            done = sum(s * work for s, work in zip(self._shares, self._works, strict=True))
            part = done / sum(self._works)
            filled = round(self._width * part)
            bar = "█" * filled + "░" * (self._width - filled)
            left = ""
            if part > 0:
                minutes = (time.monotonic() - self._began) * (1 / part - 1) / 60
                left = f"about {minutes:.0f} min left"
            parts = (f"{run.number + 1}/{len(self._works)}", run.label, text, left)
            self._stream.write(f"\r\x1b[K{bar} " + "  ".join(filter(None, parts)))
            self._stream.flush()


class RunProgress:
    """One run's progress (see `fle.fitting.Progress`), shown on the common bar."""

    def __init__(self, bar: RunsBar, number: int, label: str):
        self.number, self.label, self.began = number, label, time.monotonic()
        self._bar = bar
        self._stages = 1

    def start(self, stages: int, title: str) -> None:
        """A fit begins."""
        self._stages = stages

    def advance(self, stage: int, loss: float) -> None:
        """A stage of a fit is finished."""
        if self._bar.stopped:
            raise KeyboardInterrupt
        self._bar.draw(self, stage / self._stages, f"stage {stage}/{self._stages}")

    def finish(self) -> None:
        """A fit is over; the run goes on with measuring."""
