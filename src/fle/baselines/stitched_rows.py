"""Model-free Monte Carlo: episodes of the target policy stitched together from logged rows.

Fonteneau, Murphy, Wehenkel & Ernst (2013): start at an initial observation, draw an action of the
policy, take the outcome of the nearest logged row with that action which no episode has used, and
go on from where it led to.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from fle.baselines.critics import drawn_actions
from fle.baselines.estimates import Estimate
from fle.baselines.importance import sample_atoms
from fle.baselines.logged_episodes import FloatArray, IntArray
from fle.data import Dataset
from fle.data.passes import centre_and_scale
from fle.errors import DataError, SettingsError
from fle.fitting.plans import Plan

# Coordinates of observations and continuous actions up to which a nearest row is near.
FEW_DIMENSIONS = 4
# Rows that are looked at for one that no episode has used.
NEIGHBOURS = 16
# Share of the rows that all episodes together may use, and the most episodes.
USED_ROWS, MOST_EPISODES = 0.5, 5_000
# A discounted return is left where its discount is below this.
NEGLIGIBLE = 0.01
# In standard deviations: between codes that must agree, and between rows that are alike.
APART, JITTER = 1e3, 1e-6


def stitching(
    plan: Plan, *, episodes: int | None = None, rows: IntArray | None = None, seed: int = 0
) -> Estimate:
    """Returns of episodes stitched together from logged transitions, each used once.

    No model and no propensities. Where rows are far apart it has a bias, which its standard errors
    do not see; they are those of independent episodes.

    Args:
        plan: what `fle.plan` gave.
        episodes: how many; if not given, as many as use half of the rows.
        rows: of the plan's data, those that may be used; all if not given.
        seed: of starts and actions.
    """
    data, problem = plan.data, plan.problem
    _require_few_dimensions(data)
    generator = np.random.default_rng(seed)
    allowed = np.arange(len(data)) if rows is None else np.asarray(rows)
    steps = _most_steps(plan)
    if episodes is None:
        episodes = int(np.clip(USED_ROWS * len(allowed) / _usual_length(plan), 2, MOST_EPISODES))
    if episodes < 1:
        raise SettingsError(f"episodes: expected at least 1, got {episodes}")
    by_step = problem.rows == "step"
    tabular = data.number_of_observations is not None and data.discrete_actions
    shelf: Shelf = (Cells if tabular else Neighbours)(data, allowed, by_step, generator)
    returns = _stitched(plan, shelf, episodes, steps, generator)
    remarks = []
    if shelf.taken_again:
        remarks.append(
            f"{shelf.taken_again:,} of {shelf.taken:,} steps use a row that was used before"
        )
    if problem.horizon is None:
        remarks.append(
            f"returns end after {steps:,} steps, with a discount of {problem.gamma**steps:.2g}"
        )
    return Estimate(
        "stitching", data.reward_names, sample_atoms(returns), float(episodes), tuple(remarks)
    )


def _stitched(
    plan: Plan, shelf: "Shelf", episodes: int, most: int, generator: np.random.Generator
) -> FloatArray:
    """(episodes, d) All episodes take their steps together."""
    data, target, gamma = plan.data, plan.target, plan.problem.gamma
    initial = data.require_initial_observations()
    # As evenly as can be over the initial observations.
    starts = np.resize(generator.permutation(len(initial)), episodes)
    observations, table, places = initial[starts], target.initial, starts
    returns, running = np.zeros((episodes, data.return_dim)), np.arange(episodes)
    for step in range(most):
        actions = drawn_actions(table, places, 1, generator)[:, 0]
        rows = shelf.take(observations, actions, step)
        returns[running] += gamma**step * data.rewards[rows]
        going = ~data.terminations[rows]
        running, places = running[going], rows[going]
        if len(running) == 0:
            break
        observations, table = data.next_observations[places], target.following
    return returns


class Shelf(Protocol):
    """Logged rows, each to be taken once; how many were, and how many more than once."""

    taken: int
    taken_again: int

    def __init__(
        self, data: Dataset, allowed: IntArray, by_step: bool, generator: np.random.Generator
    ) -> None: ...

    def take(self, observations: npt.NDArray, actions: npt.NDArray, step: int) -> IntArray:
        """A row for each observation and action, no two of them the same."""


class Cells:
    """Discrete states and actions: rows of one pair are alike, and taken in random order."""

    def __init__(
        self, data: Dataset, allowed: IntArray, by_step: bool, generator: np.random.Generator
    ) -> None:
        self._actions, self._states = data.number_of_actions or 1, data.number_of_observations or 1
        self._steps = data.steps if by_step else None
        shuffled = generator.permutation(allowed)
        steps = 0 if self._steps is None else self._steps[shuffled]
        cells = self._cell(data.observations[shuffled], data.actions[shuffled], steps)
        order = np.argsort(cells, kind="stable")
        self._rows, self._sorted = shuffled[order], cells[order]
        self._next = np.zeros(len(order), int)
        self.taken = self.taken_again = 0

    def _cell(
        self, states: npt.NDArray, actions: npt.NDArray, steps: npt.NDArray | int
    ) -> IntArray:
        return (steps * self._states + states) * self._actions + actions

    def take(self, observations: npt.NDArray, actions: npt.NDArray, step: int) -> IntArray:
        """The next rows of each pair's order; from the beginning once all were taken."""
        wanted = self._cell(observations, actions, 0 if self._steps is None else step)
        first = np.searchsorted(self._sorted, wanted, side="left")
        sizes = np.searchsorted(self._sorted, wanted, side="right") - first
        missing = int(np.sum(sizes == 0))
        if missing:
            raise DataError(
                f"stitching needs a logged row for each action of the policy; {missing} of"
                f" {len(sizes)} at step {step} have none"
            )
        # The place in line among those that want the same pair now.
        order = np.argsort(wanted, kind="stable")
        line = np.empty(len(wanted), int)
        opens = np.append(True, wanted[order][1:] != wanted[order][:-1])
        ranks = np.arange(len(order))
        line[order] = ranks - np.maximum.accumulate(np.where(opens, ranks, 0))
        places = self._next[first] + line
        np.add.at(self._next, first, 1)
        self.taken += len(places)
        self.taken_again += int(np.sum(places >= sizes))
        return self._rows[first + places % sizes]


