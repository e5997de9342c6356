"""Logs too large to be held at once: whole episodes of them, for a plan and for every stage.

A plan is made of a window, whole episodes drawn at random. Stages are trained on feeds: other
episodes, gathered while the stage before is trained. Decision 0035 says why.
"""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fle.data import Dataset
from fle.data.dataset import restored
from fle.data.passes import Array, by_column, holds_throughout
from fle.data.schema import ROW_FIELDS
from fle.errors import PolicyError
from fle.fitting.behaviour import LoggingPolicy, at_other_rows
from fle.fitting.encoding import Encoder, Rows
from fle.fitting.following import Coupling, Trail, discrete_coupling, normal_coupling
from fle.fitting.occupancy import Occupancy
from fle.policies import ActionTable, Policy
from fle.policies.answers import Answers, by_action
from fle.policies.row_policies import LoggedPolicy, RowPolicy, Settled, settle

# A log is large from so many numbers on; a window and a feed have so many [0035].
LARGE, WINDOW = 100_000_000, 12_000_000
# Rows of a block, which lie together on the disk; it ends with an episode.
BLOCK_ROWS = 4_096


@dataclass(frozen=True, eq=False)
class LargeLog:
    """A log in blocks of whole episodes, in random order.

    bounds: (blocks + 1,) the first row of each block. order: of the blocks. size: rows of a window
    and of a feed. known: how many of the first blocks make the window.
    """

    data: Dataset
    bounds: Array
    order: Array
    size: int
    known: int

    @classmethod
    def of(cls, data: Dataset, candidates: int, seed: int) -> "LargeLog | None":
        """A log that is too large for one plan; None for any other.

        candidates: actions that a policy is known by at every row.
        """
        arrays = (data.observations, data.actions, data.rewards)
        numbers = sum(math.prod(array.shape[1:]) for array in arrays) + candidates
        if len(data) * numbers <= LARGE:
            return None
        episodes = data.episodes
        if episodes is not None and not _is_sorted(episodes):
            return None
        bounds = np.arange(0, len(data), BLOCK_ROWS)
        if episodes is not None:
            # To the end of the episode that goes on there.
            ends = np.searchsorted(episodes, episodes[bounds[1:] - 1], side="right")
            bounds = np.append(0, ends)
        bounds = np.unique(np.append(bounds, len(data)))
        order = np.random.default_rng([seed, 0]).permutation(len(bounds) - 1)
        size = max(2, WINDOW // numbers)
        counts = np.cumsum(np.diff(bounds)[order])
        known = max(1, int(np.searchsorted(counts, size, side="right")))
        return cls(data, bounds, order, int(counts[known - 1]), known)

    @cached_property
    def window(self) -> Dataset:
        """The rows that plans are made of."""
        return self.rows(np.sort(self.order[: self.known]))

    def require_askable(self, policy: Policy) -> None:
        """Refuse a policy that lists what it does at every row of the log."""
        given = policy.policy if isinstance(policy, Settled) else policy
        if isinstance(given, RowPolicy) and not isinstance(given, LoggedPolicy):
            raise PolicyError(
                f"{type(given).__name__} lists what the policy does at each of"
                f" {len(self.data):,} rows, too many to be held at once; expected a function of the"
                " observations, or Behaviour"
            )

    def feed(self, number: int) -> Array:
        """The blocks of a feed; each is used once before any is used again."""
        others = self.order[self.known :]
        if len(others) == 0:
            return np.sort(self.order)
        sizes = np.diff(self.bounds)
        at = 0
        found: list[int] = []
        for _ in range(number + 1):
            rows, found = 0, []
            while len(found) < len(others):
                block = others[at % len(others)]
                if found and rows + sizes[block] > self.size:
                    break
                found.append(block)
                rows, at = rows + sizes[block], at + 1
        return np.sort(found)

    def rows(self, blocks: Array) -> Dataset:
        """The rows of these blocks, as a data set of their own."""
        data = self.data
        parts = [slice(self.bounds[block], self.bounds[block + 1]) for block in blocks]
        values: dict[str, Any] = {**vars(data), "prepared": ()}
        for name in ROW_FIELDS:
            array = getattr(data, name)
            values[name] = None if array is None else _gathered(array, parts)
        number = len(values["observations"])
        values |= {"source_rows": np.arange(number), "number_of_source_rows": number}
        if data.episodes is not None:
            ids, values["episodes"] = np.unique(values["episodes"], return_inverse=True)
            for name in ("initial_observations", "initial_probabilities"):
                array = getattr(data, name)
                # Those that a user gave may be of other episodes.
                if array is not None and len(array) > ids[-1]:
                    values[name] = array[ids]
        return restored(values)

    def in_words(self, is_trained: bool) -> str:
        """What rests on which rows."""
        use = (
            "stages are trained on other rows, as many at a time"
            if is_trained
            else "and so does the fit, which is solved at once"
        )
        return (
            f"the log has {len(self.data):,} rows: coverage, remarks, the logging policy, where the"
            " policy goes, second opinions, intervals and what stages are measured on rest on"
            f" {self.size:,} of them, in whole episodes drawn at random; {use}"
        )


def _is_sorted(values: Array) -> bool:
    return holds_throughout(lambda part: values[1:][part] >= values[:-1][part], len(values) - 1)


def _gathered(array: Array, parts: list[slice]) -> Array:
    """Rows of parts one below the other, laid out as the array is."""
    number = sum(part.stop - part.start for part in parts)
    if by_column(array):
        result = np.empty((array.shape[1], number), array.dtype).T
    else:
        result = np.empty((number, *array.shape[1:]), array.dtype)
    first = 0
    for part in parts:
        last = first + part.stop - part.start
        result[first:last] = array[part]
        first = last
    return result


class Fed(NamedTuple):
    """What a stage is trained on, in place of the rows of the plan.

    places: (k,) of its rows.
    """

    rows: Rows
    trail: Trail
    weights: Array | None
    places: Array


@dataclass(frozen=True, eq=False)
class Feeding:
    """What every stage is trained on; the next feed is made while one is used.

    window: the data of the plan. trail: its own. logging: the policy that logged the data, where
    targets are coupled with it. uses: rows that a stage uses, counting repetitions. most_rows: of
    any stage of the plan.
    """

    log: LargeLog
    window: Dataset
    policy: Policy
    trail: Trail
    trace: float
    logging: LoggingPolicy | None
    occupancy: Occupancy | None
    encoder: Encoder
    answers: Answers
    uses: int
    most_rows: int
    _made: dict[int, "Future[tuple[Dataset, Fed]]"] = field(default_factory=dict)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)

    def at(self, stage: int, step: int | None, stages: int) -> Fed | None:
        """What a stage is trained on; None where its feed has no rows of its step."""
        number = self._number(stage)
        for known in [known for known in self._made if known < number]:
            del self._made[known]
        data, fed = self._future(number).result()
        if self._number(stages - 1) > number:
            self._future(number + 1)
        if step is None or data.steps is None:
            places = fed.places
        else:
            places = np.flatnonzero(data.steps == step)
        return fed._replace(places=places[: self.most_rows]) if len(places) > 1 else None

    def _number(self, stage: int) -> int:
        """A feed is used until each of its rows was, once."""
        return stage * self.uses // max(self.log.size, 1)

    def _future(self, number: int) -> "Future[tuple[Dataset, Fed]]":
        if number not in self._made:
            self._made[number] = self._pool.submit(self._make, number)
        return self._made[number]

    def _make(self, number: int) -> tuple[Dataset, Fed]:
        blocks = self.log.feed(number)
        data = self.log.rows(blocks)
        if isinstance(self.policy, LoggedPolicy):
            table, _ = self.policy.tables(data, 1, self.answers.seed)
        else:
            spans = [(int(self.log.bounds[b]), int(self.log.bounds[b + 1])) for b in blocks]
            table = self.answers.at(settle(self.policy, data), data, spans)
        if data.weights is not None and np.any(data.weights == 0):
            kept = data.weights > 0
            data, table = data.subset(kept), table.at(np.flatnonzero(kept))
        if self.window.steps is not None and data.steps is None:
            data = data.with_steps()
        table, coupling = self._coupling(data, table)
        rewards = self.encoder.rewards(data)
        trail = Trail.of(data, table, rewards, self.trail.gamma, self.trace, coupling)
        rows = self.encoder.rows(data, table, trail, room=self.log.size)
        weights = data.weights if self.occupancy is None else self.occupancy.at_rows(data)
        return data, Fed(rows, trail, weights, np.arange(len(data)))

    def _coupling(self, data: Dataset, table: ActionTable) -> tuple[ActionTable, Coupling | None]:
        """As for the plan; see `_coupled` in `decisions.py`."""
        if self.logging is None:
            return table, None
        logging = at_other_rows(self.logging, data)
        count = data.number_of_actions
        if count is None:
            return table, normal_coupling(data, table, logging.next_densities)
        if not table.lists_all(count):
            table = ActionTable.of_probabilities(
                by_action(table.actions, table.probabilities, count)
            )
        after = np.asarray(logging.next_probabilities)
        return table, discrete_coupling(data, table.probabilities, after)
