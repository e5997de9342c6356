"""Policies that are known row by row: given so, or read off the log itself."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.data import Dataset
from fle.data.passes import centre_and_scale, shows_next
from fle.errors import PolicyError
from fle.policies.action_table import ActionSpace, ActionTable, Array
from fle.policies.function_policies import Policy, Question, StatedPolicy, stated


class RowPolicy(StatedPolicy):
    """A policy that says nothing about observations outside the data."""

    def table(self, question: Question) -> ActionTable:
        """Refused: only the rows of a data set can be asked about."""
        raise PolicyError(
            f"{type(self).__name__} belongs to the rows of a data set: use tabulated(policy, data),"
            " or a function of the observations"
        )


@dataclass(frozen=True, eq=False)
class RowProbabilities(RowPolicy):
    """Probabilities that are already known for each row of the data.

    Row i of `next` (n, A) is the policy at the next observation of row i, in the rows as they were
    given to `Dataset`: rows that it sorted or dropped are found again, and the entry of a
    terminated row may be anything. Row j of `initial` (m, A) is the policy at
    `data.initial_observations[j]`.
    """

    next: Array
    initial: Array

    def tables(self, data: Dataset, draws: int, seed: int) -> tuple[ActionTable, ActionTable]:
        """Every action is a candidate."""
        space = ActionSpace.of(data)
        width = (space.require_discrete(),)
        following, initial = _row_arrays(self, data, width)
        # A log has nothing sensible to say about rows that are over or left out.
        filled = np.where(_used_rows(data)[:, None], following, 1 / width[0])
        return (
            ActionTable.of_probabilities(space.probabilities(filled, "next row")[data.source_rows]),
            ActionTable.of_probabilities(space.probabilities(initial, "initial row")),
        )


@dataclass(frozen=True, eq=False)
class RowActions(RowPolicy):
    """One action that is already known for each row of the data, as in SARSA.

    Row i of `next`, (n,) integers or (n, k) floats, is a draw of the policy at the next observation
    of row i, in the rows as they were given to `Dataset`; the entry of a terminated row may be
    anything. Row j of `initial` is one at `data.initial_observations[j]`.
    """

    next: Array
    initial: Array

    def tables(self, data: Dataset, draws: int, seed: int) -> tuple[ActionTable, ActionTable]:
        """A single candidate a row."""
        space = ActionSpace.of(data)
        width = () if space.action_dim is None else (space.action_dim,)
        following, initial = _row_arrays(self, data, width)
        used = _used_rows(data).reshape(-1, *(1 for _ in width))
        filled = np.where(used, following, following.dtype.type(0))
        return (
            ActionTable.of_single_actions(space.actions(filled)[data.source_rows]),
            ActionTable.of_single_actions(space.actions(initial)),
        )


class LoggedPolicy(RowPolicy):
    """A policy that the log states at each row's own observation; `settle` brings it forward."""

    @abstractmethod
    def by_row(self, data: Dataset, following: Array, firsts: Array) -> RowPolicy:
        """Known at next and initial observations, given the rows where they stand.

        Entries for rows of the log that the data does not have, or that end, are fillers.
        """

    def tables(self, data: Dataset, draws: int, seed: int) -> tuple[ActionTable, ActionTable]:
        """Those of the settled policy."""
        return settle(self, data, seed=seed).tables(data, draws, seed)


@dataclass(frozen=True, eq=False)
class ProbabilityColumns(LoggedPolicy):
    """Probabilities (n, A) at each row's own observation, in the rows as given to `Dataset`.

    Those at a row's next observation are then the following row's.
    """

    values: Array

    def by_row(self, data: Dataset, following: Array, firsts: Array) -> RowPolicy:
        """The probabilities of the following row."""
        values = np.asarray(self.values)
        if values.ndim != 2 or len(values) != data.number_of_source_rows:
            raise PolicyError(
                f"ProbabilityColumns: expected shape ({data.number_of_source_rows},"
                f" {data.number_of_actions}), a row for each row given to Dataset; got"
                f" {values.shape}"
            )
        rows = data.source_rows
        probabilities = np.full(values.shape, 1 / values.shape[1])
        probabilities[rows] = values[rows[following]]
        return RowProbabilities(probabilities, values[rows[firsts]])


