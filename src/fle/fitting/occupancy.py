"""Where the target policy goes, estimated from the log alone: row weights by its occupancy.

The policy's visits are carried forward in time over the logged transitions. Of the pairs (x, a)
that it visits at one step only some means are known, m = E[f(x, a)]. The law of these visits is
taken to be the log, reweighted as little as gives it those means,

    p(i) = exp(theta . f(x_i, a_i)) / Z,  sum_i p(i) f(x_i, a_i) = m,

where theta solves a convex problem, with a ridge. The logged transitions carry it on: the next
means are those of f(x'_i, a'), a' ~ policy(x'_i), under p. Nothing is simulated, and nothing that
came of a row decides on its weight, which would bias a fit. Of discrete states and actions f says
which pair it is; then this is the chain of the logged frequencies, exactly.

Rows are weighted by their observations: those where the policy goes. Weights by actions as well
cost most of the rows, and the tails of a fit grow with what is lost [0017].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from fle.data import Dataset
from fle.data.passes import Array, centre_and_scale, in_parallel, row_blocks
from fle.errors import PolicyError
from fle.fitting.problem import checked_gamma
from fle.policies.action_table import ActionTable
from fle.policies.answers import TabulatedPolicy, by_action

# Weights are cut off at this many times their mean, and this share of them is uniform [0017].
LARGEST, UNIFORM = 30.0, 0.2
# Weights are of use from here on: what they move, and the rows that are left, as a number and as a
# share; and what may lie beyond the log [0017].
LEAST_MOVED, LEAST_EFFECTIVE, LEAST_SHARE, MOST_BEYOND = 0.1, 300, 0.05, 0.5
# Ridge on theta times the rows: so many rows' worth of belief in the log as it is.
RIDGE = 10.0
# The visits of a step may rest on no fewer rows than this, and than this share of them.
FEWEST_ROWS, FEWEST_SHARE = 30, 0.02
# Features that are used at most, rows at a step that stand for the log, and rows times features
# squared that a Newton step may cost.
MOST_FEATURES, MOST_ROWS, MOST_WORK = 64, 20_000, 3e7
# Up to so many inputs have all their products as features; more have their squares alone.
MOST_INPUTS = 12
# Inputs farther out, in standard deviations, count as being there: exp() of squares takes off.
FARTHEST = 4.0
# Visits are followed until this share of them is left, or what is left would move the means by no
# more than that, in standard deviations; and so many steps at most.
NEGLIGIBLE, SETTLED, MOST_STEPS = 0.01, 0.05, 600
# Means that lie nearer, in standard deviations, share a law: each has to be told at every row.
SAME = 0.03
NEWTON_STEPS, DECREMENT = 25, 1e-4
BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Row weights that make the log look like what the target policy visits.

    weights: (n,) of mean 1, in proportion to occupancy / density of the log at each row's
        observation, cut off and mixed with uniform ones. Weights of the data itself are contained.
        In a time-dependent problem the mean is 1 at every step.
    effective_size: (sum w)² / sum w², out of n rows.
    distance: total variation between the log and the weighted log, from 0 to 1.
    beyond: share of the policy's visits where hardly anything was logged; weights stop short there.
    steps: how many steps the visits were followed.
    pairs: what the policy does on its whole way, actions included, as the log shows it.
    told_by, visits: what tells the weights of other rows, while the plan is in this process.
    """

    weights: Array
    effective_size: float
    distance: float
    beyond: float
    steps: int
    pairs: "VisitedPairs"
    told_by: "_Space | None" = None
    visits: "tuple[_Visit, ...]" = ()

    def at_rows(self, data: Dataset) -> Array:
        """(n,) Weights of other rows of the same log."""
        base = np.ones(len(data)) if data.weights is None else data.weights / data.weights.mean()
        if self.told_by is None:
            return base
        return _finished(base * self.told_by.ratios(self.visits, data), base, data.steps)

    @property
    def worthwhile(self) -> bool:
        """Whether to use the weights: they change something, and leave enough."""
        least = max(LEAST_EFFECTIVE, LEAST_SHARE * len(self.weights))
        enough = self.effective_size >= least and self.beyond <= MOST_BEYOND
        return enough and self.distance >= LEAST_MOVED

    def in_words(self) -> str:
        """The figures in one line."""
        words = (
            f"weighted by where the policy goes, {len(self.weights):,} rows count as"
            f" {self.effective_size:,.0f}; {self.distance:.0%} of the weight was moved"
        )
        if self.beyond < NEGLIGIBLE:
            return words
        return f"{words}, and {self.beyond:.0%} of its visits are where hardly anything was logged"

    def as_plain(self) -> dict[str, Any]:
        """The figures, for machines."""
        figures = ("effective_size", "distance", "beyond", "steps")
        return {name: getattr(self, name) for name in figures}


