"""What a fit will take, before it is begun, and how far it is, as an object that is passed in."""

import sys
import time
from functools import cache
from itertools import pairwise
from typing import NamedTuple, Protocol, TextIO

import numpy as np

from fle.data.passes import require_memory
from fle.fitting.targets import LINE_BLOCK, MOST_CANDIDATES, TABLE_NUMBERS
from fle.models.law import Sizes
from fle.models.objectives import POOL
from fle.models.specs import ModelSpec
from fle.recipe import Resolved
from fle.screen import FRESH

# A training step takes about this many times its bare matrix products (`benchmarks/step_time.py`),
# and a fit this many seconds to compile.
STEP_OVER_PRODUCTS, COMPILATION = 3.0, 6.0
SIDE, REPETITIONS = 64, 200
# Products that take as long as what the optimiser does with one parameter.
PASSES = 30
# Bytes that JAX and what it compiles take.
RUNTIME = 300 * 2**20
# How often parameters lie in memory: while a stage is trained (the law, its gradient, average and
# moments, and what is worked out between them), and of every fit that is kept.
WHILE_TRAINED, WHILE_KEPT = 20, 3
# What the networks have at hand of a line, as a multiple of their layers.
AT_HAND = 2
# Numbers of a row that tell how far the log is followed.
LINES = 6
# Bytes of a row, and of each of its candidates, while a plan is made (`benchmarks/many_rows.py`).
PLANNED, PLANNED_A_CANDIDATE = 120, 32


class Progress(Protocol):
    """Told what the fit is doing."""

    def start(self, stages: int, title: str) -> None:
        """The fit begins."""

    def advance(self, stage: int, loss: float) -> None:
        """A stage is finished, or a replicate, which has no loss (NaN); both count from 1."""

    def finish(self) -> None:
        """The fit is over, or was stopped."""


class Silent:
    """Says nothing."""

    def start(self, stages: int, title: str) -> None:
        """Nothing."""

    def advance(self, stage: int, loss: float) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


class Titled:
    """Another progress, whose titles say whose fit it is."""

    def __init__(self, name: str, progress: Progress):
        self._name, self._progress = name, progress

    def start(self, stages: int, title: str) -> None:
        """Pass it on under the name."""
        self._progress.start(stages, f"{self._name}: {title}")

    def advance(self, stage: int, loss: float) -> None:
        """Pass it on."""
        self._progress.advance(stage, loss)

    def finish(self) -> None:
        """Pass it on."""
        self._progress.finish()


class TerminalBar:
    """One line that is drawn over itself: stage, loss and time left."""

    def __init__(self, stream: TextIO | None = None, width: int = 24):
        self._stream = sys.stderr if stream is None else stream
        self._width = width
        self._stages = 1
        self._title = ""
        self._first: tuple[int, float] | None = None

    def start(self, stages: int, title: str) -> None:
        """Draw the empty bar."""
        self._stages, self._title, self._first = stages, title, None
        self._draw(0, "compiling")

    def advance(self, stage: int, loss: float) -> None:
        """Draw the bar up to this stage."""
        words = "" if np.isnan(loss) else f"loss {loss:.4g}  "
        now = time.monotonic()
        # What the first one took was mostly compilation, which does not come again.
        first, began = self._first = self._first or (stage, now)
        if stage > first:
            left = (now - began) / (stage - first) * (self._stages - stage)
            words += f"{_clock(left)} left"
        self._draw(stage, words)

    def finish(self) -> None:
        """Leave the line."""
        self._stream.write("\n")
        self._stream.flush()

    def _draw(self, stage: int, text: str) -> None:
        filled = round(self._width * stage / self._stages)
        bar = "█" * filled + "░" * (self._width - filled)
        line = f"{self._title} {bar} stage {stage}/{self._stages}  {text}"
        self._stream.write(f"{FRESH}{line}".rstrip())
        self._stream.flush()


def default_progress() -> Progress:
    """A bar on a terminal, nothing in a pipe."""
    return TerminalBar() if sys.stderr.isatty() else Silent()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"


class Cost(NamedTuple):
    """What training takes: optimiser steps, times that a row is used, and guesses of the rest.

    seconds: on this machine, with a core to itself. memory: bytes beside the data itself. rows: of
    the data.
    """

    steps: int
    row_uses: int
    seconds: float
    memory: int
    rows: int

    def in_words(self) -> str:
        """In one line."""
        return (
            f"{self.steps:,} optimiser steps, {self.row_uses:,} uses of a row, about "
            f"{self.seconds:,.0f} s on this machine with a core to itself, and "
            f"{self.memory / 2**30:.2g} GiB of memory"
        )

    def require_memory(self) -> None:
        """Refuse a fit that does not fit in memory, before anything of it is allocated."""
        require_memory(self.memory, "The fit", self.rows)


