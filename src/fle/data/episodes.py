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
    row_blocks,
    successors,
    with_successors,
)
from fle.errors import DataError, Remark

FEWEST_ROWS = 2
# Steps that count from here on stay below 2^63.
MOST_FIRST = 2**62


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


def first_rows_in_blocks(episodes: Array) -> Array:
    """Where each episode starts, of rows kept together by episode; some rows at a time."""
    found = [np.zeros(1, np.int64)]
    for part in row_blocks(len(episodes) - 1):
        starts = np.flatnonzero(episodes[1:][part] != episodes[:-1][part])
        found.append(starts + part.start + 1)
    return np.concatenate(found)


def position_in_episode(episodes: Array) -> Array:
    """How many rows of the same episode come before each row."""
    rows = np.arange(len(episodes))
    return rows - np.maximum.accumulate(np.where(starts_episode(episodes), rows, 0))


def increases(values: Array) -> bool:
    """Whether each is greater than the one before; far cheaper than sorting to find out."""
    return bool((values[1:] > values[:-1]).all())


def number_episodes(ids: Array) -> tuple[Array, Array]:
    """Episodes numbered by first appearance, and the id that each number stands for."""
    starts = np.flatnonzero(starts_episode(ids))
    lengths = np.diff(starts, append=len(ids))
    # Rows of an episode mostly stand together, so there are far fewer runs than rows to sort.
    runs = ids[starts]
    if increases(runs):
        return np.repeat(np.arange(len(runs)), lengths), runs
    labels, first_runs, numbers = np.unique(runs, return_index=True, return_inverse=True)
    order = np.argsort(first_runs)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    if len(labels) == len(numbers):
        return np.repeat(np.arange(len(labels)), lengths), labels[order]
    return np.repeat(rank[numbers], lengths), labels[order]


def settle_flags(transitions: Transitions, warnings: list[str]) -> Transitions:
    """A row that is both terminated and truncated is terminated."""
    both = transitions.terminations & transitions.truncations
    if not both.any():
        return transitions
    warnings.append(
        Remark(
            "{count} rows are both terminated and truncated (first: row {row}); they are taken as"
            " terminated",
            count=int(both.sum()),
            row=int(np.argmax(both)),
        )
    )
    return replace(transitions, truncations=transitions.truncations & ~both)


def order_rows(transitions: Transitions, warnings: list[str], notes: list[str]) -> Transitions:
    """Rows by episode, and by step where steps are known, which is what a step is given for."""
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
    told = warnings if steps is None else notes
    said = f"rows were unsorted: {{moved}} of {{rows}} rows were moved to sort by {key}"
    told.append(Remark(said, moved=moved, rows=len(order)))
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
    if _counts_rows(steps, starts) and steps[0] == 0:
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


def _counts_rows(steps: Array, starts: Array) -> bool:
    """Whether the integers count the rows of every episode, from one number on."""
    first = steps[starts]
    if steps.dtype.kind != "i" or first[0] > MOST_FIRST or (first != first[0]).any():
        return False
    before, after, new = steps[:-1], steps[1:], starts[1:]
    return holds_throughout(lambda part: (after[part] - before[part] == 1) | new[part], len(after))


def check_order(transitions: Transitions, labels: Array) -> None:
    """Within an episode the order must increase; where it counts rows, it must not skip any.

    It counts rows if most rows are one above the row before. Dates and clocks may skip.
    """
    episodes, order = transitions.episodes, transitions.steps
    if episodes is None or order is None:
        return
    starts = starts_episode(episodes)
    if _counts_rows(order, starts):
        return
    inside = ~starts[1:]
    back = inside & (order[1:] <= order[:-1])
    if back.any():
        row = 1 + int(np.argmax(back))
        here, before = (transitions.source_rows[place] for place in (row, row - 1))
        episode = labels[episodes[row]]
        if order[row] == order[row - 1]:
            raise DataError(
                f"episode {episode} has step {order[row]} twice (rows {before} and {here});"
                " expected each step once: drop one, or give the rows different episodes"
            )
        raise DataError(
            f"episode {episode}: row {here} has step {order[row]} after {order[row - 1]}; expected"
            " steps that increase: give the rows different episodes (episode=...)"
        )
    if order.dtype.kind not in "iu":
        return
    ahead = (order[1:] - order[:-1])[inside]
    if ahead.size == 0 or 2 * (ahead == 1).sum() < ahead.size:
        return
    values, counts = np.unique(order[starts], return_counts=True)
    # One counter may also run through all episodes.
    through = bool((order[1:] > order[:-1]).all()) or 2 * counts.max() < starts.sum()
    expected = np.where(starts, order if through else values[np.argmax(counts)], 0)
    expected[1:] = np.where(starts[1:], expected[1:], order[:-1] + 1)
    wrong = order != expected
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"episode {labels[episodes[row]]}: step {expected[row]} is missing; row"
            f" {transitions.source_rows[row]} has step {order[row]}. A row was left out there, and"
            " the rows around it do not follow each other: add the row, or start a new episode"
            " after the gap"
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
                " last row only: give the later rows an episode of their own, or fix the flag; if"
                " the rows are in no order, say which column orders them with step=..."
            )


