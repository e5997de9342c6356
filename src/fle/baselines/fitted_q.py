"""Fitted Q evaluation by least squares: the mean return, with standard errors over episodes.

In a class that is linear in features the fixed point of fitted Q has a closed form (Bradtke &
Barto 1996), and the sandwich formula gives its standard error without another fit. In a discounted
problem targets follow the log as ours do.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse import eye_array, issparse
from scipy.sparse.linalg import splu

from fle.baselines.estimates import Figure
from fle.baselines.features import Matrix, features_of
from fle.baselines.logged_episodes import FloatArray, IntArray
from fle.errors import SettingsError
from fle.fitting.planning import Plan
from fle.fitting.problem import sum_of_discounts
from fle.policies import ActionTable
from fle.returns import risk

# Rows and initial observations that are used at most: more would take much memory for little.
MOST_ROWS, MOST_STARTS = 60_000, 10_000
# Of the mean square of the features: keeps what nothing is known about at zero.
RIDGE = 1e-5
REPLICATES = 20


@dataclass(frozen=True)
class MeanEstimate:
    """Mean returns with standard errors over episodes, by an estimator that knows no more.

    means: one for each coordinate of the return.
    class_errors: how far the means move with half of the features, a rough sign of what is wrong
        with the class; zero where it is exact.
    effective_size: how many episodes, all alike, would say as much.
    """

    name: str
    return_names: tuple[str, ...]
    means: tuple[Figure, ...]
    class_errors: tuple[float, ...]
    effective_size: float
    remarks: tuple[str, ...] = ()

    def mean(self, coordinate: int = 0) -> Figure:
        """E[Z]."""
        return self.means[coordinate]


def fitted_q_evaluation(plan: Plan, *, replicates: int = REPLICATES, seed: int = 0) -> MeanEstimate:
    """The mean return by fitted Q evaluation.

    It says nothing of the distribution: the values of initial states are means, not returns.

    Args:
        plan: what `fle.plan` gave; with `Recipe(trace=0)` targets look one step ahead.
        replicates: fits to resampled episodes, whose spread is the standard error; 0 takes the
            sandwich formula, which needs no further fit.
        seed: of rows, features, targets and resampled episodes.
    """
    if replicates < 0 or replicates == 1:
        raise SettingsError(f"replicates: expected 0 or at least 2, got {replicates}")
    generator = np.random.default_rng(seed)
    equations, half = _equations(plan, generator)
    solution = equations.solved(equations.weights)
    variance = solution.variance(equations.groups)
    if replicates:
        number = int(equations.groups.max()) + 1
        counts = generator.multinomial(number, np.full(number, 1 / number), replicates)
        means = [equations.solved(equations.weights * c[equations.groups]).mean for c in counts]
        variance = np.var(means, axis=0, ddof=1) + solution.start_variance
    moved = np.zeros_like(variance)
    if half is not None:
        moved = np.abs(equations.columns(half).solved(equations.weights).mean - solution.mean)
    unit = plan.encoder.reward_unit
    offset = plan.encoder.reward_centre * sum_of_discounts(plan.problem.gamma, plan.problem.horizon)
    values, errors = solution.mean * unit + offset, np.sqrt(variance) * unit
    return MeanEstimate(
        "fitted Q evaluation",
        plan.data.reward_names,
        tuple(Figure(float(v), float(e)) for v, e in zip(values, errors, strict=True)),
        tuple((moved * unit).tolist()),
        solution.effective_size(equations.groups),
    )


class Solution(NamedTuple):
    """Means (d,), and what they owe to each row and each start.

    influence: (k, d) of the rows. dual: (k,) with which weight a row's error enters.
    starts: (m, d) values of the initial observations.
    """

    mean: FloatArray
    influence: FloatArray
    dual: FloatArray
    starts: FloatArray

    @property
    def start_variance(self) -> FloatArray:
        """(d,) Of the mean over initial observations."""
        return self.starts.var(axis=0) / len(self.starts)

    def variance(self, groups: IntArray) -> FloatArray:
        """(d,) By the sandwich formula, over groups of rows."""
        sums = [np.bincount(groups, column) for column in self.influence.T]
        return np.sum(np.square(sums), axis=1) + self.start_variance

    def effective_size(self, groups: IntArray) -> float:
        """Of the weights of the groups."""
        weights = np.maximum(np.bincount(groups, self.dual), 0.0)
        return risk.effective_size(weights, weights) if weights.any() else 0.0


@dataclass(frozen=True, eq=False)
class Equations:
    """Rows of phi(x, a) theta = reward + after theta', solved by weighted least squares.

    phi, after: (k, F), the latter with its discount. rewards: (k, d). weights, groups: (k,).
    starts: (m, F) of the initial observations.
    stages: rows of each step of a horizon, the first step first; None for a fixed point.
    """

    phi: Matrix
    after: Matrix
    rewards: FloatArray
    weights: FloatArray
    groups: IntArray
    starts: Matrix
    stages: tuple[IntArray, ...] | None

    def columns(self, kept: IntArray) -> "Equations":
        """In a smaller class."""
        parts = {name: getattr(self, name)[:, kept] for name in ("phi", "after", "starts")}
        return replace(self, **parts)

    def solved(self, weights: FloatArray) -> Solution:
        """With these weights of the rows."""
        return self._fixed_point(weights) if self.stages is None else self._backward(weights)

    def _fixed_point(self, weights: FloatArray) -> Solution:
        weighted = _scaled(self.phi, weights)
        solver = Solver(weighted.T @ (self.phi - self.after), _ridge(self.phi, weights))
        theta = solver(weighted.T @ self.rewards)
        dual = weights * (self.phi @ solver(self._start(), transposed=True))
        error = self.rewards + (self.after - self.phi) @ theta
        values = self.starts @ theta
        return Solution(values.mean(axis=0), dual[:, None] * error, dual, values)

    def _backward(self, weights: FloatArray) -> Solution:
        """From the last step to the first, and with the duals back to the last."""
        steps: list[_Step] = []
        for rows in self.stages or ():
            # Where all rows serve every step one factorisation does.
            same = steps and steps[-1].rows is rows
            steps.append(steps[-1] if same else _Step.of(self, rows, weights))
        thetas = [np.zeros((self.phi.shape[1], self.rewards.shape[1]))]
        for step in reversed(steps):
            thetas.append(step.solver(step.paid + step.onward @ thetas[-1]))
        thetas = thetas[::-1]
        influence, duals = np.zeros_like(self.rewards), np.zeros(len(self.weights))
        source = self._start()
        for number, step in enumerate(steps):
            zeta = step.solver(source, transposed=True)
            dual = weights[step.rows] * (step.phi @ zeta)
            error = self.rewards[step.rows] + step.after @ thetas[number + 1]
            influence[step.rows] += dual[:, None] * (error - step.phi @ thetas[number])
            duals[step.rows] += dual
            source = step.onward.T @ zeta
        values = self.starts @ thetas[0]
        return Solution(values.mean(axis=0), influence, duals, values)

    def _start(self) -> FloatArray:
        return np.asarray(self.starts.mean(axis=0)).ravel()


class _Step(NamedTuple):
    """One step of a horizon: its rows, and the least squares of what they lead to."""

    rows: IntArray
    phi: Matrix
    after: Matrix
    solver: "Solver"
    paid: FloatArray
    onward: Matrix

    @classmethod
    def of(cls, equations: Equations, rows: IntArray, weights: FloatArray) -> "_Step":
        phi, after = equations.phi[rows], equations.after[rows]
        weighted = _scaled(phi, weights[rows])
        solver = Solver(weighted.T @ phi, _ridge(phi, weights[rows]))
        return cls(
            rows, phi, after, solver, weighted.T @ equations.rewards[rows], weighted.T @ after
        )


class Solver:
    """A factorised matrix with a ridge, dense or sparse."""

    def __init__(self, matrix: Matrix, ridge: float):
        self._sparse = issparse(matrix)
        if self._sparse:
            self._factors: Any = splu((matrix + ridge * eye_array(matrix.shape[0])).tocsc())
        else:
            self._factors = lu_factor(matrix + ridge * np.eye(len(matrix)))

    def __call__(self, values: FloatArray, *, transposed: bool = False) -> FloatArray:
        """The solution, or that of the transposed matrix."""
        if self._sparse:
            return self._factors.solve(np.asarray(values), trans="T" if transposed else "N")
        return lu_solve(self._factors, values, trans=1 if transposed else 0)


def _scaled(matrix: Matrix, weights: FloatArray) -> Matrix:
    return (
        matrix.multiply(weights[:, None]).tocsr() if issparse(matrix) else matrix * weights[:, None]
    )


def _ridge(phi: Matrix, weights: FloatArray) -> float:
    squares = phi.multiply(phi) if issparse(phi) else phi**2
    total = weights @ np.asarray(squares.sum(axis=1)).ravel()
    return RIDGE * max(float(total) / phi.shape[1], 1e-30)


def _equations(plan: Plan, generator: np.random.Generator) -> tuple[Equations, IntArray | None]:
    """The rows that are used, as equations, and the columns of half the class."""
    data, problem = plan.data, plan.problem
    rows = _used_rows(plan, generator)
    steps = data.steps[rows] if problem.rows == "step" and data.steps is not None else None
    fewest = len(rows)
    if steps is not None:
        fewest = int(np.bincount(steps, minlength=problem.horizon or 1)[: problem.horizon].min())
    features = features_of(data, fewest, generator)
    if problem.horizon is None:
        lines = plan.trail.lines(rows, generator, fit=0)
        ends, rewards, discounts = lines.ends, lines.rewards.astype(float), lines.discounts
        table = ActionTable(plan.following.actions[ends], plan.trail.probabilities[ends])
        stages = None
    else:
        ends, rewards = rows, plan.encoder.rewards(data)[rows]
        discounts = np.where(data.terminations[rows], 0.0, problem.gamma)
        table = _at(plan.target.following, ends)
        everything = np.arange(len(rows))
        stages = tuple(
            everything if steps is None else np.flatnonzero(steps == step)
            for step in range(problem.horizon)
        )
    after = features.expected(data.next_observations[ends], table)
    initial = data.require_initial_observations()
    some = generator.permutation(len(initial))[:MOST_STARTS]
    weights = np.ones(len(data)) if plan.weights is None else plan.weights
    groups = rows if data.episodes is None else data.episodes[rows]
    equations = Equations(
        phi=features.at(data.observations[rows], data.actions[rows]),
        after=_scaled(after, discounts.astype(float)),
        rewards=rewards,
        weights=weights[rows],
        groups=np.unique(groups, return_inverse=True)[1].ravel(),
        starts=features.expected(initial[some], _at(plan.target.initial, some)),
        stages=stages,
    )
    return equations, features.half()


def _at(table: ActionTable, rows: IntArray) -> ActionTable:
    return ActionTable(table.actions[rows], table.probabilities[rows])


def _used_rows(plan: Plan, generator: np.random.Generator) -> IntArray:
    """All, or a random part of whole episodes."""
    data = plan.data
    if len(data) <= MOST_ROWS:
        return np.arange(len(data))
    groups = np.arange(len(data)) if data.episodes is None else data.episodes
    order = generator.permutation(int(groups.max()) + 1)
    sizes = np.bincount(groups)
    chosen = np.zeros(len(order), bool)
    chosen[order[np.cumsum(sizes[order]) <= MOST_ROWS]] = True
    return np.flatnonzero(chosen[groups])
