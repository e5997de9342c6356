"""Which return is meant, and which rows and discount each stage of the Bellman loop has."""

import math
import numbers
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from fle.data import Dataset
from fle.errors import DataError, SettingsError
from fle.fitting.following import Trail
from fle.recipe import HELD_OUT, MOST_STAGES, NEGLIGIBLE, START, WEIGHT_DECAYS, Resolved

RowUse = Literal["all", "step", "split"]


class Question(NamedTuple):
    """Which return is asked for, how the rows are used, and whether a first look is enough."""

    gamma: float
    horizon: int | None
    rows: RowUse
    stages: int | None
    quick: bool = False


@dataclass(frozen=True)
class Problem:
    """Which return of the target policy is estimated: Z = sum_t gamma^t r_t.

    gamma: discount factor.
    horizon: number of steps of an episode; None if it goes on until it terminates.
    rows: which stages a row serves: "all" of them, that of its own "step", or one ("split").
    stages: number of fits: the horizon, or how often a discounted update is repeated.
    """

    gamma: float
    horizon: int | None
    rows: RowUse
    stages: int

    @property
    def question(self) -> tuple[float, int | None, RowUse]:
        """Which return is asked for; how many stages it takes depends on the policy."""
        return self.gamma, self.horizon, self.rows

    @property
    def repeats(self) -> int:
        """How often one and the same update is repeated, towards a fixed point."""
        return 1 if self.horizon is not None else self.stages

    @property
    def kept(self) -> int:
        """How many fits a result needs: one for each step of a horizon."""
        return self.horizon or 1

    def in_words(self) -> str:
        """Which return is meant, in one line."""
        if self.horizon is None:
            return f"discounted return, gamma = {self.gamma:g}"
        words = f"return over {self.horizon} step{'s' if self.horizon > 1 else ''}"
        return words if self.gamma == 1 else f"{words}, discounted by gamma = {self.gamma:g}"


def sum_of_discounts(gamma: float, left: int | None) -> float:
    """Sum of gamma^t over the steps that are left; None for all there are."""
    if left is None:
        return 1 / (1 - gamma)
    return float(left) if gamma == 1 else (1 - gamma**left) / (1 - gamma)


def require_dataset(data: Any) -> None:
    """An error for a frame or a path, which `fle.read` makes a data set of."""
    if not isinstance(data, Dataset):
        raise SettingsError(
            f"data: expected a fle.Dataset, got {type(data).__name__}; make one of it with"
            " fle.read(...), which says which column is what"
        )


def checked_gamma(gamma: float | None, horizon: int | None, stages: int | None = None) -> float:
    """The discount factor that is meant, where the three say which return that is."""
    for name, value in (("gamma", gamma), ("horizon", horizon)):
        if value is not None and not isinstance(value, numbers.Real):
            raise SettingsError(f"{name}: expected a number, got {value!r}.")
    if horizon is not None and (horizon < 1 or horizon != int(horizon)):
        raise SettingsError(f"horizon: expected a whole number of at least 1, got {horizon!r}.")
    if horizon is not None and stages is not None:
        raise SettingsError(
            f"stages is for discounted problems, got {stages} with a horizon, which has one stage a"
            " step; leave it out."
        )
    if stages is not None and stages < 1:
        raise SettingsError(f"stages: expected at least 1, got {stages}.")
    if gamma is None:
        if horizon is None:
            raise SettingsError("Give `gamma` (below 1) or `horizon`, or both; neither was given.")
        return 1.0
    if not 0 <= gamma <= 1:
        raise SettingsError(f"gamma: expected a number in [0, 1], got {gamma!r}.")
    if gamma == 1 and horizon is None:
        raise SettingsError(
            "gamma = 1 without a horizon has no finite return in general. Give a horizon, or a "
            "gamma below 1."
        )
    return float(gamma)


def chosen_stages(
    stages: int | None,
    horizon: int | None,
    data: Dataset,
    gamma: float,
    trail: Trail,
    left: float = NEGLIGIBLE,
) -> tuple[int, tuple[str, ...]]:
    """The number of stages, and what is to be known about it; left: as of `number_of_stages`."""
    if horizon is not None:
        return int(horizon), ()
    enough, reason = number_of_stages(data, gamma, trail, left)
    if stages is None:
        return enough, (reason,)
    if stages >= enough:
        return stages, ()
    return stages, (
        f"{stages} stages: what the first fit has wrong is still in the last one; {enough} stages "
        f"would leave about {left:g} standard deviations of the return",
    )


@dataclass(frozen=True, eq=False)
class Stage:
    """One fit: the rows it uses, those it is measured on, and its discount.

    `step` is the step whose rows are used in a time-dependent problem, None where any row serves.
    The last step of a finite horizon and the first stage of a discounted problem have discount 0.
    `decays` are weight decays that the present one is compared with before the fit.
    """

    step: int | None
    discount: float
    rows: np.ndarray
    held_out: np.ndarray
    decays: tuple[float, ...] = ()

    def with_all_rows(self) -> "Stage":
        """Fitted to the held-out rows too."""
        return replace(self, rows=np.union1d(self.rows, self.held_out))