def derive_episodes(transitions: Transitions, *, declared: bool) -> Array | None:
    """Episodes read off the end flags, or None where the rows do not follow each other.

    declared: whether the steps count from 0; if not, they only have to increase.
    """
    ends = transitions.terminations | transitions.truncations
    episodes = np.concatenate([[0], np.cumsum(ends[:-1])])
    if transitions.next_observations is None:
        return episodes
    if not_followed(transitions, episodes).any():
        return None
    steps = transitions.steps
    if steps is None:
        return episodes
    if declared:
        follows = steps == position_in_episode(episodes)
    else:
        follows = starts_episode(episodes)
        follows[1:] |= steps[1:] > steps[:-1]
    return episodes if follows.all() else None


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
        Remark(
            "{unmarked} of {episodes} episodes end with a row that is neither terminated nor"
            " truncated; it is treated as truncated",
            unmarked=int(unmarked.sum()),
            episodes=int(last.sum()),
        )
    )
    return replace(transitions, truncations=transitions.truncations | unmarked)


def settle_next_observations(transitions: Transitions, warnings: list[str]) -> Transitions:
    """Compare given next observations with the following row, or mark where there will be none."""
    episodes = transitions.episodes
    if transitions.next_observations is not None:
        differs = not_followed(transitions, episodes) if episodes is not None else np.zeros(1, bool)
        if differs.any():
            if transitions.steps is None and episodes is not None:
                _refuse_shuffled(transitions, episodes, differs)
            warnings.append(
                Remark(
                    "the next observation of {count} rows differs from the following row's"
                    " observation (first: row {row}); the given next observations are used",
                    count=int(differs.sum()),
                    row=int(transitions.source_rows[np.argmax(differs)]),
                )
            )
        return transitions
    if episodes is None:
        raise DataError(
            "next_observations cannot be derived because nothing says where episodes end;"
            " give next_observations, or episodes, or terminations and truncations (if every row is"
            " an episode of its own, `terminated` is true in all)"
        )
    missing = ends_episode(episodes) & ~transitions.terminations
    return replace(transitions, next_missing=missing)


def _refuse_shuffled(transitions: Transitions, episodes: Array, differs: Array) -> None:
    """Rows whose next observation is another row of the episode show that they are in no order."""
    following, observations = transitions.next_observations, transitions.observations
    if following is None:
        return
    width = observations.reshape(len(observations), -1).shape[1]
    wide = [part.reshape(len(part), width).astype(np.float64) for part in (observations, following)]
    stacked = np.concatenate([np.column_stack([episodes, part]) for part in wide])
    places = np.unique(stacked, axis=0, return_inverse=True)[1].reshape(-1)
    here, after = places[: len(observations)], places[len(observations) :]
    elsewhere = differs & np.isin(after, here) & (after != here)
    # One or two may come back to where they were by chance.
    if 2 * elsewhere.sum() <= differs.sum():
        return
    row = transitions.source_rows[np.argmax(elsewhere)]
    raise DataError(
        f"the next observation of {int(elsewhere.sum())} rows (first: row {row}) is that of another"
        " row of the episode than the following one: the rows are in no order; sort them, or say"
        " which column orders them with step=..."
    )


def announce_dropped(transitions: Transitions, warnings: list[str]) -> None:
    """Say how many rows `continue_rows` will leave out."""
    count = int(transitions.next_missing.sum())
    if count:
        warnings.append(
            Remark(
                "{count} truncated rows have no next observation and were dropped (they are not"
                " terminal); give next_observations to keep them, or, where all that counts is over"
                " with the last row, as at a horizon, say that it terminated",
                count=count,
            )
        )


def cut_before(transitions: Transitions, unusable: Array, warnings: list[str]) -> Transitions:
    """End an episode before its first unusable row; what comes after it is left out too.

    The row before stays, truncated, with its next observation. Were only the unusable row left out,
    rows would seem to follow each other that do not.
    """
    episodes = transitions.episodes
    if episodes is None:
        gone = unusable
    else:
        before = np.cumsum(unusable)
        starts = starts_episode(episodes)
        first = np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))
        gone = before - (before - unusable)[first] > 0
    warnings.append(
        Remark(
            "{count} rows have no action or no reward: their episodes are cut there, and {after}"
            " rows after them are left out as well",
            count=int(unusable.sum()),
            after=int((gone & ~unusable).sum()),
        )
    )
    return replace(
        transitions,
        next_missing=transitions.next_missing | gone,
        terminations=transitions.terminations & ~gone,
    )


def continue_rows(transitions: Transitions, *, overwrite: bool) -> Transitions:
    """Give each row its next observation, and leave out rows that cannot have one.

    Such rows are truncated; calling them terminal would be wrong. A terminated row gets the
    following row's observation too, which is never used.

    overwrite: the memory of the observations may be used again.
    """
    missing, episodes = transitions.next_missing, transitions.episodes
    if episodes is None:
        return transitions.take(np.flatnonzero(~missing)) if missing.any() else transitions
    given, observations = transitions.next_observations, transitions.observations
    if not missing.any():
        if given is not None:
            return transitions
        return replace(transitions, next_observations=successors(observations, overwrite=overwrite))
    rows = np.flatnonzero(~missing)
    if len(rows) < FEWEST_ROWS:
        raise DataError(
            f"{len(rows)} rows are left after {int(missing.sum())} rows without a next observation"
            f" were dropped; expected at least {FEWEST_ROWS}: give next_observations"
        )
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


def first_rows(transitions: Transitions) -> Array | None:
    """The rows that start an episode, or that are at step 0; None where neither is known."""
    if transitions.episodes is not None:
        return np.flatnonzero(starts_episode(transitions.episodes))
    steps = transitions.steps
    if steps is not None and steps.dtype.kind in "iu" and (steps == 0).any():
        return np.flatnonzero(steps == 0)
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
