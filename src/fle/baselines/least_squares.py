"""Least squares of what a value leads to, in features of observations and actions.

A fixed point, or one step after the other; the next features are their means under a policy.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse import csr_array, eye_array, issparse
from scipy.sparse.linalg import splu

from fle.baselines.logged_episodes import FloatArray, IntArray
from fle.data import Dataset
from fle.fitting.encoding import Encoder, as_vectors
from fle.models.law import Sizes
from fle.policies import ActionTable

# Features at most, and rows that each of them needs.
MOST_FEATURES, ROWS_A_FEATURE = 384, 20
# Up to so many actions have features of their own; more are coordinates beside the observation's.
MOST_ACTIONS = 8
# Inputs farther out, in standard deviations, count as being there.
FARTHEST = 5.0
# Draws of a policy that is known by its actions, or has many of them.
ACTION_DRAWS = 4
# Dense, or sparse with the same operators.
Matrix = Any
# Of the mean square of the features: keeps what nothing is known about at zero.
RIDGE = 1e-5


class Features(Protocol):
    """Pairs (x, a) as rows of numbers."""

    def at(self, observations: npt.NDArray, actions: npt.NDArray) -> Matrix:
        """(k, F) Of pairs."""

    def expected(self, observations: npt.NDArray, table: ActionTable) -> Matrix:
        """(k, F) The mean over the actions of a table that has a row for each observation."""

    def half(self) -> IntArray | None:
        """Columns that make up a class of half the size; None where the class is exact."""

    def blocks(self) -> int:
        """Blocks of equally many columns, of which a pair fills that of its action; 1 if none."""


def features_of(data: Dataset, rows: int, generator: np.random.Generator) -> Features:
    """As many as the rows allow."""
    if data.number_of_observations is not None and data.number_of_actions is not None:
        return Pairs(data.number_of_observations, data.number_of_actions)
    encoder = Encoder.standardising(data)
    most = int(np.clip(rows // ROWS_A_FEATURE, 8, MOST_FEATURES))
    sizes = encoder.sizes
    by_action = sizes.discrete_actions and sizes.action <= MOST_ACTIONS
    blocks = sizes.action if by_action else 1
    width = sizes.observation if by_action else sizes.inputs
    return Cosines.made(encoder, by_action, width, most // blocks, generator)


@dataclass(frozen=True)
class Pairs:
    """Discrete states and actions: which pair it is."""

    states: int
    actions: int

    def at(self, observations: npt.NDArray, actions: npt.NDArray) -> Matrix:
        """(k, F) Sparse."""
        return self._sparse(observations[:, None] * self.actions + actions[:, None], None)

    def expected(self, observations: npt.NDArray, table: ActionTable) -> Matrix:
        """(k, F) Sparse."""
        cells = observations[:, None] * self.actions + table.actions
        return self._sparse(cells, table.probabilities)

    def half(self) -> IntArray | None:
        """The class is exact."""
        return None

    def blocks(self) -> int:
        """A sparse matrix needs none."""
        return 1

    def _sparse(self, cells: IntArray, values: FloatArray | None) -> csr_array:
        entries = np.ones(cells.size) if values is None else values.ravel()
        ends = np.arange(len(cells) + 1) * cells.shape[1]
        shape = (len(cells), self.states * self.actions)
        return csr_array((entries, cells.ravel(), ends), shape=shape)


@dataclass(frozen=True, eq=False)
class Cosines:
    """A constant, the coordinates, their products if there is room, and random cosines.

    They stand for a kernel (Rahimi & Recht 2007). With `by_action`, each action has its own.
    """

    encoder: Encoder
    by_action: bool
    products: tuple[IntArray, IntArray]
    frequencies: FloatArray
    phases: FloatArray

    @classmethod
    def made(
        cls,
        encoder: Encoder,
        by_action: bool,
        width: int,
        most: int,
        generator: np.random.Generator,
    ) -> "Cosines":
        """At most so many an action, half of them cosines where products take the other half."""
        left = max(most - 1 - width, 0)
        products = np.triu_indices(width)
        if len(products[0]) > left // 2:
            products = (np.arange(width), np.arange(width))
        if len(products[0]) > left // 2:
            products = (np.zeros(0, int), np.zeros(0, int))
        number = left - len(products[0])
        # Two scales: what is smooth over all inputs, and what changes within half of them.
        scales = np.sqrt(width) * np.resize([1.0, 0.5], number)
        frequencies = generator.standard_normal((width, number)) / scales
        return cls(encoder, by_action, products, frequencies, 2 * np.pi * generator.random(number))

    def at(self, observations: npt.NDArray, actions: npt.NDArray) -> Matrix:
        """(k, F) Dense."""
        if not self.by_action:
            return self._functions(self.encoder.inputs(observations, actions))
        return self._by_action(observations, np.eye(self.encoder.sizes.action)[actions])

    def expected(self, observations: npt.NDArray, table: ActionTable) -> Matrix:
        """(k, F) Dense; over a few draws where actions have no features of their own."""
        if self.by_action:
            chances = np.zeros((len(observations), self.encoder.sizes.action))
            rows = np.arange(len(observations))[:, None]
            np.add.at(chances, (rows, table.actions), table.probabilities)
            return self._by_action(observations, chances)
        draws = min(table.candidates, ACTION_DRAWS)
        levels = np.cumsum(table.probabilities, axis=1)
        total: FloatArray | float = 0.0
        # Evenly over the candidates, and elsewhere in each row: where rows have much the same law,
        # the same few of many actions would stand for all of them.
        shifts = np.random.default_rng(0).random((len(observations), 1))
        for number in range(draws):
            wanted = (number + shifts) / draws * levels[:, -1:]
            picks = np.minimum(np.sum(levels <= wanted, axis=1), table.candidates - 1)
            chosen = table.actions[np.arange(len(picks)), picks]
            total = total + self._functions(self.encoder.inputs(observations, chosen))
        return total / draws

    def half(self) -> IntArray | None:
        """The later half of the cosines left out."""
        each = 1 + len(self.frequencies) + len(self.products[0])
        whole = each + len(self.phases)
        kept = np.arange(whole) < each + len(self.phases) // 2
        return np.flatnonzero(np.tile(kept, self.blocks()))

    def blocks(self) -> int:
        """One for each action that has features of its own."""
        return self.encoder.sizes.action if self.by_action else 1

    def _by_action(self, observations: npt.NDArray, chances: FloatArray) -> FloatArray:
        sizes = self.encoder.sizes
        alone = Sizes(sizes.observation, 1, 1, sizes.discrete_observations, False)
        encoded = self.encoder.observations(observations)
        vectors = as_vectors(encoded, np.zeros((len(encoded), 0)), alone)
        functions = self._functions(vectors)
        return (chances[:, :, None] * functions[:, None]).reshape(len(functions), -1)

    def _functions(self, inputs: npt.NDArray) -> FloatArray:
        values = np.clip(inputs.astype(np.float64), -FARTHEST, FARTHEST)
        first, second = self.products
        parts = [
            np.ones((len(values), 1)),
            values,
            values[:, first] * values[:, second],
            np.sqrt(2) * np.cos(values @ self.frequencies + self.phases),
        ]
        return np.concatenate(parts, axis=1)


class Solved(Protocol):
    """Parameters (F, d) at the first step, and what they owe to each row."""

    theta: FloatArray

    def influence(self, source: FloatArray) -> tuple[FloatArray, FloatArray]:
        """On source @ theta: (k,) the weight of each row's error, and (k, d) that times the error.

        source: (F,).
        """

    def drawn_errors(self) -> tuple[FloatArray, ...]:
        """(rows, d) Of each step's rows, with a drawn next action; one step for a fixed point."""


