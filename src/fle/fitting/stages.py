"""Which rows and which discount each stage of the Bellman loop has."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fle.data import Dataset
from fle.errors import DataError, SettingsError

RowUse = Literal["all", "step", "split"]
# What the returns beyond the last stage may still weigh, in standard deviations of the return.
NEGLIGIBLE = 0.01
MOST_STAGES = 5000


@dataclass(frozen=True)
class Stage:
    """One maximum-likelihood fit: the rows it uses, those it is measured on, and its discount.

    `step` is the step whose rows are used in a time-dependent problem, None where any row serves.
    The last step of a finite horizon and the first stage of a discounted problem have discount 0.
    """

    step: int | None
    discount: float
    rows: np.ndarray
    held_out: np.ndarray


def finite_horizon_stages(
    data: Dataset,
    horizon: int,
    gamma: float,
    use: RowUse,
    held_out: float,
    generator: np.random.Generator,
) -> list[Stage]:
    """Algorithm 1: from the last step to the first."""
    steps: list[int | None] = [None] * horizon
    if use == "step":
        steps = list(range(horizon - 1, -1, -1))
        groups = [_rows_of_step(data, step) for step in range(horizon - 1, -1, -1)]
    else:
        groups = _row_groups(data, horizon, use, generator)
    discounts = [0.0] + [gamma] * (horizon - 1)
    return [
        Stage(step, discount, *_hold_out(group, held_out, generator))
        for step, discount, group in zip(steps, discounts, groups, strict=True)
    ]


def discounted_stages(
    data: Dataset,
    number: int,
    gamma: float,
    use: RowUse,
    held_out: float,
    generator: np.random.Generator,
) -> list[Stage]:
    """Algorithm 2: the same update again and again."""
    if use == "step":
        raise SettingsError('rows="step" needs a horizon: a discounted problem has no last step.')
    if use == "all":
        used, kept = _hold_out(np.arange(len(data)), held_out, generator)
        pairs = [(used, kept)] * number
    else:
        groups = _row_groups(data, number, use, generator)
        pairs = [_hold_out(group, held_out, generator) for group in groups]
    discounts = [0.0] + [gamma] * (number - 1)
    return [Stage(None, g, used, kept) for g, (used, kept) in zip(discounts, pairs, strict=True)]


def number_of_stages(data: Dataset, gamma: float) -> tuple[int, str]:
    """Stages after which what is left out weighs little, and why, in words.

    What is missing after T stages is about gamma^T times the return. It must be small against the
    return's standard deviation: gamma^T |mean| / std <= NEGLIGIBLE.
    """
    if gamma == 0:
        return 1, "gamma = 0: the return is the reward, one stage"
    ratio = _mean_to_std(data, gamma)
    number = 1 + math.ceil(math.log(NEGLIGIBLE / max(1.0, ratio)) / math.log(gamma))
    reason = (
        f"{number} stages: gamma^T times the size of the return ({ratio:.1f} standard deviations) "
        f"is then below {NEGLIGIBLE:g} standard deviations"
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
    everything = np.arange(len(data))
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
