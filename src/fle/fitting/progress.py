"""Progress of a fit, as an object that is passed in."""

import sys
import time
from typing import Protocol, TextIO


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