class VisitedPairs(NamedTuple):
    """Where the policy goes and what it does there, as a law over logged rows.

    rows: (k,) which rows of the data stand for the log.
    chances: (k,) discounted visits of their observation and action over all steps, of sum 1.
    beyond: share of its way where hardly anything was logged, with all that would follow.
    by_step: last step of each part of the way, effective rows of its visits, and their mass.
    """

    rows: Array
    chances: Array
    beyond: float
    by_step: tuple[tuple[int, float, float], ...]


def occupancy(
    data: Dataset,
    target: TabulatedPolicy,
    *,
    gamma: float | None,
    horizon: int | None,
    seed: int = 0,
) -> Occupancy:
    """Estimate from the log alone how often the policy would be where each row is.

    The occupancy of a policy is d(x) = sum_t gamma^t P(x_t = x), over t < horizon if there is one;
    the weight of a row is d(x) over the density of the log, up to a constant. The errors of a fit
    count where the policy dwells, times 1 / (1 - gamma), and its rows should lie there. What a
    well-specified fit converges to stays the same: given (x, a), nothing is selected.

    Args:
        data: the logged transitions; with `steps`, the visits of a step fall on its own rows.
        target: what the policy does, as `fle.policies.answers.tabulated` gives it for this data.
        gamma, horizon: the return, as `fle.evaluate` takes them.
        seed: of the rows that stand for a log too large to be used whole.

    The visits satisfy E_d[f(x, a) - gamma f(x', a')] = E_start[f], the balance of minimax weight
    learning (Uehara, Huang & Jiang 2020), by entropy balancing (Hainmueller 2012) at every step.

    >>> found = occupancy(data, tabulated(policy, data), gamma=0.99, horizon=None)
    >>> weighted = data.with_weights(found.weights)
    """
    gamma = checked_gamma(gamma, horizon)
    start = data.require_initial_observations()
    if len(target.following) != len(data) or len(target.initial) != len(start):
        raise PolicyError(
            f"expected tables of {len(data)} and {len(start)} rows, as tabulated gives for this"
            f" data; got {len(target.following)} and {len(target.initial)}"
        )
    base = np.ones(len(data)) if data.weights is None else data.weights / data.weights.mean()
    tabular = data.number_of_observations is not None and data.discrete_actions
    # Thousands of small products: threads that share one wait for each other far longer than it
    # takes, and another number of them would round otherwise.
    with threadpool_limits(limits=1, user_api="blas"):
        space = _Cells(data, target, base) if tabular else _Tilts(data, target, base, seed)
        visits, pairs, lost = _followed(space, data.steps is None, gamma, horizon)
        weights = _finished(base * space.ratios(visits, data), base, data.steps)
    beyond = sum(visit.beyond for visit in visits) / sum(visit.mass for visit in visits)
    return Occupancy(
        weights=weights,
        effective_size=float(weights.sum() ** 2 / (weights**2).sum()),
        distance=float(0.5 * np.abs(weights - base).mean()),
        beyond=beyond,
        steps=visits[-1].step + 1,
        pairs=VisitedPairs(
            space.rows,
            pairs / max(float(pairs.sum()), 1e-300),
            # A pair that was never logged leads nowhere: all that would follow is unknown too.
            lost / max(lost + float(pairs.sum()), 1e-300) if tabular else beyond,
            tuple((v.step, v.rows, v.mass) for v in visits),
        ),
        told_by=space,
        visits=tuple(visits),
    )


def _finished(weights: Array, base: Array, steps: Array | None) -> Array:
    """Cut off, mixed with the log as it is, and of mean 1, at every step if there are steps."""
    counts = 1 if steps is None else np.maximum(np.bincount(steps), 1)

    def levelled(values: Array) -> Array:
        if steps is None:
            mean = values.mean()
            return values / mean if mean > 0 else base
        means = np.bincount(steps, values) / counts
        # Where nothing is visited the log stays as it is.
        return np.where(means[steps] > 0, values / np.where(means > 0, means, 1.0)[steps], base)

    # Once would leave a few above; the mean falls by what is cut off.
    for _ in range(3):
        weights = np.minimum(levelled(weights), LARGEST)
    return levelled((1 - UNIFORM) * levelled(weights) + UNIFORM * base)


