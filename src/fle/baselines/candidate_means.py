"""Mean returns of many policies on one log, by least squares, and what episodes did to each.

As `fitted_q_evaluation`, without its second moments: what does not depend on the policy is worked
out once, and one matrix product a policy is what is left.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fle.baselines.fitted_q import UsedLines, UsedRows
from fle.baselines.least_squares import Equations, Matrix, Solver, ridge_of, scaled
from fle.baselines.logged_episodes import FloatArray, IntArray
from fle.fitting.plans import Plan
from fle.fitting.problem import sum_of_discounts
from fle.returns import risk

# Groups of episodes, and of starts, whose influence is kept: enough for a standard error.
MOST_GROUPS = 1_000


@dataclass(frozen=True, eq=False)
class MeanLook:
    """The mean return of one policy.

    influence: (G,) what each group of episodes, then of starts, did to it; see `Looks`.
    moved: how far it moves in half the class. worth: how many episodes, all alike, say as much.
    """

    value: float
    influence: FloatArray
    moved: float
    worth: float

    @property
    def standard_error(self) -> float:
        """Of the value, over episodes and starts."""
        return float(np.sqrt(np.sum(self.influence**2)))


class _Solution(NamedTuple):
    """By start (m,), and of each row (k,): its weight, and that times its error."""

    values: FloatArray
    duals: FloatArray
    owed: FloatArray


@dataclass(frozen=True, eq=False)
class CandidateMeans:
    """Least squares on one log, for any number of policies with the same problem.

    used: the rows. weights: (d,) of the rewards in the return that is looked at.

    Example: `means = CandidateMeans.of(plan, np.ones(1)); means.look(plan).value`.
    """

    used: UsedRows
    weights: FloatArray
    seed: int

    @classmethod
    def of(cls, plan: Plan, weights: FloatArray, *, seed: int = 0) -> "CandidateMeans":
        """With the rows of any of the plans."""
        return cls(UsedRows.of(plan, np.random.default_rng(seed)), weights, seed)

    def look(self, plan: Plan) -> MeanLook:
        """The mean return of a plan's policy, weighted, in the units of the data."""
        # The same numbers for every policy: what they owe to chance cancels in a difference.
        lines = self.used.lines(plan, np.random.default_rng([self.seed, 1]))
        after, starts = self._asked(plan, lines)
        unit = plan.encoder.reward_unit * self.weights
        rewards = tuple(paid @ unit for paid in lines.rewards)
        half = self.used.features.half()
        if plan.problem.horizon is None:
            found, smaller = self._fixed_point(after, starts, rewards[0], half)
        else:
            found, smaller = self._backward(after, starts, rewards, half)
        offset = plan.encoder.reward_centre @ self.weights
        offset *= sum_of_discounts(plan.problem.gamma, plan.problem.horizon)
        value = float(found.values.mean())
        influence = np.concatenate(
            [
                _in_groups(found.owed, self.used.groups),
                _in_groups((found.values - value) / len(found.values), lines.starts),
            ]
        )
        worth = np.maximum(np.bincount(self.used.groups, found.duals), 0.0)
        return MeanLook(
            value + float(offset),
            influence,
            0.0 if smaller is None else float(smaller.mean()) - value,
            risk.effective_size(worth, worth) if worth.any() else 0.0,
        )

    def _asked(self, plan: Plan, lines: UsedLines) -> tuple[Matrix, Matrix]:
        """(k, F) and (m, F) under the policy, the former discounted."""
        data, features = plan.data, self.used.features
        initial = data.require_initial_observations()[lines.starts]
        after = features.expected(data.next_observations[lines.ends], lines.table)
        starts = features.expected(initial, plan.target.initial.at(lines.starts))
        return scaled(after, lines.discounts), starts

    @cached_property
    def _weighted(self) -> Matrix:
        return scaled(self.used.phi, self.used.weights)

    @cached_property
    def _gram(self) -> Matrix:
        return self._weighted.T @ self.used.phi

    @cached_property
    def _ridge(self) -> float:
        return ridge_of(self.used.phi, self.used.weights)

    @cached_property
    def _blocks(self) -> list[tuple[IntArray, FloatArray]]:
        """Rows of each action, and the columns that they fill: all others are zero."""
        number = self.used.features.blocks()
        width = self.used.phi.shape[1] // number
        ones = self.used.phi[:, ::width]
        rows = [np.flatnonzero(ones[:, block]) for block in range(number)]
        columns = [slice(block * width, (block + 1) * width) for block in range(number)]
        return [(r, self._weighted[r, c]) for r, c in zip(rows, columns, strict=True)]

    def _product(self, after: Matrix) -> Matrix:
        if self.used.features.blocks() == 1:
            return self._weighted.T @ after
        return np.concatenate([part.T @ after[rows] for rows, part in self._blocks])

    def _fixed_point(
        self, after: Matrix, starts: Matrix, rewards: FloatArray, half: IntArray | None
    ) -> tuple[_Solution, FloatArray | None]:
        used, weights = self.used, self.used.weights
        matrix, paid = self._gram - self._product(after), self._weighted.T @ rewards
        solver = Solver(matrix, self._ridge)
        theta = solver(paid)
        source = np.asarray(starts.mean(axis=0)).ravel()
        duals = weights * (used.phi @ solver(source, transposed=True))
        errors = rewards + after @ theta - used.phi @ theta
        found = _Solution(starts @ theta, duals, duals * errors)
        if half is None:
            return found, None
        smaller = Solver(matrix[np.ix_(half, half)], self._ridge)(paid[half])
        return found, starts[:, half] @ smaller

    def _backward(
        self,
        after: Matrix,
        starts: Matrix,
        rewards: tuple[FloatArray, ...],
        half: IntArray | None,
    ) -> tuple[_Solution, FloatArray | None]:
        used = self.used
        equations = Equations(
            phi=used.phi,
            after=after,
            drawn=after,
            discounts=np.zeros(0),
            rewards=tuple(paid[:, None] for paid in rewards),
            weights=used.weights,
            groups=used.groups,
            starts=starts,
            drawn_starts=starts,
            stages=used.stages,
        )
        solved = equations.solved(used.weights)
        duals, owed = solved.influence(equations.start)
        found = _Solution((starts @ solved.theta)[:, 0], duals, owed[:, 0])
        if half is None:
            return found, None
        smaller = equations.columns(half)
        return found, (smaller.starts @ smaller.solved(used.weights).theta)[:, 0]


def _in_groups(values: FloatArray, units: IntArray) -> FloatArray:
    """Sums over groups of units: all of an episode are in one."""
    groups = units % MOST_GROUPS
    number = min(int(units.max()) + 1, MOST_GROUPS)
    sums: FloatArray = np.bincount(groups, values, number).astype(float)
    return sums
