"""What a fit will take, before it is begun, and how far it is, as an object that is passed in."""

import sys
import time
from functools import cache
from itertools import pairwise
from typing import NamedTuple, Protocol, TextIO

import numpy as np

from fle.data.passes import require_memory
from fle.models.law import Sizes
from fle.models.specs import ModelSpec
from fle.recipe import Resolved

# A training step takes about this many times its bare matrix products (`benchmarks/step_time.py`),
# and a fit this many seconds to compile.
STEP_OVER_PRODUCTS, COMPILATION = 3.0, 6.0
SIDE, REPETITIONS = 64, 200
# Bytes that JAX and what it compiles take, actions drawn of a policy that is a sampler, and the
# width from which on one-hot vectors outweigh everything else.
RUNTIME, DRAWN, DENSE = 300 * 2**20, 16, 64


class Progress(Protocol):
    """Told what the fit is doing."""

    def start(self, stages: int, title: str) -> None:
        """The fit begins."""

    def advance(self, stage: int, loss: float) -> None:
        """A stage is finished; `stage` counts from 1."""

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
        self._began = 0.0

    def start(self, stages: int, title: str) -> None:
        """Draw the empty bar."""
        self._stages, self._title, self._began = stages, title, time.monotonic()
        self._draw(0, "compiling")

    def advance(self, stage: int, loss: float) -> None:
        """Draw the bar up to this stage."""
        left = (time.monotonic() - self._began) / stage * (self._stages - stage)
        self._draw(stage, f"loss {loss:.4g}  {_clock(left)} left")

    def finish(self) -> None:
        """Leave the line."""
        self._stream.write("\n")
        self._stream.flush()

    def _draw(self, stage: int, text: str) -> None:
        filled = round(self._width * stage / self._stages)
        bar = "█" * filled + "░" * (self._width - filled)
        self._stream.write(f"\r\x1b[K{self._title} {bar} stage {stage}/{self._stages}  {text}")
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


def expected_cost(spec: ModelSpec, recipe: Resolved, sizes: Sizes, stages: int, rows: int) -> Cost:
    """From the widths of the networks and the speed of a matrix product here.

    A step has two products backward for one forward, and one at the next inputs.
    """
    steps = recipe.steps * stages
    uses = steps * recipe.batch_size
    numbers = _parameters(spec, sizes)
    memory = _memory(sizes, rows)
    if numbers == 0:
        return Cost(0, stages * rows, COMPILATION, memory, rows)
    products = 2.0 * 4 * numbers * uses
    seconds = COMPILATION + STEP_OVER_PRODUCTS * products / _speed()
    return Cost(steps, uses, seconds, memory, rows)


def _memory(sizes: Sizes, rows: int) -> int:
    """Rows with their candidates, in float32, and the tables that are prepared from them."""
    observation = 1 if sizes.discrete_observations else sizes.observation
    action = 1 if sizes.discrete_actions else sizes.action
    candidates = sizes.action if sizes.discrete_actions else DRAWN
    stored = 2 * observation + action + sizes.returns + candidates * (action + 1)
    # Codes become one-hot vectors wherever a network sees them.
    seen = sizes.inputs + candidates * (sizes.inputs if sizes.inputs > DENSE else 1)
    return RUNTIME + 4 * rows * (2 * stored + seen)


def _parameters(spec: ModelSpec, sizes: Sizes) -> int:
    """Entries of the matrices between layers, where the model says its widths."""
    values = spec.values()
    hidden = values.get("hidden")
    if hidden is None:
        return 0
    layers = (hidden, hidden) if isinstance(hidden, int) else tuple(hidden)
    outputs = 1
    for name, factor in (("components", 3), ("bins", 1), ("atoms", 1), ("quantiles", 1)):
        outputs = max(outputs, factor * (values.get(name) or 1) * sizes.returns)
    widths = [sizes.inputs, *layers, outputs]
    return sum(a * b for a, b in pairwise(widths))


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