class _Visit(NamedTuple):
    """What is visited at a step, and at steps like it.

    mass: discounted probability of all of them.
    law: what a space needs to tell how often a row is visited, for its share in the log.
    beyond: the part of the mass that the log hardly shows.
    rows: how many logged rows, all alike, would say as much of the visits.
    """

    step: int
    mass: float
    law: Any
    beyond: float
    rows: float


class _Law(NamedTuple):
    """Where the visits of a step fall: rows, their probabilities, and the law to tell others by."""

    rows: Array
    chances: Array
    told_by: Any
    beyond: float


class _Space(Protocol):
    """Pairs (x, a) as features, and the laws that their means stand for.

    rows: (k,) those of the data that stand for the log. number: how many there are.
    start: (F,) means at the first step.
    following: (k, F) means at the pair after each row that stands for the log.
    going_on: (k,) 1.0 where there is one, 0.0 after a row that terminated.
    """

    rows: Array
    number: int
    start: Array
    following: Any
    going_on: Array

    def law(self, means: Array, step: int) -> _Law | None:
        """Visits with these means; None if no row is at this step."""

    def apart(self, means: Array, others: Array) -> float:
        """How far apart visits are: in standard deviations, or in total variation."""

    def ratios(self, visits: Sequence[_Visit], data: Dataset) -> Array:
        """(n,) Visits over density of the log at the observation of each row of the data."""


def _followed(
    space: _Space, stationary: bool, gamma: float, horizon: int | None
) -> tuple[list[_Visit], Array, float]:
    """The policy's visits from the first step on, as long as they weigh or change; how much of them
    falls on each row; and what is lost where there is none.
    """
    visits: list[_Visit] = []
    pairs, scale = np.zeros(len(space.rows)), space.number / len(space.rows)
    means, last_means, mass, total, lost = space.start, space.start, 1.0, 0.0, 0.0
    for step in range(min(horizon or MOST_STEPS, MOST_STEPS)):
        law = space.law(means, step)
        if law is None:
            break
        chances = law.chances * space.going_on[law.rows]
        survival = float(min(chances.sum(), 1.0))
        after = space.following if stationary else space.following[law.rows]
        following = (chances @ after) / max(survival, 1e-300)
        rate, left = gamma * survival, math.inf if horizon is None else horizon - step
        to_come = left if rate >= 1 else (1 - rate**left) / (1 - rate)
        at_rest = stationary and space.apart(following, means) * to_come < SETTLED
        stops = at_rest or step + 1 == MOST_STEPS
        here = mass * (to_come if stops else 1.0)
        pairs[law.rows] += here * law.chances
        lost += mass * law.beyond * (left if gamma == 1 else (1 - gamma**left) / (1 - gamma))
        told = scale * float(law.chances.sum() ** 2 / max((law.chances**2).sum(), 1e-300))
        if visits and stationary and space.apart(means, last_means) < SAME:
            before = visits.pop()
            here, beyond = here + before.mass, here * law.beyond + before.beyond
            told = min(told, before.rows)
        else:
            beyond, last_means = here * law.beyond, means
        visits.append(_Visit(step, here, law.told_by, beyond, told))
        total, mass = total + mass, mass * rate
        if stops or mass * to_come < NEGLIGIBLE * total:
            break
        means = following
    return visits, pairs, lost


