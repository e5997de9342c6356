"""Progress over all runs of a reproduction."""

import sys
import time
from collections.abc import Sequence
from typing import TextIO


class RunsBar:
    """One line for all runs, drawn over itself on a terminal; a line a run in a pipe.

    It is told of the stages of each fit (see `fle.evaluation.progress`), and weighs runs by their
    expected work, so that the time left is not misled by short ones.
    """

    def __init__(self, works: Sequence[float], stream: TextIO | None = None, width: int = 24):
        self._works = works
        self._stream = sys.stderr if stream is None else stream
        self._width = width
        self._run = -1
        self._label = ""
        self._stages = 1
        self._began = time.monotonic()
        self._run_began = self._began

    def begin(self, label: str) -> None:
        """The next run begins."""
        self._run += 1
        self._label, self._run_began = label, time.monotonic()
        self._draw(0.0, "")

    def end(self) -> None:
        """The run is over."""
        if self._stream.isatty():
            self._draw(1.0, "")
        else:
            seconds = time.monotonic() - self._run_began
            self._stream.write(
                f"{self._run + 1}/{len(self._works)} {self._label}: {seconds:.0f} s\n"
            )
            self._stream.flush()

    def close(self) -> None:
        """Leave the line."""
        if self._stream.isatty():
            self._stream.write("\n")
            self._stream.flush()

    def start(self, stages: int, title: str) -> None:
        """A fit begins."""
        self._stages = stages

    def advance(self, stage: int, loss: float) -> None:
        """A stage of a fit is finished."""
        self._draw(stage / self._stages, f"stage {stage}/{self._stages}")

    def finish(self) -> None:
        """A fit is over; the run goes on with measuring."""

    def _draw(self, share: float, text: str) -> None:
        if not self._stream.isatty():
            return
        done = sum(self._works[: self._run]) + share * self._works[self._run]
        part = done / sum(self._works)
        filled = round(self._width * part)
        bar = "█" * filled + "░" * (self._width - filled)
        left = ""
        if part > 0:
            minutes = (time.monotonic() - self._began) * (1 / part - 1) / 60
            left = f"about {minutes:.0f} min left"
        parts = (f"{self._run + 1}/{len(self._works)}", self._label, text, left)
        self._stream.write(f"\r\x1b[K{bar} " + "  ".join(filter(None, parts)))
        self._stream.flush()
