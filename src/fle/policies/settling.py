"""Policies that the log itself states become known row by row."""

from dataclasses import dataclass

import numpy as np

from fle.data import Dataset
from fle.data.units import centre_and_scale
from fle.errors import PolicyError
from fle.policies.kinds import (
    Array,
    Behaviour,
    Policy,
    ProbabilityColumns,
    RowActions,
    RowProbabilities,
)


@dataclass(frozen=True, eq=False)
class Settled:
    """A policy that fits every subset of the data it was settled for, and reservations about it."""

    policy: Policy
    remarks: tuple[str, ...]


def settle(policy: Policy, data: Dataset, *, seed: int = 0) -> Settled:
    """Read `Behaviour` and `ProbabilityColumns` off the rows; leave others as they are.

    What the policy does at a next observation stands in the following row. Where a row was cut off
    nothing follows; then it is what was logged at the nearest observation, by a random row if there
    are several. Leaving such rows out would be wrong: a row that terminates at the time limit would
    stay while one that goes on would not, and episodes would seem to end too often.
    """
    if not isinstance(policy, Behaviour | ProbabilityColumns):
        return Settled(policy, ())
    episodes = _whole_episodes(policy, data)
    generator = np.random.default_rng([seed, 2])
    initial = data.require_initial_observations()
    following, unknown = _following_rows(data, episodes)
    firsts, unstarted = _first_rows(data, episodes, initial)
    steps = None if data.steps is None else data.steps[unknown] + 1
    following[unknown] = _nearest_rows(data, data.next_observations[unknown], steps, generator)
    steps = None if data.steps is None else np.zeros(len(unstarted), dtype=np.int64)
    firsts[unstarted] = _nearest_rows(data, initial[unstarted], steps, generator)
    remarks = [
        f"{len(missing)} of {total} {what}; the policy there is taken from the nearest observation"
        for missing, total, what in (
            (
                unknown,
                len(data),
                "rows have no next action in the log, mostly since it was cut off",
            ),
            (unstarted, len(initial), "initial observations have no row that starts there"),
        )
        if len(missing)
    ]
    return Settled(_by_row(policy, data, following, firsts), tuple(remarks))


def _whole_episodes(policy: Policy, data: Dataset) -> Array:
    if data.episodes is None or not data.whole_episodes:
        state = "unknown" if data.episodes is None else "incomplete"
        raise PolicyError(
            f"{type(policy).__name__} reads next actions off the following row, but the episodes"
            f" are {state}. Give episodes, or flags with the rows in order, and call"
            " fle.policies.settle before taking a subset"
        )
    return data.episodes


def _following_rows(data: Dataset, episodes: Array) -> tuple[Array, Array]:
    """The row after each row, and the rows that go on but have none at their next observation."""
    following = np.minimum(np.arange(len(data)) + 1, len(data) - 1)
    inside = np.append(episodes[1:] == episodes[:-1], False)
    same = (data.next_observations == data.observations[following]).reshape(len(data), -1)
    return following, np.flatnonzero(~(inside & same.all(axis=1)) & ~data.terminations)


def _first_rows(data: Dataset, episodes: Array, initial: Array) -> tuple[Array, Array]:
    """The row that starts at each initial observation, and those where there is none."""
    opening = np.flatnonzero(np.append(True, episodes[1:] != episodes[:-1]))
    # Episodes are numbered in the order of their starts, those without a row left included.
    opening = opening[episodes[opening] < len(initial)]
    starts = episodes[opening]
    same = (initial[starts] == data.observations[opening]).reshape(len(starts), -1).all(axis=1)
    firsts = np.full(len(initial), -1)
    firsts[starts[same]] = opening[same]
    return firsts, np.flatnonzero(firsts < 0)


def _nearest_rows(
    data: Dataset, asked: Array, steps: Array | None, generator: np.random.Generator
) -> Array:
    """A row whose observation is nearest to each that is asked; a random one of equals."""
    if len(asked) == 0:
        return np.zeros(0, dtype=np.int64)
    from scipy.spatial import cKDTree

    places = _features(data.observations, data.steps)
    wanted = _features(asked, steps)
    centre, scale = centre_and_scale(places)
    distinct, group = np.unique(places, axis=0, return_inverse=True)
    _, nearest = cKDTree((distinct - centre) / scale).query((wanted - centre) / scale)
    rows = np.argsort(group.reshape(-1), kind="stable")
    sizes = np.bincount(group.reshape(-1))
    ends = np.cumsum(sizes)
    return rows[ends[nearest] - 1 - generator.integers(sizes[nearest])]


def _features(observations: Array, steps: Array | None) -> Array:
    columns = observations.reshape(len(observations), -1).astype(np.float64)
    return columns if steps is None else np.column_stack([columns, steps])


def _by_row(
    policy: Behaviour | ProbabilityColumns, data: Dataset, following: Array, firsts: Array
) -> RowActions | RowProbabilities:
    """Entries for rows of the log that the data does not have, or that end, are fillers."""
    rows = data.source_rows
    if isinstance(policy, Behaviour):
        actions = np.zeros(
            (data.number_of_source_rows, *data.actions.shape[1:]), data.actions.dtype
        )
        actions[rows] = data.actions[following]
        return RowActions(actions, data.actions[firsts])
    values = np.asarray(policy.values)
    if values.ndim != 2 or len(values) != data.number_of_source_rows:
        raise PolicyError(
            f"ProbabilityColumns: expected shape ({data.number_of_source_rows},"
            f" {data.number_of_actions}), a row for each row given to Dataset; got {values.shape}"
        )
    probabilities = np.full(values.shape, 1 / values.shape[1])
    probabilities[rows] = values[rows[following]]
    return RowProbabilities(probabilities, values[rows[firsts]])