@dataclass(frozen=True, eq=False)
class Equations:
    """Rows of phi(x, a) theta = reward + after theta', solved by weighted least squares.

    phi, after: (k, F), the latter with its discount (k,). drawn: as `after`, of one drawn action.
    rewards: (rows, d) of each step's rows; one step for a fixed point.
    weights, groups: (k,).
    starts, drawn_starts: (m, F) of the initial observations, over actions and of a drawn one.
    stages: rows of each step of a horizon, the first step first; None for a fixed point.
    """

    phi: Matrix
    after: Matrix
    drawn: Matrix
    discounts: FloatArray
    rewards: tuple[FloatArray, ...]
    weights: FloatArray
    groups: IntArray
    starts: Matrix
    drawn_starts: Matrix
    stages: tuple[IntArray, ...] | None

    @property
    def start(self) -> FloatArray:
        """(F,) The mean over initial observations."""
        return np.asarray(self.starts.mean(axis=0)).ravel()

    def columns(self, kept: IntArray) -> "Equations":
        """In a smaller class."""
        names = ("phi", "after", "drawn", "starts", "drawn_starts")
        return replace(self, **{name: getattr(self, name)[:, kept] for name in names})

    def of_squares(self, solved: Solved) -> "Equations":
        """Those of the variance: squared errors, and the discount once more."""
        return replace(
            self,
            rewards=tuple(error**2 for error in solved.drawn_errors()),
            after=scaled(self.after, self.discounts),
        )

    def solved(self, weights: FloatArray) -> Solved:
        """With these weights of the rows."""
        return (FixedPoint if self.stages is None else Backward)(self, weights)

    def resampled(self, generator: np.random.Generator) -> "Equations":
        """Of episodes, and of initial observations, drawn with replacement."""
        number, starts = int(self.groups.max()) + 1, self.starts.shape[0]
        counts = generator.multinomial(number, np.full(number, 1 / number))
        chosen = generator.integers(starts, size=starts)
        return replace(
            self,
            weights=self.weights * counts[self.groups],
            starts=self.starts[chosen],
            drawn_starts=self.drawn_starts[chosen],
        )


