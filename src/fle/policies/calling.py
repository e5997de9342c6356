"""Calls somebody else's policy: in batches, within a time limit, and checks what it answers."""

import reprlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fle.errors import FLEError, PolicyError
from fle.policies.action_table import Array

BATCH_SIZE = 65536
# How long a run that was told to stop may take before it is left behind.
GRACE_SECONDS = 2.0
Result = TypeVar("Result")


def call_in_batches(
    function: Callable[[Array], Any], observations: Array, batch_size: int
) -> Array:
    """The policy's answers for all observations, one row each."""
    answers: list[Array] = []
    for start in range(0, len(observations), batch_size):
        # A copy, so that a policy which scales its input in place leaves the data alone.
        batch = np.array(observations[start : start + batch_size], order="C")
        stop = start + len(batch)
        try:
            answer = function(batch)
        except FLEError:
            raise
        except Exception as error:
            raise PolicyError(
                f"the policy failed on rows {start} to {stop - 1}, observations of shape"
                f" {batch.shape} and dtype {batch.dtype}: {type(error).__name__}: {error}"
            ) from error
        answers.append(_numbers(answer, start, stop))
        if answers[-1].shape[1:] != answers[0].shape[1:]:
            raise PolicyError(
                f"the policy answered shape {answers[-1].shape} for rows {start} to {stop - 1} but"
                f" {answers[0].shape} for the first rows; expected the same width throughout"
            )
    if not answers:
        raise PolicyError("there are no observations to ask the policy about")
    return np.concatenate(answers)


def _numbers(answer: Any, start: int, stop: int) -> Array:
    try:
        array = np.asarray(answer)
    except (ValueError, TypeError) as error:
        raise PolicyError(
            f"the policy answered {type(answer).__name__} for rows {start} to {stop - 1};"
            f" expected an array of numbers ({error})"
        ) from error
    if array.dtype.kind not in "biuf":
        raise PolicyError(
            f"the policy answered {reprlib.repr(answer)} of dtype {array.dtype} for rows {start} to"
            f" {stop - 1}; expected an array of numbers"
        )
    if array.ndim == 0 or len(array) != stop - start:
        raise PolicyError(
            f"the policy answered shape {array.shape} for {stop - start} observations;"
            f" expected {stop - start} rows, since it is called with a batch"
        )
    return array


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
                " a faster one, or more time (`timeout`)"
            )
        if errors and isinstance(errors[0], SystemExit):
            raise PolicyError(f"{self._name}: the policy tried to end the program") from errors[0]
        if errors:
            raise errors[0]
        return results[0]
