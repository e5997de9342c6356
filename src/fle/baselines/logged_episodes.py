"""Logged episodes under the target policy: their weights, and what is estimated from them.

Importance sampling and its doubly robust relatives are sums over episodes of signed atoms. For any
function h of the return they estimate E[h(Z)] by the mean over episodes of

    phi_i = sum of mass * h(value) over the atoms of episode i,

so that one class has the mean, the distribution function, quantiles and CVaR of all of them, each
with its standard error over episodes.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.stats import norm

from fle.data import Dataset
from fle.data.episodes import ends_episode, position_in_episode, starts_episode
from fle.errors import DataError, ModelError, PolicyError
from fle.fitting.behaviour import LOGGED, LoggingPolicy, logging_policy
from fle.fitting.following import linked_rows
from fle.fitting.plans import Plan
from fle.policies import ActionTable
from fle.returns import ReturnDistribution
from fle.returns.opinions import Figure
from fle.returns.risk import LEVEL

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
        starts = starts_episode(numbers[rows])[:, None]
        before = np.where(starts, 0.0, np.roll(after, 1, axis=0))
        lasts = ends_episode(numbers[rows])
        cut = ~data.terminations[rows][lasts]
        if horizon is not None:
            cut &= steps[rows][lasts] + 1 < horizon
        remarks = (source,) if source else ()
        return cls(plan, rows, weights, table, cut, before, after, remarks)

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
    """Sums from each episode's first row up to each row.

    Step by step, as a difference of sums over the whole log would not be 0 where nothing was paid.
    """
    sums = values.copy()
    steps = np.arange(len(first)) - first
    order = np.argsort(steps, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(steps))[:-1])[1:]:
        sums[rows] += sums[rows - 1]
    return sums


@dataclass(frozen=True, eq=False)
class Atoms:
    """Values (M, d) with signed masses (M,), each of one of the terms of an estimate.

    Terms 0 to n - 1 count once, one for each of n episodes. Term n + k has the weight of row k. The
    masses of the first kind sum to 1 a term, those of the second to 0, or to 1 where an estimate
    has no terms of the first kind.

    normalise: whether weights are divided by their mean at each step.
    """

    values: FloatArray
    masses: FloatArray
    terms: IntArray
    weights: StepWeights
    normalise: bool

    @property
    def number(self) -> int:
        """How many episodes there are."""
        return len(self.weights.lengths)

    @cached_property
    def factors(self) -> FloatArray:
        """(n + R,) The weight of each term."""
        weights = self.weights.normalised if self.normalise else self.weights.products
        return np.concatenate([np.ones(self.number), weights])

    def by_episode(self, function: FloatArray) -> FloatArray:
        """(n,) With the mean that estimates E[h(Z)], and the spread of its influence.

        function: (M,) h at every atom.
        """
        number, weights = self.number, self.weights
        sums = np.bincount(self.terms, self.masses * function, number + len(weights.products))
        terms: FloatArray = sums * self.factors
        phi: FloatArray = terms[:number] + np.bincount(weights.episodes, terms[number:], number)
        if not self.normalise:
            return phi
        parts = np.bincount(weights.steps, terms[number:], len(weights.means)) / number
        return phi - weights.normalisation(parts)

    def figure(self, function: FloatArray) -> Figure:
        """The estimate of E[h(Z)] with its standard error."""
        phi = self.by_episode(function)
        error = None if len(phi) < 2 else float(phi.std(ddof=1) / np.sqrt(len(phi)))
        return Figure(float(phi.mean()), error)

    @property
    def signed(self) -> bool:
        """Whether some atom has a negative mass."""
        return bool((self.masses < 0).any())

    def steps(self, coordinate: int) -> tuple[FloatArray, FloatArray]:
        """Sorted values, and what the distribution function is said to be from each on."""
        values = self.values[:, coordinate]
        order = np.argsort(values, kind="stable")
        masses = (self.masses * self.factors[self.terms])[order] / self.number
        ordered, total = values[order], np.cumsum(masses)
        last = np.append(ordered[1:] != ordered[:-1], True)
        return ordered[last], total[last]


@dataclass(frozen=True, eq=False)
class Estimate:
    """What one estimator found.

    effective_size: how many episodes, all alike, would say as much.
    remarks: what is to be known about it.
    """

    name: str
    return_names: tuple[str, ...]
    atoms: Atoms
    effective_size: float
    remarks: tuple[str, ...] = ()

    @cached_property
    def returns(self) -> ReturnDistribution:
        """The distribution of the return, as a weighted sample.

        Signed masses are made a distribution: the nearest monotone function (in ∫ (F - G)² dz,
        which keeps the mean), cut to [0, 1]. Mass that is missing lies at the largest value. So its
        mean may differ from `mean`, which is left as it was estimated.
        """
        if not self.atoms.signed and self.atoms.normalise:
            masses = self.atoms.masses * self.atoms.factors[self.atoms.terms]
            return ReturnDistribution.from_samples(
                self.atoms.values, self.return_names, masses, worth=self.effective_size
            )
        if len(self.return_names) > 1:
            raise ModelError(
                f"{self.name} of vector returns has figures of each coordinate, and no joint"
                " distribution: its weights are not all positive, or do not sum to one. Use"
                " weighted_importance_sampling, or evaluate one reward at a time."
            )
        values, level = self.monotone(0)
        masses = np.diff(level, prepend=0.0)
        kept = masses > 0
        return ReturnDistribution.from_samples(
            values[kept], self.return_names, masses[kept], worth=self.effective_size
        )

    def monotone(self, coordinate: int) -> tuple[FloatArray, FloatArray]:
        """Values and the distribution function from each on, monotone, 1 at the last."""
        values, level = self.atoms.steps(coordinate)
        if len(values) > 1:
            widths = np.maximum(np.diff(values), 1e-300)
            level[:-1] = isotonic_regression(level[:-1], weights=widths).x
        level = np.clip(level, 0.0, 1.0)
        level[-1] = 1.0
        return values, level

    def mean(self, coordinate: int = 0) -> Figure:
        """E[Z]."""
        return self.atoms.figure(self.atoms.values[:, coordinate])

    def std(self, coordinate: int = 0) -> Figure:
        """The square root of E[(Z - E Z)²]; zero where the estimate of that is negative."""
        away = self.atoms.values[:, coordinate] - self.mean(coordinate).value
        value, error = self.atoms.figure(away**2)
        found = float(np.sqrt(max(value, 0.0)))
        return Figure(found, None if error is None or found == 0 else error / (2 * found))

    def cdf(self, threshold: float, coordinate: int = 0) -> Figure:
        """P(Z <= threshold)."""
        return self.atoms.figure((self.atoms.values[:, coordinate] <= threshold).astype(float))

    def quantile(self, level: float, coordinate: int = 0) -> Figure:
        """inf {z : P(Z <= z) >= level}; its error is that of the CDF there, over the density."""
        found = self._quantile(level, coordinate)
        error = self.cdf(found, coordinate).standard_error
        if error is None:
            return Figure(found, None)
        # Hall and Sheather (1988): how far apart two quantiles should be that give the density.
        score = norm.ppf(level)
        shape = 1.5 * norm.pdf(score) ** 2 / (2 * score**2 + 1)
        size = max(self.effective_size, 2.0)
        width = min(size ** (-1 / 3) * norm.ppf(0.975) ** (2 / 3) * shape ** (1 / 3), 0.45)
        ends = np.clip([level - width, level + width], 0.5 / size, 1 - 0.5 / size)
        if ends[1] <= ends[0]:
            # So few draws that none lies beyond: nothing tells the density there.
            return Figure(found, None)
        apart = self._quantile(ends[1], coordinate) - self._quantile(ends[0], coordinate)
        return Figure(found, float(error * apart / (ends[1] - ends[0])))

    def cvar(self, level: float, coordinate: int = 0) -> Figure:
        """Mean of the worst `level` share: q - E[(q - Z)+] / level at the quantile q.

        An error of q changes it to the second order only, so that no density is needed.
        """
        found = self._quantile(float(LEVEL.checked(level)), coordinate)
        short = np.maximum(found - self.atoms.values[:, coordinate], 0.0)
        value, error = self.atoms.figure(short)
        return Figure(found - value / level, None if error is None else error / level)

    def _quantile(self, level: float, coordinate: int) -> float:
        LEVEL.checked(level)
        values, reached = self.monotone(coordinate)
        position = int(np.searchsorted(reached, level * (1 - 1e-12), side="left"))
        return float(values[min(position, len(values) - 1)])

    def __repr__(self) -> str:
        mean = self.mean()
        return (
            f"Estimate({self.name}, mean={mean.value:.5g}, standard_error="
            f"{np.nan if mean.standard_error is None else mean.standard_error:.2g}, "
            f"effective_size={self.effective_size:.4g})"
        )