class _Cells:
    """Discrete states and actions: the features of a pair say which pair it is."""

    def __init__(self, data: Dataset, target: TabulatedPolicy, base: Array) -> None:
        self._states, self._actions = data.number_of_observations or 0, data.number_of_actions or 0
        self._known: Array | None = None
        if self._states > len(data):
            # Weights are of logged states; all others are one.
            self._known = np.unique(data.observations)
            self._states = len(self._known) + 1
        self._logged = self._places(data.observations)
        self._cells = self._logged * self._actions + data.actions
        self._base, self._steps = base, data.steps
        self.rows, self.number = np.arange(len(data)), len(data)
        self.going_on = (~data.terminations).astype(float)
        self.following = self._expected(data.next_observations, target.following)
        initial = self._expected(data.require_initial_observations(), target.initial)
        self.start = np.asarray(initial.sum(axis=0)).ravel() / initial.shape[0]

    def _places(self, states: Array) -> Array:
        if self._known is None:
            return states
        places = np.searchsorted(self._known, states)
        found = self._known[np.minimum(places, len(self._known) - 1)] == states
        return np.where(found, places, len(self._known))

    def _expected(self, states: Array, table: ActionTable) -> Any:
        cells = self._places(states)[:, None] * self._actions + table.actions
        ends = np.arange(len(states) + 1) * table.candidates
        return csr_array(
            (table.probabilities.ravel(), cells.ravel(), ends),
            shape=(len(states), self._states * self._actions),
        )

    def law(self, means: Array, step: int) -> _Law | None:
        rows = _at(self._steps, step, len(self._base))
        if not len(rows):
            return None
        ratios = self._ratio(self._cells, means, rows)[self._cells[rows]]
        chances = ratios * self._base[rows] / len(rows)
        by_state = means.reshape(self._states, self._actions).sum(axis=1)
        return _Law(rows, chances, by_state, max(0.0, 1 - float(chances.sum())))

    def apart(self, means: Array, others: Array) -> float:
        return 0.5 * float(np.abs(means - others).sum())

    def _ratio(self, places: Array, means: Array, rows: Array) -> Array:
        """Probability of every place over the share of its rows among these rows."""
        logged = np.bincount(places[rows], self._base[rows], minlength=len(means)) / len(rows)
        ratios: Array = means / np.where(logged > 0, logged, np.inf)
        return ratios

    def ratios(self, visits: Sequence[_Visit], data: Dataset) -> Array:
        ratios, places = np.zeros(len(data)), self._places(data.observations)
        for visit in visits:
            known = _at(self._steps, visit.step, len(self._base))
            rows = _at(data.steps, visit.step, len(data))
            by_place = self._ratio(self._logged, visit.law, known)
            ratios[rows] += visit.mass * by_place[places[rows]]
        return ratios


def _at(steps: Array | None, step: int, number: int) -> Array:
    """The rows of a step; all rows where steps do not matter."""
    return np.arange(number) if steps is None else np.flatnonzero(steps == step)


class _Tilts:
    """Any other spaces: quadratic features, and the log reweighted by exp(theta . features)."""

    def __init__(self, data: Dataset, target: TabulatedPolicy, base: Array, seed: int) -> None:
        self._data, self._base = data, base
        order = np.random.default_rng(seed).permutation(len(data))
        self._features = _Features(data, target, order[: MOST_FEATURES * 100])
        size = self._features.size
        number = min(MOST_ROWS, int(MOST_WORK / size**2))
        number *= 1 if data.steps is None else int(data.steps.max()) + 1
        self._rows = self.rows = np.sort(order[:number])
        self.number = len(data)
        self.going_on = (~data.terminations[self._rows]).astype(float)
        self.start = self._features.expected(
            data.require_initial_observations(), target.initial
        ).mean(axis=0)
        self._fitted = self._features(data.observations[self._rows], data.actions[self._rows])
        self.following = self._features.expected(
            data.next_observations[self._rows], _rows_of(target.following, self._rows)
        )
        self._theta = np.zeros(size)
        self._marginal = np.zeros(self._features.of_observations)

    def law(self, means: Array, step: int) -> _Law | None:
        steps = self._data.steps
        rows = _at(None if steps is None else steps[self._rows], step, len(self._rows))
        if not len(rows):
            return None
        base = self._base[self._rows[rows]]
        features = self._fitted[rows]
        few = min(max(FEWEST_ROWS, FEWEST_SHARE * len(rows)), len(rows) / 2)
        projection = _Projection(features, base / base.sum(), RIDGE / len(rows))
        tilt, part = projection.nearest(means, self._theta, few)
        known = self._features.of_observations
        reached = means[:known] if part == 1 else tilt.chances @ features[:, :known]
        marginal = projection.of_first(known).tilt(reached, self._marginal)
        self._theta, self._marginal = tilt.theta, marginal.theta
        return _Law(rows, tilt.chances, marginal, 1 - part)

    def apart(self, means: Array, others: Array) -> float:
        return float(np.abs(means - others).max())

    def ratios(self, visits: Sequence[_Visit], data: Dataset) -> Array:
        ratios = np.zeros(len(data))
        masses = np.array([visit.mass for visit in visits])
        steps = np.array([visit.step for visit in visits])
        thetas, constants = self._features.unstandardised([visit.law for visit in visits])

        def told(features: Array, mine: Any) -> Array:
            """Density of the tilts over that of the log, cut off far above what is kept."""
            logs = features @ thetas[:, mine] - constants[mine]
            return np.exp(np.minimum(logs, math.log(LARGEST) + 3)) @ masses[mine]

        def fill(block: slice) -> None:
            features = self._features.at(data.observations[block])
            if data.steps is None:
                ratios[block] = told(features, slice(None))
                return
            for step in np.unique(data.steps[block]):
                rows = np.flatnonzero(data.steps[block] == step)
                ratios[block.start + rows] = told(features[rows], steps == step)

        in_parallel(fill, row_blocks(len(data)), len(data))
        return ratios


