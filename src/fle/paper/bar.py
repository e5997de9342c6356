"""Progress over all runs of a reproduction."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO


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
    """One run's progress (see `fle.fitting.progress`), shown on the common bar."""

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