def expected_cost(
    spec: ModelSpec,
    recipe: Resolved,
    sizes: Sizes,
    *,
    stages: int,
    kept: int,
    rows: int,
    candidates: int,
) -> Cost:
    """From the widths of the networks and the speed of a matrix product here.

    A step has two products backward for one forward, and one at the next inputs; what is looked up
    costs the optimiser alone, which goes over all parameters.

    kept: fits that the result needs. candidates: actions of a row that the policy may take.
    """
    steps = recipe.steps * stages
    uses = steps * recipe.batch_size
    widths = _widths(spec, sizes)
    # A table is made where its lines are used often enough, and where they ask several fits.
    worth = rows * candidates <= recipe.steps * recipe.batch_size * min(candidates, recipe.draws)
    tabulated = worth or kept > 1
    memory = _memory(sizes, widths, kept, rows, candidates, tabulated=tabulated)
    if not widths:
        return Cost(0, stages * rows, COMPILATION, memory, rows)
    looked_up = sum(number - 1 for _, number in sizes.codes) * widths[1]
    products = 2.0 * 4 * (_entries(widths) - looked_up) * uses
    passes = 2.0 * PASSES * looked_up * steps
    seconds = COMPILATION + STEP_OVER_PRODUCTS * (products + passes) / _speed()
    return Cost(steps, uses, seconds, memory, rows)


def planned_memory(rows: int, candidates: int) -> int:
    """Bytes that making a plan takes beside the data and the table of what the policy does.

    With candidates: what the logging policy does, and the coupling of both. Without: the chance to
    follow the log, rewards, weights, and orders of rows.
    """
    return rows * (PLANNED + PLANNED_A_CANDIDATE * candidates)


def _memory(
    sizes: Sizes, widths: list[int], kept: int, rows: int, candidates: int, *, tabulated: bool
) -> int:
    """Rows with their candidates, the tables that are prepared from them, and the parameters."""
    observation = 1 if sizes.discrete_observations else sizes.observation
    action = 1 if sizes.discrete_actions else sizes.action
    stored = 2 * observation + action + sizes.returns + candidates * (action + 1)
    # How far the log is followed, and what it earned there, in float64.
    stored += 2 * (LINES + sizes.returns)
    if not widths:
        # A fit that is computed at once has all rows before it.
        return RUNTIME + 4 * rows * (2 * stored + (1 + candidates) * sizes.inputs)
    # What every network sees: numbers that have products in the trend, and codes.
    numbers = sizes.inputs - len(sizes.codes)
    parameters = _entries(widths) + numbers**2 * sizes.returns
    line = sizes.inputs + min(candidates, MOST_CANDIDATES) * widths[-1]
    table = min(rows * line, max(TABLE_NUMBERS, rows * (sizes.inputs + POOL)))
    layers = AT_HAND * min(LINE_BLOCK, rows) * candidates * (sizes.inputs + sum(widths[1:]))
    copies = WHILE_TRAINED + WHILE_KEPT * kept
    tables = 2 * table if tabulated else 0
    return RUNTIME + 4 * (rows * stored + tables + layers + copies * parameters)


def _entries(widths: list[int]) -> int:
    return sum(a * b for a, b in pairwise(widths))


def _widths(spec: ModelSpec, sizes: Sizes) -> list[int]:
    """Of the layers of a network, where the model says them; else none."""
    values = spec.values()
    # No hidden layers at all are a network too.
    hidden = values.get("hidden", values.get("context"))
    if hidden is None:
        return []
    layers = (hidden, hidden) if isinstance(hidden, int) else tuple(hidden)
    outputs = 1
    for name, factor in (("components", 3), ("bins", 1), ("atoms", 1), ("quantiles", 1)):
        outputs = max(outputs, factor * (values.get(name) or 1) * sizes.returns)
    return [sizes.features, *layers, outputs]


@cache
def _speed() -> float:
    """Operations a second of matrix products of a step's size, which one core does alone."""
    left = np.ones((SIDE, SIDE), np.float32)
    best = np.inf
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        left @ left
        best = min(best, time.perf_counter() - began)
    return 2 * SIDE**3 / max(best, 1e-9)