def _rows_of(table: ActionTable, rows: Array) -> ActionTable:
    return ActionTable(table.actions[rows], table.probabilities[rows])


class _Tilt(NamedTuple):
    """p(i) ∝ base(i) exp(theta . f_i): its probabilities (k,), and log E[exp(theta . f)]."""

    theta: Array
    chances: Array
    normaliser: float

    @property
    def effective_rows(self) -> float:
        return 1 / float(self.chances @ self.chances)


class _Projection(NamedTuple):
    """Finds the tilt of features (k, F) with given means; `base` (k,) is the log."""

    features: Array
    base: Array
    ridge: float

    def of_first(self, number: int) -> "_Projection":
        """By the first features alone."""
        return self._replace(features=self.features[:, :number])

    def nearest(self, means: Array, theta: Array, few: float) -> tuple[_Tilt, float]:
        """The tilt with these means, or as far on the way there from the log as `few` effective
        rows are left, and which part of the way that is.

        Means outside of the log have no tilt, and those at its edge one of a few rows.
        """
        tilt = self.tilt(means, theta, few)
        if tilt.effective_rows >= few:
            return tilt, 1.0
        centre = self.base @ self.features
        tilt, part = self._at(np.zeros(len(means))), 0.0
        for stride in (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32):
            tried = self.tilt(centre + (part + stride) * (means - centre), tilt.theta, few)
            if tried.effective_rows >= few:
                tilt, part = tried, part + stride
        return tilt, part

    def tilt(self, means: Array, theta: Array, few: float = 0.0) -> _Tilt:
        """Minimises log E[exp(theta . f)] - theta . means + ridge |theta|² / 2, by Newton's method.

        Given up where there are far fewer effective rows than `few`.
        """
        tilt = self._at(theta)
        for _ in range(NEWTON_STEPS):
            centre = tilt.chances @ self.features
            gradient = centre - means + self.ridge * tilt.theta
            weighted = self.features * tilt.chances[:, None]
            curvature = weighted.T @ self.features - np.outer(centre, centre)
            curvature[np.diag_indices(len(means))] += self.ridge
            step = -np.linalg.solve(curvature, gradient)
            decrement = -float(gradient @ step)
            if decrement < DECREMENT or tilt.effective_rows < few / 4:
                break
            # Whole steps only near the end: from far off they overshoot.
            length = 1.0 if decrement < 0.25 else 1 / (1 + math.sqrt(decrement))
            value, tried = self._value(tilt, means), self._at(tilt.theta + length * step)
            while self._value(tried, means) > value and length > 1e-3:
                length /= 2
                tried = self._at(tilt.theta + length * step)
            tilt = tried
        return tilt

    def _at(self, theta: Array) -> _Tilt:
        logs = self.features @ theta
        top = float(logs.max())
        chances = self.base * np.exp(logs - top)
        total = float(chances.sum())
        return _Tilt(theta, chances / total, top + math.log(total))

    def _value(self, tilt: _Tilt, means: Array) -> float:
        theta = tilt.theta
        return tilt.normaliser - float(theta @ means) + 0.5 * self.ridge * float(theta @ theta)


