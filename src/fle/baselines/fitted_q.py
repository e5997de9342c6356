"""Fitted Q evaluation by least squares: of one policy with standard errors, and of many at a look.

In a class that is linear in features the fixed point of fitted Q has a closed form (Bradtke &
Barto 1996), and the sandwich formula gives its standard error without another fit. In a discounted
problem targets follow the log as ours do. The look at many policies leaves second moments out: what
does not depend on the policy is worked out once, and one matrix product a policy is what is left.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from fle.baselines.critics import drawn_actions
from fle.baselines.least_squares import (
    Equations,
    Features,
    Matrix,
    Solver,
    features_of,
    product,
    ridge_of,
    scaled,
)
from fle.baselines.logged_episodes import FloatArray, IntArray
from fle.errors import ModelError, SettingsError
from fle.fitting.plans import Plan
from fle.fitting.problem import sum_of_discounts
from fle.policies import ActionTable
from fle.returns import ReturnDistribution, risk
from fle.returns.intervals import Replicates
from fle.returns.opinions import FITTED_Q, Figure

# Rows and initial observations that are used at most: more would take much memory for little.
MOST_ROWS, MOST_STARTS = 60_000, 10_000
# Uses of a row by the steps of a horizon, likewise.
MOST_USES = 400_000
REPLICATES = 20
# Visits of an episode that are not worth a word.
RARE = 1e-3
# Of intervals that are asked for without a level.
LEVEL = 0.9
# Groups of episodes, and of starts, whose influence is kept: enough for a standard error.
MOST_GROUPS = 1_000


@dataclass(frozen=True)
class MeanEstimate:
    """Mean and standard deviation of returns, by an estimator that knows no more of the law.

    means, stds: one for each coordinate of the return, with standard errors over episodes.
    class_errors, std_class_errors: how far they move with half of the features, a rough sign of
        what is wrong with the class; where it is exact, what never logged pairs may be worth.
    effective_size: how many episodes, all alike, would say as much.
    replicates: means and standard deviations, each (B, d), of fits to resampled episodes.
    """

    name: str
    return_names: tuple[str, ...]
    means: tuple[Figure, ...]
    class_errors: tuple[float, ...]
    effective_size: float
    stds: tuple[Figure, ...]
    std_class_errors: tuple[float, ...]
    remarks: tuple[str, ...] = ()
    replicates: tuple[FloatArray, FloatArray] | None = None

    @cached_property
    def returns(self) -> ReturnDistribution:
        """A normal law of this mean and standard deviation: the shape is assumed, not estimated.

        With replicates it has intervals.
        """
        if len(self.return_names) > 1:
            raise ModelError(
                f"{self.name} of vector returns has figures of each coordinate, and no joint"
                " distribution. Evaluate one reward at a time."
            )
        law = _normal(self.return_names, self.means[0].value, self.stds[0].value)
        if self.replicates is None:
            return law
        pairs = list(zip(*(column[:, 0] for column in self.replicates), strict=True))
        laws = [_normal(self.return_names, mean, std) for mean, std in pairs]
        return replace(law, replicates=Replicates(lambda: laws, LEVEL))

    def mean(self, coordinate: int = 0) -> Figure:
        """E[Z]."""
        return self.means[coordinate]

    def std(self, coordinate: int = 0) -> Figure:
        """The square root of E[(Z - E Z)²]."""
        return self.stds[coordinate]


def _normal(names: tuple[str, ...], mean: float, std: float) -> ReturnDistribution:
    law = norm(mean, max(std, 1e-300))
    return ReturnDistribution(
        lambda generator, n: mean + std * generator.standard_normal((n, 1)),
        lambda returns: np.asarray(law.logpdf(returns[:, 0])),
        names,
    )


def fitted_q_evaluation(plan: Plan, *, replicates: int = REPLICATES, seed: int = 0) -> MeanEstimate:
    """The mean return by fitted Q evaluation, and its standard deviation.

    The values Q of initial states are means, not returns, so that they say nothing of the
    distribution. But the squared errors of z = G + g Q(x', a') add up to the variance: with
    e = G + g Q(x', a') - Q(x, a), U(x, a) = E[e² + g² U(x', a')] is the variance of the return
    after (x, a), fitted by the same least squares (Sobel 1982). An error of Q enters it squared.

    Args:
        plan: what `fle.plan` gave; with `Recipe(trace=0)` targets look one step ahead.
        replicates: fits to resampled episodes and starts, whose spread is the standard error; 0
            takes the sandwich formula, which needs no further fit.
        seed: of rows, features, targets and resampled episodes.
    """
    if replicates < 0 or replicates == 1:
        raise SettingsError(f"replicates: expected 0 or at least 2, got {replicates}")
    generator = np.random.default_rng(seed)
    equations, half = _equations(plan, generator)
    moments = Moments(equations)
    unit = plan.encoder.reward_unit
    offset = plan.encoder.reward_centre * sum_of_discounts(plan.problem.gamma, plan.problem.horizon)
    laws: tuple[FloatArray, FloatArray] | None = None
    if replicates:
        others = [Moments(equations.resampled(generator)) for _ in range(replicates)]
        laws = (
            np.array([one.mean for one in others]) * unit + offset,
            np.array([one.std for one in others]) * unit,
        )
        errors = tuple(values.std(axis=0, ddof=1) for values in laws)
    else:
        errors = np.sqrt(moments.mean_variance) * unit, moments.std_error * unit
    remarks: tuple[str, ...] = ()
    if half is None:
        # Pairs that no row has count as worth 0, and may be worth what a return is.
        visits = moments.unseen
        moved = (visits * np.hypot(moments.mean, moments.std),) * 2
        if visits > RARE:
            remarks = (f"{visits:.2g} visits an episode are at pairs that were never logged",)
    else:
        smaller = Moments(equations.columns(half))
        moved = np.abs(smaller.mean - moments.mean), np.abs(smaller.std - moments.std)
    return MeanEstimate(
        FITTED_Q,
        plan.data.reward_names,
        _figures(moments.mean * unit + offset, errors[0]),
        tuple((moved[0] * unit).tolist()),
        moments.effective_size,
        _figures(moments.std * unit, errors[1]),
        tuple((moved[1] * unit).tolist()),
        remarks,
        replicates=laws,
    )


def _figures(values: FloatArray, errors: FloatArray) -> tuple[Figure, ...]:
    return tuple(Figure(float(v), float(e)) for v, e in zip(values, errors, strict=True))


class Moments:
    """Mean and standard deviation (d,) with what chance does to them: Q first, then its errors."""

    def __init__(self, equations: Equations):
        self._equations = equations
        self._first = equations.solved()
        self._values = equations.starts @ self._first.theta
        self._spread = equations.of_squares(self._first).solved()
        self._inner = np.maximum(equations.starts @ self._spread.theta, 0.0)
        drawn = equations.drawn_starts @ self._first.theta
        self._away = drawn - drawn.mean(axis=0)
        self.mean: FloatArray = self._values.mean(axis=0)
        variance = self._inner.mean(axis=0) + self._away.var(axis=0)
        self.std: FloatArray = np.sqrt(np.maximum(variance, 1e-30))

    @property
    def unseen(self) -> float:
        """Discounted visits of an episode to pairs that no row has, which count as worth 0."""
        return max(float(self._equations.start @ self._first.unseen()), 0.0)

    @property
    def start_variance(self) -> FloatArray:
        """(d,) Of the mean over initial observations."""
        return self._values.var(axis=0) / len(self._values)

    @cached_property
    def _influence(self) -> tuple[FloatArray, FloatArray]:
        return self._first.influence(self._equations.start)

    @property
    def mean_variance(self) -> FloatArray:
        """(d,) Of the mean, over episodes and starts."""
        return _over_groups(self._influence[1], self._equations.groups) + self.start_variance

    @property
    def std_error(self) -> FloatArray:
        """(d,) What rows owe to the variance by its own fit, and by Q at the starts."""
        equations, away = self._equations, self._away
        owed = self._spread.influence(equations.start)[1]
        for coordinate in range(len(self.std)):
            source = 2 * (equations.drawn_starts.T @ away[:, coordinate]) / len(away)
            owed[:, coordinate] += self._first.influence(source)[1][:, coordinate]
        by_start = (self._inner + away**2).var(axis=0) / len(away)
        return np.sqrt(_over_groups(owed, equations.groups) + by_start) / (2 * self.std)

    @property
    def effective_size(self) -> float:
        """How many episodes, all alike, would say as much."""
        weights = np.maximum(np.bincount(self._equations.groups, self._influence[0]), 0.0)
        return risk.effective_size(weights, weights) if weights.any() else 0.0


def _over_groups(influence: FloatArray, groups: IntArray) -> FloatArray:
    """(d,) Variance of a sum over rows, by groups of them."""
    return np.sum(np.square([np.bincount(groups, column) for column in influence.T]), axis=1)


@dataclass(frozen=True, eq=False)
class UsedRows:
    """What equations of all policies on one log have in common.

    rows: (k,) of the data. stages: which of them serve each step of a horizon; None without one.
    phi: (k, F) the features of the logged pairs. weights, groups: (k,), the latter of episodes.
    """

    rows: IntArray
    stages: tuple[IntArray, ...] | None
    features: Features
    phi: Matrix
    weights: FloatArray
    groups: IntArray

    @classmethod
    def of(cls, plan: Plan, generator: np.random.Generator) -> "UsedRows":
        """All rows of a plan, or a random part of them."""
        data, problem = plan.data, plan.problem
        rows = _used_rows(plan, generator)
        steps = data.steps[rows] if problem.rows == "step" and data.steps is not None else None
        fewest, stages = len(rows), None
        if problem.horizon is not None:
            everything = np.arange(len(rows))
            stages = tuple(
                everything if steps is None else np.flatnonzero(steps == step)
                for step in range(problem.horizon)
            )
            fewest = min(map(len, stages))
        features = features_of(data, fewest, generator)
        weights = np.ones(len(data)) if plan.weights is None else plan.weights
        groups = rows if data.episodes is None else data.episodes[rows]
        return cls(
            rows,
            stages,
            features,
            features.at(data.observations[rows], data.actions[rows]),
            weights[rows],
            np.unique(groups, return_inverse=True)[1].ravel(),
        )

    def lines(self, plan: Plan, generator: np.random.Generator) -> "UsedLines":
        """What a policy's plan makes of them."""
        data, problem, rows = plan.data, plan.problem, self.rows
        if problem.horizon is None:
            lines = plan.trail.lines(rows, generator, fit=0)
            ends, discounts = lines.ends, lines.discounts.astype(float)
            rewards: tuple[FloatArray, ...] = (lines.rewards.astype(float),)
            table = ActionTable(plan.following.actions[ends], plan.trail.probabilities[ends])
        else:
            ends, paid = rows, plan.encoder.rewards(data)[rows]
            discounts = np.where(data.terminations[rows], 0.0, problem.gamma)
            table = plan.target.following.at(ends)
            rewards = tuple(paid[of_step] for of_step in self.stages or ())
        starts = generator.permutation(len(data.require_initial_observations()))[:MOST_STARTS]
        return UsedLines(ends, discounts, rewards, table, starts)


