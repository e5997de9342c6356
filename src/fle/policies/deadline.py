"""A limit on the time that somebody else's policy takes."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from fle.errors import PolicyError

# How long a run that was told to stop may take before it is left behind.
GRACE_SECONDS = 2.0
Result = TypeVar("Result")


class Deadline:
    """Seconds that a policy may take in total, over all its calls."""

    def __init__(self, name: str, seconds: float):
        self._name = name
        self._seconds = float(seconds)
        self._remaining = float(seconds)

    def run(self, work: Callable[[], Result], stop: Callable[[], None]) -> Result:
        """Runs in a thread of its own, which is told to stop, and left if it does not."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def target() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)

        worker = threading.Thread(target=target, daemon=True)
        began = time.monotonic()
        worker.start()
        try:
            worker.join(max(self._remaining, 0.0))
        finally:
            running = worker.is_alive()
            if running:
                stop()
            self._remaining -= time.monotonic() - began
        # Work that ends while it is being waited for may have taken too long all the same.
        if running or self._remaining < 0:
            worker.join(GRACE_SECONDS)
            raise PolicyError(
                f"{self._name}: the policy took longer than {self._seconds:g} s in total; expected"
                " a faster one, or more time (--policy-timeout, timeout=... in Python)"
            )
        if errors and isinstance(errors[0], SystemExit):
            raise PolicyError(f"{self._name}: the policy tried to end the program") from errors[0]
        if errors:
            raise errors[0]
        return results[0]