class FixedPoint:
    """One theta on both sides."""

    def __init__(self, equations: Equations, weights: FloatArray):
        self._equations, self._weights = equations, weights
        phi, (rewards,) = equations.phi, equations.rewards
        weighted = scaled(phi, weights)
        self._solver = Solver(weighted.T @ (phi - equations.after), ridge_of(phi, weights))
        self.theta = self._solver(weighted.T @ rewards)

    def influence(self, source: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Solved`."""
        equations = self._equations
        dual = self._weights * (equations.phi @ self._solver(source, transposed=True))
        return dual, dual[:, None] * self._expected_errors

    @cached_property
    def _expected_errors(self) -> FloatArray:
        return self._errors(self._equations.after)

    def drawn_errors(self) -> tuple[FloatArray, ...]:
        """See `Solved`."""
        return (self._errors(self._equations.drawn),)

    def _errors(self, after: Matrix) -> FloatArray:
        (rewards,) = self._equations.rewards
        return rewards + after @ self.theta - self._equations.phi @ self.theta


class Backward:
    """From the last step to the first, and with the duals back to the last."""

    def __init__(self, equations: Equations, weights: FloatArray):
        self._equations, self._weights = equations, weights
        self._steps: list[_Step] = []
        for rows in equations.stages or ():
            # Where all rows serve every step one factorisation does.
            steps = self._steps
            same = steps and steps[-1].rows is rows
            steps.append(steps[-1] if same else _Step.of(equations, rows, weights))
        width = equations.rewards[0].shape[1]
        thetas = [np.zeros((equations.phi.shape[1], width))]
        for step, rewards in zip(self._steps[::-1], equations.rewards[::-1], strict=True):
            paid = step.phi.T @ (weights[step.rows][:, None] * rewards)
            thetas.append(step.solver(paid + step.onward @ thetas[-1]))
        self._thetas = thetas[::-1]
        self.theta = self._thetas[0]

    def influence(self, source: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Solved`."""
        weights = self._weights
        duals = np.zeros(len(weights))
        influence = np.zeros((len(weights), self.theta.shape[1]))
        for number, step in enumerate(self._steps):
            zeta = step.solver(source, transposed=True)
            dual = weights[step.rows] * (step.phi @ zeta)
            influence[step.rows] += dual[:, None] * self._expected_errors[number]
            duals[step.rows] += dual
            source = step.onward.T @ zeta
        return duals, influence

    def drawn_errors(self) -> tuple[FloatArray, ...]:
        """See `Solved`."""
        return tuple(self._errors(n, step.drawn) for n, step in enumerate(self._steps))

    @cached_property
    def _expected_errors(self) -> list[FloatArray]:
        return [self._errors(n, step.after) for n, step in enumerate(self._steps)]

    def _errors(self, number: int, after: Matrix) -> FloatArray:
        step, thetas = self._steps[number], self._thetas
        rewards = self._equations.rewards[number]
        return rewards + after @ thetas[number + 1] - step.phi @ thetas[number]


class _Step(NamedTuple):
    """One step of a horizon: its rows, and the least squares of what they lead to."""

    rows: IntArray
    phi: Matrix
    after: Matrix
    drawn: Matrix
    solver: "Solver"
    onward: Matrix

    @classmethod
    def of(cls, equations: Equations, rows: IntArray, weights: FloatArray) -> "_Step":
        parts = equations.phi, equations.after, equations.drawn
        if len(rows) < len(weights):
            parts = tuple(part[rows] for part in parts)
        phi, after, drawn = parts
        weighted = scaled(phi, weights[rows])
        solver = Solver(weighted.T @ phi, ridge_of(phi, weights[rows]))
        return cls(rows, phi, after, drawn, solver, weighted.T @ after)


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


def scaled(matrix: Matrix, weights: FloatArray) -> Matrix:
    """Rows of a matrix, each times its weight."""
    return (
        matrix.multiply(weights[:, None]).tocsr() if issparse(matrix) else matrix * weights[:, None]
    )


def ridge_of(phi: Matrix, weights: FloatArray) -> float:
    """What is added to the diagonal: little, in units of the features."""
    squares = phi.multiply(phi) if issparse(phi) else phi**2
    total = weights @ np.asarray(squares.sum(axis=1)).ravel()
    return RIDGE * max(float(total) / phi.shape[1], 1e-30)
