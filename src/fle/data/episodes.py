"""Where episodes start and end, in what order their rows come, and what follows each row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fle.data.passes import (
    Array,
    gather,
    holds_throughout,
    in_parallel,
    successors,
    with_successors,
)
from fle.errors import DataError


@dataclass(frozen=True, kw_only=True, eq=False)
class Transitions:
    """The checked columns of n rows, before the episodes are put in order.

    The columns named here are those that the rules below look at. `others`, by name, only go
    along with their rows. `next_missing` marks rows whose next observation is unknown; the entry
    there is a filler. `source_rows` says where each row stood in the arrays that the user gave.
    `probabilities` are (n, policies, actions), of target policies that are recorded in the data.
    """

    observations: Array
    next_observations: Array | None
    next_missing: Array
    terminations: Array
    truncations: Array
    episodes: Array | None
    steps: Array | None
    probabilities: Array | None
    next_probabilities: Array | None
    source_rows: Array
    others: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.observations)

    def columns(self) -> dict[str, Array | None]:
        """Every column by its name."""
        named = {name: column for name, column in vars(self).items() if name != "others"}
        return {**named, **self.others}

    def take(self, rows: Array, taken: Mapping[str, Array] | None = None) -> "Transitions":
        """The given rows of every column, but for those that were taken already."""
        taken = taken or {}
        left = {
            name: column
            for name, column in self.columns().items()
            if column is not None and name not in taken
        }
        gathered = in_parallel(lambda column: gather(column, rows), list(left.values()), len(rows))
        moved: dict[str, Any] = {**dict(zip(left, gathered, strict=True)), **taken}
        others = {name: moved.pop(name) for name in self.others}
        return replace(self, others=others, **moved)


def starts_episode(episodes: Array) -> Array:
    """True where a row opens an episode, for rows kept together by episode."""
    return np.concatenate([[True], episodes[1:] != episodes[:-1]])


def ends_episode(episodes: Array) -> Array:
    """True where a row closes an episode, for rows kept together by episode."""
    return np.concatenate([episodes[1:] != episodes[:-1], [True]])


def position_in_episode(episodes: Array) -> Array:
    """How many rows of the same episode come before each row."""
    rows = np.arange(len(episodes))
    return rows - np.maximum.accumulate(np.where(starts_episode(episodes), rows, 0))


def number_episodes(ids: Array) -> tuple[Array, Array]:
    """Episodes numbered by first appearance, and the id that each number stands for."""
    starts = starts_episode(ids)
    # Rows of an episode mostly stand together, so there are far fewer runs than rows to sort.
    labels, first_runs, numbers = np.unique(ids[starts], return_index=True, return_inverse=True)
    order = np.argsort(first_runs)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    lengths = np.diff(np.flatnonzero(starts), append=len(ids))
    if len(labels) == len(numbers):
        return np.repeat(np.arange(len(labels)), lengths), labels[order]
    return np.repeat(rank[numbers], lengths), labels[order]


def settle_flags(transitions: Transitions, warnings: list[str]) -> Transitions:
    """A row that is both terminated and truncated is terminated."""
    both = transitions.terminations & transitions.truncations
    if not both.any():
        return transitions
    warnings.append(
        f"{int(both.sum())} rows are both terminated and truncated (first: row"
        f" {int(np.argmax(both))}); they are taken as terminated"
    )
    return replace(transitions, truncations=transitions.truncations & ~both)


def order_rows(transitions: Transitions, warnings: list[str]) -> Transitions:
    """Rows by episode, and by step where steps are known."""
    episodes, steps = transitions.episodes, transitions.steps
    if episodes is None:
        return transitions
    if _in_order(episodes, steps):
        return transitions
    order = np.argsort(episodes, kind="stable") if steps is None else np.lexsort((steps, episodes))
    moved = int((order != np.arange(len(order))).sum())
    if moved == 0:
        return transitions
    key = "episode, keeping their order within it" if steps is None else "episode and step"
    warnings.append(f"rows were unsorted: {moved} of {len(order)} rows were moved to sort by {key}")
    return transitions.take(order)


def _in_order(episodes: Array, steps: Array | None) -> bool:
    """Whether sorting would move nothing; far cheaper than sorting to find out."""
    if (episodes[1:] < episodes[:-1]).any():
        return False
    if steps is None:
        return True
    return not ((steps[1:] < steps[:-1]) & (episodes[1:] == episodes[:-1])).any()


def check_steps(transitions: Transitions, labels: Array) -> None:
    """Within an episode the steps must run 0, 1, 2, ..."""
    episodes, steps = transitions.episodes, transitions.steps
    if episodes is None or steps is None:
        return
    starts = starts_episode(episodes)
    before, after, new = steps[:-1], steps[1:], starts[1:]
    if not steps[starts].any() and holds_throughout(
        lambda part: (after[part] - before[part] == 1) | new[part], len(after)
    ):
        return
    expected = position_in_episode(episodes)
    wrong = steps != expected
    row = int(np.argmax(wrong))
    episode, step = labels[episodes[row]], int(steps[row])
    source = transitions.source_rows[row]
    if expected[row] > 0 and step == steps[row - 1]:
        raise DataError(
            f"episode {episode} has step {step} twice (rows {transitions.source_rows[row - 1]} and"
            f" {source}); expected each step once: drop one, or give the rows different episodes"
        )
    raise DataError(
        f"episode {episode}: step {expected[row]} is missing; row {source} has step {step}."
        " Steps count from 0 without gaps: add the row, or start a new episode after the gap"
    )


def check_ends(transitions: Transitions, labels: Array) -> None:
    """Nothing may follow the end of an episode."""
    if transitions.episodes is None:
        return
    inside = ~ends_episode(transitions.episodes)
    for name, flags in (
        ("terminated", transitions.terminations),
        ("truncated", transitions.truncations),
    ):
        followed = flags & inside
        if followed.any():
            row = int(np.argmax(followed))
            raise DataError(
                f"episode {labels[transitions.episodes[row]]} is {name} at row"
                f" {transitions.source_rows[row]} but has rows after it; expected the flag on the"
                " last row only: give the later rows an episode of their own, or fix the flag"
            )


def derive_episodes(transitions: Transitions) -> Array | None:
    """Episodes read off the end flags, or None where the rows do not follow each other."""
    ends = transitions.terminations | transitions.truncations
    episodes = np.concatenate([[0], np.cumsum(ends[:-1])])
    if transitions.next_observations is None:
        return episodes
    if not_followed(transitions, episodes).any():
        return None
    steps = transitions.steps
    if steps is not None and (steps != position_in_episode(episodes)).any():
        return None
    return episodes


def not_followed(transitions: Transitions, episodes: Array) -> Array:
    """Rows inside an episode whose next observation is not the following row's observation."""
    following, observations = transitions.next_observations, transitions.observations
    differs = np.zeros(len(transitions), dtype=bool)
    if following is not None:
        unequal = (following[:-1] != observations[1:]).reshape(len(differs) - 1, -1)
        differs[:-1] = unequal.any(axis=1)
    return differs & ~ends_episode(episodes) & ~transitions.next_missing


