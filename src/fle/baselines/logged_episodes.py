"""Logged episodes under the target policy: what each earned, and its importance weights."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from fle.data import Dataset
from fle.data.episodes import ends_episode, position_in_episode, starts_episode
from fle.errors import DataError, PolicyError
from fle.fitting.behaviour import LOGGED, LoggingPolicy, logging_policy
from fle.fitting.following import linked_rows
from fle.fitting.plans import Plan
from fle.policies import ActionTable

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepWeights:
    """Products of ratios, one a row, of n episodes side by side.

    An episode that is over keeps its last product: it counts at every later step, as nothing.

    episodes, steps: (R,) of each row. products: (R,) of pi/mu up to and including the row.
    lengths: (n,) rows of each episode, all of them at least 1.
    """

    episodes: IntArray
    steps: IntArray
    products: FloatArray
    lengths: IntArray

    @classmethod
    def of_whole_episodes(cls, products: FloatArray) -> Self:
        """One weight an episode."""
        number = len(products)
        return cls(np.arange(number), np.zeros(number, int), products, np.ones(number, int))

    @cached_property
    def last_products(self) -> FloatArray:
        """(n,) The product over the whole episode."""
        return self.products[np.cumsum(self.lengths) - 1]

    @cached_property
    def means(self) -> FloatArray:
        """(T,) Mean product at each step; 1 in expectation."""
        return self._over_episodes(1)

    @cached_property
    def effective_sizes(self) -> FloatArray:
        """(T,) Of the products at each step: (sum w)² / sum w²."""
        squares = self._over_episodes(2)
        return len(self.lengths) * self.means**2 / np.where(squares > 0, squares, 1.0)

    def _over_episodes(self, power: int) -> FloatArray:
        most = int(self.lengths.max())
        running = np.bincount(self.steps, self.products**power, most)
        over = np.bincount(self.lengths, self.last_products**power, most + 1)[:most]
        return (running + np.cumsum(over)) / len(self.lengths)

    @cached_property
    def normalised(self) -> FloatArray:
        """(R,) Products over their mean at the step; 0 where no episode is left."""
        means = np.where(self.means > 0, self.means, np.inf)
        return self.products / means[self.steps]

    def normalisation(self, parts: FloatArray) -> FloatArray:
        """(n,) What an episode adds to weighted sums by its part in the means alone.

        parts: (T,), what each step contributes to the sum. With A/B for the weighted mean of a
        step, its influence is (w x - (A/B) w)/B: this is the last term, less its mean.
        """
        later = np.concatenate([np.cumsum(parts[::-1])[::-1], [0.0]])
        shares = np.where(self.means > 0, parts / np.where(self.means > 0, self.means, 1.0), 0.0)
        kept = np.concatenate([np.cumsum(shares[::-1])[::-1], [0.0]])
        by_row = self.normalised * parts[self.steps]
        running = np.bincount(self.episodes, by_row, len(self.lengths))
        return running + self.last_products * kept[self.lengths] - later[0]


@dataclass(frozen=True, eq=False)
class WeightedEpisodes:
    """Whole logged episodes, cut at the horizon, each row with its product of ratios pi/mu.

    plan: data, policy and problem. rows: (R,) of the data. weights: the products.
    opening: what the policy does at the first row of each of the n episodes.
    cut: (n,) whether the return of an episode goes on.
    before, after: (R, d) discounted rewards before each row, and with it.
    remarks: what is to be known about the weights.
    """

    plan: Plan
    rows: IntArray
    weights: StepWeights
    opening: ActionTable
    cut: npt.NDArray[np.bool_]
    before: FloatArray
    after: FloatArray
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, logging: LoggingPolicy | None = None) -> Self:
        """Of a plan's data; refused where whole episodes or the ratios cannot be known.

        logging: the policy that logged the data; read off the data or estimated if not given.
        """
        data, horizon = plan.data, plan.problem.horizon
        episodes = _whole_episodes(data)
        table, source = _opening_table(plan, episodes), ""
        opening = np.flatnonzero(starts_episode(episodes))
        ratios = np.ones(len(data))
        if plan.target.coverage is not None:
            target = _target_probabilities(plan, opening, table)
            logged, source = _logged_probabilities(plan, logging)
            ratios = target / logged
        steps = position_in_episode(episodes)
        rows = np.arange(len(data)) if horizon is None else np.flatnonzero(steps < horizon)
        numbers = np.cumsum(starts_episode(episodes)) - 1
        weights = StepWeights(
            numbers[rows],
            steps[rows],
            _products(ratios[rows], opening_of(numbers[rows])),
            np.bincount(numbers[rows]),
        )
        paid = data.rewards[rows] * (plan.problem.gamma ** steps[rows])[:, None]
        after = _running_sums(paid, opening_of(numbers[rows]))
        lasts = ends_episode(numbers[rows])
        cut = ~data.terminations[rows][lasts]
        if horizon is not None:
            cut &= steps[rows][lasts] + 1 < horizon
        remarks = (source,) if source else ()
        return cls(plan, rows, weights, table, cut, after - paid, after, remarks)

    @property
    def number(self) -> int:
        """How many episodes there are."""
        return len(self.opening)

    @cached_property
    def lasts(self) -> IntArray:
        """(n,) Position of each episode's last row among the rows."""
        return np.cumsum(self.weights.lengths) - 1


