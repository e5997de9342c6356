"""Features of observations and actions for least squares, and their means under a policy."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

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
        for number in range(draws):
            # Evenly over the candidates: the middle of each part of the law.
            wanted = (number + 0.5) / draws * levels[:, -1:]
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