class UsedLines(NamedTuple):
    """What follows the used rows: where they end (k,), discounts (k,), rewards of each step's rows,
    the policy there, and which initial observations are used.
    """

    ends: IntArray
    discounts: FloatArray
    rewards: tuple[FloatArray, ...]
    table: ActionTable
    starts: IntArray


def _equations(plan: Plan, generator: np.random.Generator) -> tuple[Equations, IntArray | None]:
    """The rows that are used, as equations, and the columns of half the class."""
    used = UsedRows.of(plan, generator)
    ends, discounts, rewards, table, some = used.lines(plan, generator)
    data, features = plan.data, used.features
    initial = data.require_initial_observations()
    after, drawn = _both(features, data.next_observations[ends], table, generator)
    starts, drawn_starts = _both(features, initial[some], plan.target.initial.at(some), generator)
    equations = Equations(
        phi=used.phi,
        after=scaled(after, discounts),
        drawn=scaled(drawn, discounts),
        discounts=discounts,
        rewards=rewards,
        weights=used.weights,
        groups=used.groups,
        starts=starts,
        drawn_starts=drawn_starts,
        stages=used.stages,
        blocks=features.blocks(),
    )
    return equations, features.half()


def _both(
    features: Features,
    observations: FloatArray | IntArray,
    table: ActionTable,
    generator: np.random.Generator,
) -> tuple[Matrix, Matrix]:
    """The mean over a table's actions, and one of them drawn."""
    actions = drawn_actions(table, np.arange(len(table)), 1, generator)[:, 0]
    return features.expected(observations, table), features.at(observations, actions)