@dataclass(frozen=True)
class Behaviour(LoggedPolicy):
    """The policy that logged the data: its next action is the one of the following row."""

    def by_row(self, data: Dataset, following: Array, firsts: Array) -> RowPolicy:
        """The action of the following row."""
        shape = (data.number_of_source_rows, *data.actions.shape[1:])
        actions = np.zeros(shape, data.actions.dtype)
        actions[data.source_rows] = data.actions[following]
        return RowActions(actions, data.actions[firsts])


@dataclass(frozen=True, eq=False)
class Settled(StatedPolicy):
    """A policy that fits every subset of the data it was settled for.

    Attributes:
        policy: what it was, or what the log says of it row by row.
        remarks: reservations about what the log did not say.
        logged_the_data: whether it is the behaviour policy, which covers itself.
    """

    policy: StatedPolicy
    remarks: tuple[str, ...]
    logged_the_data: bool

    def table(self, question: Question) -> ActionTable:
        """That of its policy."""
        return self.policy.table(question)

    def tables(self, data: Dataset, draws: int, seed: int) -> tuple[ActionTable, ActionTable]:
        """Those of its policy."""
        return self.policy.tables(data, draws, seed)


def settle(policy: Policy, data: Dataset, *, seed: int = 0) -> Settled:
    """Read `Behaviour` and `ProbabilityColumns` off the rows; leave others as they are.

    What the policy does at a next observation stands in the following row. Where a row was cut off
    nothing follows; then it is what was logged at the nearest observation, by a random row if there
    are several. Leaving such rows out would be wrong: a row that terminates at the time limit would
    stay while one that goes on would not, and episodes would seem to end too often. A policy that
    is settled already stays as it is.

    >>> settled = settle(Behaviour(), data)
    >>> result = fle.evaluate(data.subset(rows), settled, gamma=0.9)
    """
    if isinstance(policy, Settled):
        return policy
    if not isinstance(policy, LoggedPolicy):
        return Settled(stated(policy), (), logged_the_data=False)
    episodes = _whole_episodes(policy, data)
    generator = np.random.default_rng([seed, 2])
    initial = data.require_initial_observations()
    following, stands = following_rows(data)
    unknown = np.flatnonzero(~stands & ~data.terminations)
    firsts, unstarted = first_rows_of(data, episodes, initial)
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
    known = policy.by_row(data, following, firsts)
    return Settled(known, tuple(remarks), logged_the_data=isinstance(policy, Behaviour))


def _whole_episodes(policy: LoggedPolicy, data: Dataset) -> Array:
    if data.episodes is None or not data.whole_episodes:
        state = "unknown" if data.episodes is None else "incomplete"
        raise PolicyError(
            f"{type(policy).__name__} reads next actions off the following row, but the episodes"
            f" are {state}. Give episodes, or flags with the rows in order, and call"
            " fle.policies.settle before taking a subset"
        )
    return data.episodes


def following_rows(data: Dataset) -> tuple[Array, Array]:
    """The row after each row, and whether it is of the same episode, at the next observation."""
    following = np.minimum(np.arange(len(data)) + 1, len(data) - 1)
    if data.episodes is None:
        return following, np.zeros(len(data), dtype=bool)
    stands = shows_next(data.observations, data.next_observations)
    stands[:-1] &= data.episodes[:-1] == data.episodes[1:]
    if data.steps is not None:
        stands[:-1] &= data.steps[1:] == data.steps[:-1] + 1
    return following, stands


def first_rows_of(data: Dataset, episodes: Array, initial: Array) -> tuple[Array, Array]:
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


def _used_rows(data: Dataset) -> Array:
    used = np.zeros(data.number_of_source_rows, dtype=bool)
    used[data.source_rows[~data.terminations]] = True
    return used


def _row_arrays(
    policy: RowProbabilities | RowActions, data: Dataset, width: tuple[int, ...]
) -> tuple[Array, Array]:
    """`next` and `initial`, each with one entry of this width for every row."""
    rows = (data.number_of_source_rows, len(data.require_initial_observations()))
    following, initial = (
        _row_array(f"{type(policy).__name__}.{field}", values, (count, *width))
        for field, values, count in zip(
            ("next", "initial"), (policy.next, policy.initial), rows, strict=True
        )
    )
    return following, initial


def _row_array(name: str, values: Any, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.shape != shape:
        raise PolicyError(f"{name}: expected shape {shape}, got {array.shape} of {array.dtype}")
    return array