def opening_of(numbers: IntArray) -> IntArray:
    """(R,) Position of the first row of each row's episode."""
    rows = np.arange(len(numbers))
    return np.maximum.accumulate(np.where(starts_episode(numbers), rows, 0))


def _whole_episodes(data: Dataset) -> IntArray:
    if data.episodes is None or not data.whole_episodes:
        state = "unknown" if data.episodes is None else "incomplete"
        raise DataError(
            f"importance weights need whole episodes, and these are {state}; give episodes, or"
            " flags with the rows in order"
        )
    return data.episodes


def _opening_table(plan: Plan, episodes: IntArray) -> ActionTable:
    """What the policy does at the first row of each episode, if it is known at all others too."""
    data, opening = plan.data, plan.target.opening
    if opening is None:
        raise DataError(
            "importance weights need what the policy does at every first row, and it is known at"
            " initial observations that are not those of the episodes; leave initial_observations"
            " out, so that they are the starts of the episodes, or give the policy as a function"
        )
    inner = np.flatnonzero(~starts_episode(episodes))
    broken = int(np.sum(~linked_rows(data)[inner - 1]))
    if broken:
        raise DataError(
            f"importance weights need what the policy does at every row, and {broken} rows do not"
            " start where the row before them led to"
        )
    return opening


def _target_probabilities(plan: Plan, opening: IntArray, table: ActionTable) -> FloatArray:
    """(n,) Probability, or density, of the logged action under the target policy, at each row."""
    data, target = plan.data, plan.target
    if not data.discrete_actions and target.following.normal is None:
        raise PolicyError(
            "importance weights need the policy's density of continuous actions, and it is known"
            " by its actions alone; state it as fle.policies.Normal(function)"
        )
    result = np.empty(len(data))
    inner = np.delete(np.arange(len(data)), opening)
    result[inner] = _probability(target.following, inner - 1, data.actions[inner])
    result[opening] = _probability(table, np.arange(len(opening)), data.actions[opening])
    return result


def _logged_probabilities(plan: Plan, logging: LoggingPolicy | None) -> tuple[FloatArray, str]:
    """(n,) Of the logged actions under the policy that logged them, and where they are from."""
    data, given = plan.data, plan.data.propensities
    if logging is None and given is not None:
        chances = given if given.ndim == 1 else given[np.arange(len(data)), data.actions]
        return chances, f"logging policy {LOGGED}"
    known = logging or plan.logging or logging_policy(data)
    return known.logged, known.in_words()


def _probability(table: ActionTable, rows: IntArray, actions: npt.NDArray) -> FloatArray:
    """Of an action at each of these rows of a table."""
    if table.normal is None:
        return np.sum((table.actions[rows] == actions[:, None]) * table.probabilities[rows], axis=1)
    mean, std = (part[rows] for part in table.normal)
    return np.exp(-0.5 * np.sum(((actions - mean) / std) ** 2 + np.log(2 * np.pi * std**2), axis=1))


def _products(ratios: FloatArray, first: IntArray) -> FloatArray:
    """Products of the ratios from each episode's first row up to each row."""
    zero = ratios <= 0
    logs = np.cumsum(np.log(np.where(zero, 1.0, ratios)))
    zeros = np.cumsum(zero)
    since = np.where(first > 0, logs[first - 1], 0.0), np.where(first > 0, zeros[first - 1], 0)
    return np.where(zeros > since[1], 0.0, np.exp(np.minimum(logs - since[0], 700.0)))


def _running_sums(values: FloatArray, first: IntArray) -> FloatArray:
    """Sums from each episode's first row up to each row."""
    sums = np.cumsum(values, axis=0)
    return sums - np.where((first > 0)[:, None], sums[first - 1], 0.0)