def _used_rows(plan: Plan, generator: np.random.Generator) -> IntArray:
    """All, or a random part of whole episodes."""
    data, problem = plan.data, plan.problem
    most = MOST_ROWS
    if problem.horizon is not None and problem.rows != "step":
        most = min(most, max(MOST_USES // problem.horizon, 1_000))
    if len(data) <= most:
        return np.arange(len(data))
    groups = np.arange(len(data)) if data.episodes is None else data.episodes
    order = generator.permutation(int(groups.max()) + 1)
    sizes = np.bincount(groups)
    chosen = np.zeros(len(order), bool)
    chosen[order[np.cumsum(sizes[order]) <= most]] = True
    return np.flatnonzero(chosen[groups])


@dataclass(frozen=True, eq=False)
class MeanLook:
    """The mean return of one policy.

    influence: (G,) what each group of episodes, then of starts, did to it; see `Looks`.
    moved: how far it moves in half the class. worth: how many episodes, all alike, say as much.
    unseen: what pairs that were never logged may do to it: they count as worth 0.
    """

    value: float
    influence: FloatArray
    moved: float
    worth: float
    unseen: float = 0.0

    @property
    def standard_error(self) -> float:
        """Of the value, over episodes and starts."""
        return float(np.sqrt(np.sum(self.influence**2)))


class _Solution(NamedTuple):
    """By start (m,), and of each row (k,): its weight, and that times its error.

    unseen: visits of an episode to pairs that were never logged, times the size of logged values.
    """

    values: FloatArray
    duals: FloatArray
    owed: FloatArray
    unseen: float


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
            found.unseen,
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
        return product(self._weighted, self.used.phi, self.used.features.blocks())

    @cached_property
    def _ridge(self) -> float:
        return ridge_of(self._gram)

    def _fixed_point(
        self, after: Matrix, starts: Matrix, rewards: FloatArray, half: IntArray | None
    ) -> tuple[_Solution, FloatArray | None]:
        used, weights = self.used, self.used.weights
        onward = product(self._weighted, after, used.features.blocks())
        matrix, paid = self._gram - onward, self._weighted.T @ rewards
        solver = Solver(matrix, self._ridge)
        theta = solver(paid)
        source = np.asarray(starts.mean(axis=0)).ravel()
        duals = weights * (used.phi @ solver(source, transposed=True))
        logged = used.phi @ theta
        errors = rewards + after @ theta - logged
        none = (self._gram.diagonal() == 0).astype(float)
        visits = float(source @ (solver(onward @ none) + none))
        found = _Solution(starts @ theta, duals, duals * errors, max(visits, 0.0) * _size(logged))
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
            blocks=used.features.blocks(),
        )
        solved = equations.solved()
        duals, owed = solved.influence(equations.start)
        unseen = max(float(equations.start @ solved.unseen()), 0.0)
        size = _size(used.phi @ solved.theta)
        found = _Solution((starts @ solved.theta)[:, 0], duals, owed[:, 0], unseen * size)
        if half is None:
            return found, None
        smaller = equations.columns(half)
        return found, (smaller.starts @ smaller.solved().theta)[:, 0]


def _size(values: FloatArray) -> float:
    """Their root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def _in_groups(values: FloatArray, units: IntArray) -> FloatArray:
    """Sums over groups of units: all of an episode are in one."""
    groups = units % MOST_GROUPS
    number = min(int(units.max()) + 1, MOST_GROUPS)
    sums: FloatArray = np.bincount(groups, values, number).astype(float)
    return sums
