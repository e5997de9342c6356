"""Which model is fitted where none is named, and whether a note suggests an exact class.

A linear or quadratic class is named if it explains as much as a flexible one. Q of the policy lies
in a class if some theta in it leaves Bellman errors

    e = r + g E_a'[phi(x', a')] . theta - phi(x, a) . theta,   E[e | x, a] = 0.

Nothing need be iterated: the fixed point of least squares has a closed form, and e shows what is
wrong with the class at all stages together. Two tests look for it with random cosines beside phi
(Rahimi & Recht 2007): whether they predict e on held-out episodes, anywhere in the log; and whether
they would move the mean return, which an error in the right place does by 1 / (1 - g) of itself.
The law of a return around its mean is that of the discounted sum of such e, so their skewness and
kurtosis say how far from Gaussian it is [0040].
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from fle.data import Dataset
from fle.errors import SettingsError
from fle.fitting.encoding import Encoder
from fle.fitting.problem import Question
from fle.models.specs import ModelSpec, family
from fle.models.support import lattice_of, return_limits
from fle.policies import ActionTable, TabulatedPolicy

# Below this many rows the networks of an autoregressive model have too little to learn from.
ROWS_FOR_AUTOREGRESSION = 5_000
# Up to as many possible returns, each gets a probability of its own [0030].
MOST_POINTS = 151
# Rows up to which a note names an exact class, and rows that each function needs [0040].
MOST_ROWS, ROWS_A_FUNCTION = 2_000, 20
# Cosines beside the class, at least and at most.
FEWEST_COSINES, MOST_COSINES = 20, 100
# Sets of cosines and halves of the episodes that are tried; held-out gain and move of the mean, in
# standard errors and on their average, that are still called none: a class that is right is refused
# in 40% of logs, so that one that is wrong has little room [0040].
REPEATS, GAIN, MOVE = 4, 0.7, 1.0
# The same for a trend with a network beside it, which may do the rest; and the rows that are looked
# at, of more than MOST_ROWS [0042].
TREND_ROWS, TREND_GAIN, TREND_MOVE = 20_000, 2.0, 2.0
# Skewness and excess kurtosis of the return at which a Gaussian is 0.03 standard deviations off.
SKEW, KURTOSIS = 0.2, 0.5
# Halves of fewer episodes are not alike.
LEAST_EPISODES = 10
# Returns take many values; rewards that repeat are the work of something discrete.
DISTINCT = 0.5
# Errors below this share of the rewards are rounding.
ROUNDING = 1e-4
RIDGE = 1e-6
# Inputs farther out, in standard deviations, count as being there, for cosines.
FARTHEST = 5.0
Array = np.ndarray[Any, Any]


def chosen_model(
    model: str | ModelSpec, data: Dataset, question: Question
) -> tuple[ModelSpec, list[str]]:
    """The model asked for, and what is to be known about the choice."""
    notes = []
    if model == "auto":
        spec, reason = _model_by_data(data, question)
        notes.append(f"model: {type(spec).__name__}, {reason}")
    elif isinstance(model, str):
        spec = _named_model(model)
    else:
        spec = model
    return spec, notes


def suggested(data: Dataset, question: Question, target: TabulatedPolicy) -> list[str]:
    """A class that is fitted exactly, where the log has nothing against it [0040]."""
    if question.horizon is not None or question.rows != "all":
        return []
    found = explained_by_polynomial(data, target, question.gamma)
    return [] if found is None else [found]


def has_quadratic_trend(data: Dataset, question: Question, target: TabulatedPolicy) -> bool:
    """Whether Q of the policy is quadratic as far as many rows of the log can tell [0042]."""
    if question.horizon is not None or question.rows != "all" or len(data) <= MOST_ROWS:
        return False
    if data.episodes is None or not _may_be_asked(data, target, len(data)):
        return False
    ends = np.flatnonzero(np.diff(data.episodes, append=-1)) + 1
    used = np.arange(ends[ends <= max(TREND_ROWS, ends[0])][-1])
    rows = Rows.of(data, target, question.gamma, used)
    basis = Powers(rows.inputs.shape[1], 2)
    if rows.episodes.max() + 1 < LEAST_EPISODES:
        return False
    if (basis.number + 1) * ROWS_A_FUNCTION > len(used):
        return False
    found = _tested(rows, basis, np.random.default_rng(0))
    return not found.astray and found.gain <= TREND_GAIN and abs(found.move) <= TREND_MOVE


def _named_model(name: str) -> ModelSpec:
    spec: Any = family(name)
    try:
        return spec()
    except TypeError as error:
        raise SettingsError(
            f"The model {name!r} needs hyperparameters ({error}). Give them, as "
            f"model=fle.{spec.__name__}(...)."
        ) from error


def _model_by_data(data: Dataset, question: Question) -> tuple[ModelSpec, str]:
    d, rows = data.rewards.shape[1], len(data)
    points = _possible_returns(data, question)
    if d == 1 and 1 < points <= MOST_POINTS:
        categorical: Any = family("categorical")
        return categorical(atoms=points), (
            f"whose atoms are the {points} returns that sums of the logged rewards can be"
        )
    if d == 1:
        return family("gmm")(), "the fastest with a density for scalar returns"
    if rows < ROWS_FOR_AUTOREGRESSION:
        return family("gmm")(), (
            f"as {rows:,} rows are few for returns of {d} coordinates "
            f"(Autoregressive from {ROWS_FOR_AUTOREGRESSION:,} rows on)"
        )
    return family("autoregressive")(), (
        f"which follows any shape of the joint distribution of {d} coordinates and is fast to "
        "sample"
    )


def _possible_returns(data: Dataset, question: Question) -> int:
    """How many returns there can be, where rewards lie on a lattice and are summed; else 0."""
    spacing = lattice_of(data.rewards, data.terminations).spacing
    if question.horizon is None or (question.gamma != 1 and question.horizon > 1) or not spacing[0]:
        return 0
    limits = return_limits(data.rewards, data.terminations, 1.0, question.horizon)
    low, high = limits[-1]
    return 1 + round(float((high - low)[0] / spacing[0]))


class Powers(NamedTuple):
    """The coordinates of an input and, with degree 2, all products of two of them."""

    inputs: int
    degree: int

    @property
    def number(self) -> int:
        """Of functions."""
        return self.inputs + (self.inputs * (self.inputs + 1) // 2 if self.degree == 2 else 0)

    def __str__(self) -> str:
        return f"a {'linear' if self.degree == 1 else 'quadratic'} class of {self.number} functions"

    def matrix(self, inputs: Array) -> Array:
        """(n, number) At these inputs."""
        first, second = np.triu_indices(self.inputs if self.degree == 2 else 0)
        return np.hstack([inputs, inputs[:, first] * inputs[:, second]])


def explained_by_polynomial(
    data: Dataset, target: TabulatedPolicy, gamma: float, seed: int = 0
) -> str | None:
    """The smallest polynomial that the log has nothing against, in words; None where there is none.

    Only asked of few rows with continuous observations, scalar rewards and episodes that never end:
    there a network's errors add up, and a Gaussian can be the law.
    """
    if not _may_be_asked(data, target, MOST_ROWS):
        return None
    rows = Rows.of(data, target, gamma, np.arange(len(data)))
    if rows.episodes.max() + 1 < LEAST_EPISODES:
        return None
    generator = np.random.default_rng(seed)
    for degree in (1, 2):
        basis = Powers(rows.inputs.shape[1], degree)
        if (basis.number + 1) * ROWS_A_FUNCTION <= len(data):
            found = _tested(rows, basis, generator)
            if found.nothing_against:
                return (
                    f"{basis} explains as much: {found}. If you know that rewards and dynamics "
                    "are such functions, model=fle.Linear on them is fitted exactly within "
                    "seconds; leave out what is zero, a constant above all"
                )
    return None


def _may_be_asked(data: Dataset, target: TabulatedPolicy, most: int) -> bool:
    continuous = data.number_of_observations is None and data.return_dim == 1
    if not continuous or target.coverage is None or data.weights is not None:
        return False
    if not FEWEST_COSINES * ROWS_A_FUNCTION <= len(data) <= most or data.terminations.any():
        return False
    distinct = [len(np.unique(column)) for column in (*data.observations.T, data.rewards[:, 0])]
    return min(distinct) > DISTINCT * len(data)


@dataclass(frozen=True, eq=False)
class Rows:
    """What is regressed: standardised pairs, rewards, and the pairs that may come next.

    following: (m, n, inputs) and their chances (m, n); starting: the same of initial observations.
    """

    inputs: Array
    rewards: Array
    following: Array
    chances: Array
    starting: Array
    starting_chances: Array
    episodes: Array
    gamma: float

    @classmethod
    def of(cls, data: Dataset, target: TabulatedPolicy, gamma: float, used: Array) -> "Rows":
        """Those used, in the units of an encoder that standardises."""
        encoder = Encoder.standardising(data)

        def pairs(observations: Array, table: ActionTable) -> tuple[Array, Array]:
            found = [
                encoder.inputs(observations, table.actions[:, number])
                for number in range(table.candidates)
            ]
            return np.asarray(found, np.float64), table.probabilities.T

        own = used if data.episodes is None else data.episodes[used]
        logged = encoder.inputs(data.observations[used], data.actions[used])
        return cls(
            np.asarray(logged, np.float64),
            encoder.rewards(data)[used, 0],
            *pairs(data.next_observations[used], target.following.at(used)),
            *pairs(data.require_initial_observations(), target.initial),
            np.unique(own, return_inverse=True)[1].ravel(),
            gamma,
        )


@dataclass(frozen=True, eq=False)
class Cosines:
    """Random cosines of two scales, which stand for a kernel."""

    frequencies: Array
    phases: Array

    @classmethod
    def made(cls, width: int, number: int, generator: np.random.Generator) -> "Cosines":
        """So many of them."""
        scales = np.sqrt(width) * np.resize([1.0, 0.5], number)
        frequencies = generator.standard_normal((width, number)) / scales
        return cls(frequencies, 2 * np.pi * generator.random(number))

    def __call__(self, inputs: Array) -> Array:
        """(n, number) At these inputs."""
        near = np.clip(inputs, -FARTHEST, FARTHEST)
        return np.sqrt(2) * np.cos(near @ self.frequencies + self.phases)


@dataclass(frozen=True, eq=False)
class Regression:
    """Functions of the pairs, of what follows in expectation, and of the starts."""

    functions: Array
    after: Array
    start: Array
    rewards: Array
    gamma: float

    @classmethod
    def of(cls, rows: Rows, basis: Powers, cosines: Cosines) -> "Regression":
        """A constant, the class, and the cosines after it."""

        def functions(inputs: Array) -> Array:
            constant = np.ones((len(inputs), 1))
            return np.hstack([constant, basis.matrix(inputs), cosines(inputs)])

        def expected(pairs: Array, chances: Array) -> Array:
            parts = zip(pairs, chances, strict=True)
            return np.asarray(sum(p[:, None] * functions(some) for some, p in parts))

        start = expected(rows.starting, rows.starting_chances).mean(axis=0)
        after = expected(rows.following, rows.chances)
        return cls(functions(rows.inputs), after, start, rows.rewards, rows.gamma)

    def solved(self, columns: slice, used: Array | None = None) -> "FixedPoint":
        """The fixed point of least squares in some of the functions, on some of the rows."""
        chosen = slice(None) if used is None else used
        functions, after = self.functions[chosen, columns], self.after[chosen, columns]
        ridge = RIDGE * np.mean(functions**2) * len(functions)
        matrix = functions.T @ (functions - self.gamma * after)
        factors = lu_factor(matrix + ridge * np.eye(len(matrix)))
        theta = lu_solve(factors, functions.T @ self.rewards[chosen])
        dual = functions @ lu_solve(factors, self.start[columns], trans=1)
        return FixedPoint(theta, dual)

    def errors(self, columns: slice, theta: Array) -> Array:
        """(n,) Bellman errors."""
        later = self.gamma * (self.after[:, columns] @ theta)
        return np.asarray(self.rewards + later - self.functions[:, columns] @ theta)

    def growth(self, columns: slice) -> float:
        """How much the slowest error is left of by a stage; fitting goes astray from 1 on."""
        functions = self.functions[:, columns]
        carried = np.linalg.lstsq(functions, self.gamma * self.after[:, columns])[0]
        return float(np.max(np.abs(np.linalg.eigvals(carried))))


class FixedPoint(NamedTuple):
    """theta, and by how much an error of each row moves the mean return."""

    theta: Array
    dual: Array


class Found(NamedTuple):
    """What speaks against a class; see the constants at the top.

    number: of functions beside it. astray: whether its fixed point is hardly one.
    """

    number: int
    gain: float
    move: float
    skew: float
    kurtosis: float
    astray: bool
    exact: bool

    @property
    def nothing_against(self) -> bool:
        """Whether it may stand alone, as a Gaussian."""
        if self.exact:
            return True
        round_enough = abs(self.skew) <= SKEW and abs(self.kurtosis) <= KURTOSIS
        held = self.gain <= GAIN and abs(self.move) <= MOVE
        return held and round_enough and not self.astray

    def __str__(self) -> str:
        if self.exact:
            return "it leaves no Bellman error"
        return (
            f"{self.number} functions beside it predict its Bellman errors by {self.gain:+.1f} "
            f"standard errors on held-out episodes, and would move the mean by {self.move:+.1f}; "
            f"the return around its mean has skewness {self.skew:+.2f}"
        )


def _tested(rows: Rows, basis: Powers, generator: np.random.Generator) -> Found:
    """The figures of a class."""
    number = len(rows.inputs) // ROWS_A_FUNCTION - basis.number - 1
    number = int(np.clip(number, FEWEST_COSINES, MOST_COSINES))
    small = slice(basis.number + 1)
    found = []
    for _ in range(REPEATS):
        cosines = Cosines.made(basis.inputs, number, generator)
        regression = Regression.of(rows, basis, cosines)
        own, rich = regression.solved(small), regression.solved(slice(None))
        errors = regression.errors(small, own.theta)
        if np.std(errors) < ROUNDING * np.std(rows.rewards):
            return Found(number, 0.0, 0.0, 0.0, 0.0, False, True)
        gain = _held_out_gain(regression, small, rows.episodes, generator)
        found.append((gain, _in_errors((rich.dual - own.dual) * errors)))
    gain, move = (float(figure) for figure in np.mean(found, axis=0))
    skew, kurtosis = shape_of_return(errors, rows.gamma)
    astray = regression.growth(small) > (1 + rows.gamma) / 2
    return Found(number, gain, move, skew, kurtosis, astray, False)


def _in_errors(parts: Array) -> float:
    """A sum of independent parts with mean zero, in its standard errors."""
    return float(parts.sum() / np.sqrt(np.sum(parts**2) + 1e-300))


def _folds(episodes: Array, generator: np.random.Generator) -> tuple[Array, Array]:
    """Two halves of the episodes, as rows."""
    first = generator.permutation(int(episodes.max()) + 1)[episodes] % 2 == 0
    return first, ~first


def _held_out_gain(
    regression: Regression, small: slice, episodes: Array, generator: np.random.Generator
) -> float:
    """How well cosines predict Bellman errors of episodes that they have not seen.

    Errors of the right class have mean zero whatever came before them, so that the rows of an
    episode count one by one.
    """
    halves = _folds(episodes, generator)
    parts = np.zeros(len(episodes))
    for fitted, judged in (halves, halves[::-1]):
        theta = regression.solved(small, fitted).theta
        errors = regression.errors(small, theta)
        functions = regression.functions[:, small]
        cosines = regression.functions[:, small.stop :]
        # What the class itself can say is not asked again.
        known = np.linalg.lstsq(functions[fitted], cosines[fitted])[0]
        beyond = cosines - functions @ known
        ridge = np.sqrt(fitted.sum())
        matrix = beyond[fitted].T @ beyond[fitted] + ridge * np.eye(beyond.shape[1])
        weights = np.linalg.solve(matrix, beyond[fitted].T @ errors[fitted])
        parts[judged] = (errors * (beyond @ weights))[judged]
    return _in_errors(parts)


def shape_of_return(errors: Array, gamma: float) -> tuple[float, float]:
    """Skewness and excess kurtosis of sum_t gamma^t e_t, e_t independent and like the errors."""
    away = errors - errors.mean()
    variance = np.mean(away**2)
    skew = np.mean(away**3) / variance**1.5
    kurtosis = np.mean(away**4) / variance**2 - 3
    spread = 1 - gamma**2
    return (
        float(skew * spread**1.5 / (1 - gamma**3)),
        float(kurtosis * spread**2 / (1 - gamma**4)),
    )
