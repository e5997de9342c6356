"""Target policies that are recorded in the data: their probabilities, row by row."""

from dataclasses import dataclass, replace

import numpy as np

from fle.data.transitions import Array, Transitions, ends_episode, starts_episode
from fle.errors import DataError


@dataclass(frozen=True, eq=False)
class Recorded:
    """Probabilities (n, policies, actions) at the rows' own observations and at their next ones."""

    names: tuple[str, ...]
    here: Array
    following: Array | None


def follow_probabilities(transitions: Transitions) -> Transitions:
    """The probabilities at each next observation: those of the following row, unless given."""
    here, episodes = transitions.probabilities, transitions.episodes
    if here is None or transitions.next_probabilities is not None:
        return transitions
    if episodes is None:
        raise DataError(
            "probabilities at the next observations are unknown: the rows are separate"
            " transitions; give next_probability columns, or episodes"
        )
    last = ends_episode(episodes)
    unknown = last & ~transitions.terminations & ~transitions.next_missing
    if unknown.any():
        row = transitions.source_rows[np.argmax(unknown)]
        raise DataError(
            f"row {row} is truncated and has a next observation, but the policy's probabilities"
            f" there are unknown ({int(unknown.sum())} such rows); give next_probability columns,"
            " or leave out the next observations, so that such rows are dropped"
        )
    following = np.concatenate([here[1:], here[-1:]])
    # Never used: these rows are terminated, or about to be dropped.
    following[last] = here[last]
    return replace(transitions, next_probabilities=following)


def first_probabilities(transitions: Transitions) -> Array | None:
    """The probabilities where `first_observations` finds the initial observations."""
    if transitions.probabilities is None:
        return None
    if transitions.episodes is not None:
        return transitions.probabilities[starts_episode(transitions.episodes)]
    if transitions.steps is not None and (transitions.steps == 0).any():
        return transitions.probabilities[transitions.steps == 0]
    return None