def close_open_ends(transitions: Transitions, warnings: list[str]) -> Transitions:
    """A last row with neither flag was cut off: truncated, never terminated."""
    if transitions.episodes is None:
        return transitions
    last = ends_episode(transitions.episodes)
    unmarked = last & ~transitions.terminations & ~transitions.truncations
    if not unmarked.any():
        return transitions
    warnings.append(
        f"{int(unmarked.sum())} of {int(last.sum())} episodes end with a row that is neither"
        " terminated nor truncated; it is treated as truncated"
    )
    return replace(transitions, truncations=transitions.truncations | unmarked)


def settle_next_observations(transitions: Transitions, warnings: list[str]) -> Transitions:
    """Compare given next observations with the following row, or mark where there will be none."""
    episodes = transitions.episodes
    if transitions.next_observations is not None:
        differs = not_followed(transitions, episodes) if episodes is not None else np.zeros(1, bool)
        if differs.any():
            warnings.append(
                f"the next observation of {int(differs.sum())} rows differs from the following"
                f" row's observation (first: row {transitions.source_rows[np.argmax(differs)]});"
                " the given next observations are used"
            )
        return transitions
    if episodes is None:
        raise DataError(
            "next_observations cannot be derived because nothing says where episodes end;"
            " give next_observations, or episodes, or terminations and truncations"
        )
    missing = ends_episode(episodes) & ~transitions.terminations
    return replace(transitions, next_missing=missing)


def continue_rows(transitions: Transitions, warnings: list[str], *, overwrite: bool) -> Transitions:
    """Give each row its next observation, and leave out rows that cannot have one.

    Such rows are truncated; calling them terminal would be wrong. A terminated row gets the
    following row's observation too, which is never used.

    overwrite: the memory of the observations may be used again.
    """
    missing, episodes = transitions.next_missing, transitions.episodes
    if episodes is None:
        return transitions
    given, observations = transitions.next_observations, transitions.observations
    if not missing.any():
        if given is not None:
            return transitions
        return replace(transitions, next_observations=successors(observations, overwrite=overwrite))
    _announce_dropped(missing, warnings)
    rows = np.flatnonzero(~missing)
    # The row before a dropped one is now the last of its episode, cut off in the same sense.
    before = np.flatnonzero(missing[1:] & (episodes[1:] == episodes[:-1]))
    truncations = transitions.truncations.copy()
    truncations[before] = True
    kept = replace(transitions, truncations=truncations)
    if given is not None:
        return kept.take(rows)
    own, following = with_successors(observations, rows, overwrite=overwrite)
    none = np.zeros(len(rows), dtype=bool)
    taken = {"observations": own, "next_missing": none}
    source = kept.source_rows
    if holds_throughout(lambda part: source[part] == np.arange(part.start, part.stop), len(source)):
        taken["source_rows"] = rows
    return replace(kept.take(rows, taken), next_observations=following)


def _announce_dropped(missing: Array, warnings: list[str]) -> None:
    count = int(missing.sum())
    warnings.append(
        f"{count} truncated rows have no next observation and were dropped"
        " (they are not terminal); give next_observations to keep them"
    )
    if len(missing) - count < 2:
        raise DataError(
            f"{len(missing) - count} rows are left after {count} truncated rows without a next"
            " observation were dropped; expected at least 2: give next_observations"
        )


def first_rows(transitions: Transitions) -> Array | None:
    """The rows that start an episode, or that are at step 0; None where neither is known."""
    if transitions.episodes is not None:
        return np.flatnonzero(starts_episode(transitions.episodes))
    if transitions.steps is not None and (transitions.steps == 0).any():
        return np.flatnonzero(transitions.steps == 0)
    return None


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
