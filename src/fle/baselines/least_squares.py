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

    def unseen(self) -> FloatArray:
        """(F,) Discounted visits, from each pair on, to pairs that no row has: worth 0 in theta."""


@dataclass(frozen=True, eq=False)
class Equations:
    """Rows of phi(x, a) theta = reward + after theta', solved by weighted least squares.

    phi, after: (k, F), the latter with its discount (k,). drawn: as `after`, of one drawn action.
    rewards: (rows, d) of each step's rows; one step for a fixed point.
    weights, groups: (k,).
    starts, drawn_starts: (m, F) of the initial observations, over actions and of a drawn one.
    stages: rows of each step of a horizon, the first step first; None for a fixed point.
    blocks: of the columns of phi, see `Features`.
    made: the products, where those of other equations say them.
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
    blocks: int = 1
    made: tuple["Products", ...] = ()

    @property
    def start(self) -> FloatArray:
        """(F,) The mean over initial observations."""
        return np.asarray(self.starts.mean(axis=0)).ravel()

    @cached_property
    def products(self) -> tuple["Products", ...]:
        """Of each step's rows; one where all rows serve every step."""
        stages = self.stages or (np.arange(len(self.weights)),)
        distinct = stages[:1] if all(rows is stages[0] for rows in stages) else stages
        return self.made or tuple(Products.of(self, rows) for rows in distinct)

    def columns(self, kept: IntArray) -> "Equations":
        """In a smaller class."""
        names = ("phi", "after", "drawn", "starts", "drawn_starts")
        made = tuple(each.columns(kept) for each in self.products)
        return replace(self, made=made, **{name: getattr(self, name)[:, kept] for name in names})

    def of_squares(self, solved: Solved) -> "Equations":
        """Those of the variance: squared errors, and the discount once more."""
        after = scaled(self.after, self.discounts)
        made = tuple(each.onwards(self, after) for each in self.products)
        rewards = tuple(error**2 for error in solved.drawn_errors())
        return replace(self, rewards=rewards, after=after, made=made)

    def solved(self) -> Solved:
        """The least squares."""
        return FixedPoint(self) if self.stages is None else Backward(self)

    def resampled(self, generator: np.random.Generator) -> "Equations":
        """Of episodes, and of initial observations, drawn with replacement."""
        number, starts = int(self.groups.max()) + 1, self.starts.shape[0]
        counts = generator.multinomial(number, np.full(number, 1 / number))
        chosen = generator.integers(starts, size=starts)
        return replace(
            self,
            weights=self.weights * counts[self.groups],
            made=(),
            starts=self.starts[chosen],
            drawn_starts=self.drawn_starts[chosen],
        )


class Products(NamedTuple):
    """Of some rows with weights W: phi' W phi and phi' W after, which take most of the time."""

    rows: IntArray
    inner: Matrix
    onward: Matrix

    @classmethod
    def of(cls, equations: Equations, rows: IntArray) -> "Products":
        """Of these rows."""
        phi, after = at_rows(rows, equations.phi, equations.after)
        weighted, blocks = scaled(phi, equations.weights[rows]), equations.blocks
        return cls(rows, product(weighted, phi, blocks), product(weighted, after, blocks))

    def columns(self, kept: IntArray) -> "Products":
        """In a smaller class."""
        cells = np.ix_(kept, kept)
        return Products(self.rows, self.inner[cells], self.onward[cells])

    def onwards(self, equations: Equations, after: Matrix) -> "Products":
        """With the discount once more, by which `after` is scaled already."""
        discounts = equations.discounts[equations.discounts > 0]
        if len(discounts) == 0 or np.ptp(discounts) == 0:
            return self._replace(onward=self.onward * discounts[:1].sum())
        phi, after = at_rows(self.rows, equations.phi, after)
        weighted = scaled(phi, equations.weights[self.rows])
        return self._replace(onward=product(weighted, after, equations.blocks))

    @property
    def unseen(self) -> FloatArray:
        """(F,) 1 for each feature that no row has, else 0."""
        found: FloatArray = (self.inner.diagonal() == 0).astype(float)
        return found

    def solver(self, matrix: Matrix) -> "Solver":
        """Of a matrix of these rows, with a ridge: little, in units of the features."""
        return Solver(matrix, ridge_of(self.inner))


class FixedPoint:
    """One theta on both sides."""

    def __init__(self, equations: Equations):
        self._equations, self._weights = equations, equations.weights
        (rows,), (rewards,) = equations.products, equations.rewards
        self._solver = rows.solver(rows.inner - rows.onward)
        self.theta = self._solver(equations.phi.T @ (self._weights[:, None] * rewards))

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

    def unseen(self) -> FloatArray:
        """See `Solved`."""
        (rows,) = self._equations.products
        visits: FloatArray = self._solver(rows.onward @ rows.unseen) + rows.unseen
        return visits

    def _errors(self, after: Matrix) -> FloatArray:
        (rewards,) = self._equations.rewards
        return rewards + after @ self.theta - self._equations.phi @ self.theta


class Backward:
    """From the last step to the first, and with the duals back to the last."""

    def __init__(self, equations: Equations):
        self._equations, self._weights = equations, equations.weights
        weights, products = equations.weights, equations.products
        steps = [_Step.of(equations, each) for each in products]
        number = len(equations.stages or ())
        # Where all rows serve every step one factorisation does.
        self._steps: list[_Step] = steps if len(steps) == number else steps * number
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

    def unseen(self) -> FloatArray:
        """See `Solved`."""
        products = self._equations.products
        each = products if len(products) == len(self._steps) else products * len(self._steps)
        visits = np.zeros(len(self.theta))
        for step, rows in zip(self._steps[::-1], each[::-1], strict=True):
            visits = step.solver(step.onward @ visits) + rows.unseen
        return visits

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
    def of(cls, equations: Equations, made: Products) -> "_Step":
        rows, inner, onward = made
        phi, after, drawn = at_rows(rows, equations.phi, equations.after, equations.drawn)
        return cls(rows, phi, after, drawn, made.solver(inner), onward)


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


def product(weighted: Matrix, other: Matrix, blocks: int) -> Matrix:
    """weighted' other, where a row of the former fills the block of its action alone."""
    if blocks == 1:
        return weighted.T @ other
    # The first column of a block is its constant.
    width = weighted.shape[1] // blocks
    parts = []
    for block in range(blocks):
        rows = np.flatnonzero(weighted[:, block * width])
        parts.append(weighted[rows, block * width : (block + 1) * width].T @ other[rows])
    return np.concatenate(parts)


def at_rows(rows: IntArray, *parts: Matrix) -> tuple[Matrix, ...]:
    """These rows of matrices, which are not copied where they are all."""
    return parts if len(rows) == parts[0].shape[0] else tuple(part[rows] for part in parts)


def ridge_of(inner: Matrix) -> float:
    """What is added to the diagonal of phi' W phi: little, in units of the features."""
    return RIDGE * max(float(inner.trace()) / inner.shape[0], 1e-30)