class Neighbours:
    """Vectors: the nearest rows that no episode has taken; codes and steps must agree."""

    def __init__(
        self, data: Dataset, allowed: IntArray, by_step: bool, generator: np.random.Generator
    ) -> None:
        from scipy.spatial import cKDTree

        self._generator, self._by_step = generator, by_step
        self._units = [
            centre_and_scale(part) if part.ndim > 1 else None
            for part in (data.observations, data.actions)
        ]
        steps = data.steps[allowed] if by_step and data.steps is not None else 0
        self._rows, self._free = allowed, np.ones(len(allowed), bool)
        self._tree = cKDTree(self._places(data.observations[allowed], data.actions[allowed], steps))
        self.taken = self.taken_again = 0

    def _places(
        self, observations: npt.NDArray, actions: npt.NDArray, steps: npt.NDArray | int
    ) -> FloatArray:
        """Where rows lie; what is equal is set apart a little, so that all have their turn."""
        columns = [
            APART * part[:, None] if unit is None else (part - unit[0]) / unit[1]
            for part, unit in zip((observations, actions), self._units, strict=True)
        ]
        columns.append(np.broadcast_to(APART * np.asarray(steps, float), len(actions))[:, None])
        places = np.concatenate(columns, axis=1)
        return places + JITTER * self._generator.standard_normal(places.shape)

    def take(self, observations: npt.NDArray, actions: npt.NDArray, step: int) -> IntArray:
        """The nearest that are left, in rounds; the nearest of all where none is."""
        count = min(NEIGHBOURS, len(self._rows))
        asked = self._places(observations, actions, step if self._by_step else 0)
        far, near = self._tree.query(asked, k=np.arange(1, count + 1))
        if np.any(far[:, 0] > APART / 2):
            raise DataError(
                f"stitching needs logged rows with the policy's actions; at step {step} some were"
                " never logged"
            )
        found = np.full(len(asked), -1)
        for column in range(count):
            # Only rows with the same codes, however many of these are left.
            possible = self._free[near[:, column]] & (far[:, column] < APART / 2)
            wanting = np.flatnonzero((found < 0) & possible)
            rows, first = np.unique(near[wanting, column], return_index=True)
            found[wanting[first]] = rows
            self._free[rows] = False
        again = found < 0
        found[again] = near[again, 0]
        self.taken += len(found)
        self.taken_again += int(again.sum())
        return self._rows[found]


def _require_few_dimensions(data: Dataset) -> None:
    parts = (data.observations, data.actions)
    width = sum(part.shape[1] for part in parts if part.ndim > 1)
    if width > FEW_DIMENSIONS:
        raise DataError(
            f"stitching needs at most {FEW_DIMENSIONS} coordinates of observations and continuous"
            f" actions, got {width}: the nearest row would not be near"
        )


def _most_steps(plan: Plan) -> int:
    problem = plan.problem
    if problem.horizon is not None:
        return problem.horizon
    if problem.gamma == 0:
        return 1
    return int(np.ceil(np.log(NEGLIGIBLE) / np.log(problem.gamma)))


def _usual_length(plan: Plan) -> float:
    """Steps of an episode, as far as the logged rows tell how often one ends."""
    return max(1.0, min(_most_steps(plan), 1 / max(float(plan.data.terminations.mean()), 1e-9)))
