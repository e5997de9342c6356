"""Calls a user's policy in batches and checks the shape of what comes back."""

import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fle.errors import FLEError, PolicyError
from fle.policies.kinds import Array


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