class _Features:
    """Inputs, their products, and both for each action: those in which visits leave the log.

    Standardised in the log. Those of observations alone come first.
    """

    def __init__(self, data: Dataset, target: TabulatedPolicy, rows: Array) -> None:
        self._states, self._actions = data.number_of_observations, data.number_of_actions
        self._observation_units = self._action_units = (np.zeros(1), np.ones(1))
        if self._states is None:
            self._observation_units = centre_and_scale(data.observations[rows])
        if self._actions is None:
            self._action_units = centre_and_scale(data.actions[rows])
        self._first = first = self._own(data.observations[rows])[1].shape[1]
        raw = self._raw(data.observations[rows], self._acts(data.actions[rows]))
        self._mean, self._scale = raw.mean(axis=0), raw.std(axis=0)
        self._chosen = np.flatnonzero(self._scale > 1e-9)
        start = data.require_initial_observations()
        some = np.random.default_rng(0).permutation(len(start))[: len(rows)]
        asked = (
            self.expected(data.next_observations[rows], _rows_of(target.following, rows)),
            self.expected(start[some], _rows_of(target.initial, some)),
        )
        differences = np.max([np.abs(part.mean(axis=0)) for part in asked], axis=0)
        self._chosen = np.sort(self._chosen[np.argsort(-differences)[:MOST_FEATURES]])
        self.size = len(self._chosen)
        self.of_observations = int((self._chosen < first).sum())

    def __call__(self, observations: Array, actions: Array) -> Array:
        """(n, F)"""
        return self._standard(self._raw(observations, self._acts(actions)), self._chosen)

    def at(self, observations: Array) -> Array:
        """(n, F') All of observations alone, as they come."""
        return self._own(observations)[1]

    def unstandardised(self, tilts: list[_Tilt]) -> tuple[Array, Array]:
        """(F', k) and (k,): logarithms of the tilts' ratios are features `at` rows times the first,
        less the second.
        """
        chosen = self._chosen[: self.of_observations]
        theta = np.stack([tilt.theta for tilt in tilts], axis=1) / self._scale[chosen, None]
        coefficients = np.zeros((self._first, len(tilts)))
        coefficients[chosen] = theta
        return coefficients, self._mean[chosen] @ theta + [tilt.normaliser for tilt in tilts]

    def expected(self, observations: Array, table: ActionTable) -> Array:
        """(n, F) Averages over the candidates of a table."""
        total = np.zeros((len(observations), len(self._chosen)))
        for start in range(0, len(observations), BLOCK):
            block = slice(start, start + BLOCK)
            shares, actions = table.probabilities[block], table.actions[block]
            if self._actions is not None:
                # Features are linear in which action it is: that of a probability is the average.
                acts = by_action(actions, shares, self._actions)[:, : 2 * MOST_FEATURES]
                total[block] = self._standard(self._raw(observations[block], acts), self._chosen)
                continue
            for candidate in range(table.candidates):
                found = self(observations[block], actions[:, candidate])
                total[block] += shares[:, candidate, None] * found
        return total

    def _standard(self, raw: Array, chosen: Array) -> Array:
        standardised: Array = (raw[:, chosen] - self._mean[chosen]) / self._scale[chosen]
        return standardised

    def _own(self, observations: Array) -> tuple[Array, Array]:
        """Inputs, and all features of observations alone."""
        if self._states is not None:
            indicators = _indicators(observations, self._states)
            return indicators, indicators
        inputs = _standardised(observations, self._observation_units)
        return inputs, np.concatenate([inputs, _products(inputs)], axis=1)

    def _acts(self, actions: Array) -> Array:
        """Standardised, or which one it is."""
        if self._actions is None:
            return _standardised(actions, self._action_units)
        return _indicators(actions, self._actions)

    def _raw(self, observations: Array, acts: Array) -> Array:
        """All features, those of observations alone first."""
        inputs, own = self._own(observations)
        if self._actions is None:
            parts = [acts, _products(acts)]
            if inputs.shape[1] <= MOST_INPUTS:
                parts += [inputs * column[:, None] for column in acts.T]
        else:
            chosen = acts[:, 1:]
            crossed = own if own.shape[1] * self._actions <= 4 * MOST_FEATURES else inputs
            parts = [chosen, *(crossed * column[:, None] for column in chosen.T)]
        return np.concatenate([own, *parts], axis=1)


def _standardised(values: Array, units: tuple[Array, Array]) -> Array:
    inputs: Array = np.clip((values - units[0]) / units[1], -FARTHEST, FARTHEST)
    return inputs


def _products(inputs: Array) -> Array:
    if inputs.shape[1] > MOST_INPUTS:
        return inputs**2
    columns = np.ascontiguousarray(inputs.T)
    # Column by column, and each with those from it on.
    return np.concatenate([columns[i:] * columns[i] for i in range(len(columns))]).T


def _indicators(codes: Array, number: int) -> Array:
    """(n, number), or fewer: codes beyond twice the features share none."""
    kinds = np.arange(min(number, 2 * MOST_FEATURES))
    indicators: Array = (codes[:, None] == kinds).astype(float)
    return indicators