def stages_of(
    problem: Problem, data: Dataset, recipe: Resolved, generator: np.random.Generator
) -> tuple[Stage, ...]:
    """All stages, in the order of fitting: the last step of a horizon first."""
    number = problem.stages
    steps: list[int | None] = [None] * number
    groups: list[np.ndarray]
    if problem.rows == "step":
        if problem.horizon is None:
            raise SettingsError(
                'rows="step" needs a horizon: a discounted problem has no last step.'
            )
        steps = list(range(number - 1, -1, -1))
        groups = [_rows_of_step(data, step) for step in range(number - 1, -1, -1)]
    else:
        groups = _row_groups(data, number, problem.rows, generator)
    if problem.repeats > 1 and problem.rows == "all":
        # One and the same update: rows that were held out once stay so.
        parts = [_hold_out(groups[0], recipe.held_out, generator)] * number
    else:
        parts = [_hold_out(group, recipe.held_out, generator) for group in groups]
    discounts = [0.0] + [problem.gamma] * (number - 1)
    # Rewards alone are the targets of the first stage and can be learned by heart; those of later
    # stages are mostly drawn afresh, so decay that is not light is put to the test again there.
    decays: list[tuple[float, ...]] = [()] * number
    if recipe.weight_decay == HELD_OUT:
        decays[:2] = [WEIGHT_DECAYS, WEIGHT_DECAYS[:1]][:number]
    return tuple(
        Stage(step, discount, *part, decays=compared)
        for step, discount, part, compared in zip(steps, discounts, parts, decays, strict=True)
    )


def number_of_stages(
    data: Dataset, gamma: float, trail: Trail, left: float = NEGLIGIBLE
) -> tuple[int, str]:
    """Stages after which what the first fit has wrong weighs little, and why, in words.

    A stage shrinks it by a factor c, the mean of gamma^J where targets follow the log for J rows.
    The first fit is to what the log itself earned, which lacks what came after a row was cut off,
    and another policy's by as much as START. After T stages c^(T-1) times that must be no more
    than `left` standard deviations of the return.
    """
    if gamma == 0:
        return 1, "gamma = 0: the return is the reward, one stage"
    generator = np.random.default_rng(0)
    length, factor, _ = trail.shrinkage(generator)
    _, missing, share = trail.of_log.shrinkage(generator)
    if factor == 0:
        return 1, "every target follows the log to its end: one stage"
    start = START + missing * share * _mean_to_std(data, gamma)
    number = 1 + math.ceil(math.log(left / start) / math.log(factor))
    reason = (
        f"{number} stages: targets follow the log for {length:.1f} rows on average; a stage "
        f"shrinks errors by {factor:.4g}, and all of them {start:.1f} standard deviations of the "
        f"return to {left:g}"
    )
    if number > MOST_STAGES:
        number, reason = MOST_STAGES, f"{MOST_STAGES} stages, the most that is tried ({reason})"
    return number, reason


def _mean_to_std(data: Dataset, gamma: float) -> float:
    """Size of a return in its standard deviations, as far as the logged rewards show it."""
    mean, std = np.abs(data.rewards.mean(axis=0)), data.rewards.std(axis=0)
    # Of independent rewards: mean / (1 - gamma) against std / sqrt(1 - gamma²).
    independent = mean * math.sqrt((1 + gamma) / (1 - gamma)) / np.maximum(std, 1e-30)
    ratios = independent
    if data.episodes is not None and data.whole_episodes:
        returns, _ = data.observed_returns(gamma)
        if len(returns) >= 20:
            spread = returns.std(axis=0)
            observed = np.abs(returns.mean(axis=0)) / np.maximum(spread, 1e-30)
            ratios = np.minimum(independent, observed)
    return float(np.clip(np.max(ratios), 0, 1e3))


def _rows_of_step(data: Dataset, step: int) -> np.ndarray:
    if data.steps is None:
        raise SettingsError(
            'rows="step" uses each row at its own step, but the data has no step index. Give '
            "`steps` (counting from 0), or call `data.with_steps()` if the episodes are whole."
        )
    rows = np.flatnonzero(data.steps == step)
    if rows.size < 2:
        raise DataError(
            f"Step {step} (counting from 0) has {rows.size} rows and needs at least 2; the steps "
            f"in the data go from {data.steps.min()} to {data.steps.max()}. Shorten the horizon, "
            'or use rows="all" if the problem does not depend on the step.'
        )
    return rows


def _row_groups(
    data: Dataset, number: int, use: RowUse, generator: np.random.Generator
) -> list[np.ndarray]:
    everything = np.arange(len(data), dtype=np.int32)
    if use == "all":
        return [everything] * number
    if len(data) < 2 * number:
        raise SettingsError(
            f'rows="split" gives each of {number} stages its own rows, and {len(data)} rows are '
            'too few for that (2 a stage). Use rows="all".'
        )
    return np.array_split(generator.permutation(everything), number)


def _hold_out(
    rows: np.ndarray, share: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    shuffled = generator.permutation(rows)
    count = min(max(1, round(share * rows.size)), rows.size - 1)
    return shuffled[count:], shuffled[:count]
