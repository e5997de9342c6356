"""What a user should know about the data before trusting a number: warnings, with figures."""

import numpy as np

from fle.data import Dataset
from fle.evaluation.encoding import Encoder

# Tails of this index or heavier have no third moment, and a CVaR that few rows decide.
HEAVY_TAIL_INDEX = 3.0
LEAST_TAIL_ROWS = 50


def data_remarks(data: Dataset, encoder: Encoder, horizon: int | None) -> list[str]:
    """All remarks, in the order in which they should be read."""
    return [
        *_constant_remarks(data),
        *_tail_remarks(data),
        *_horizon_remarks(data, horizon),
        *_precision_remarks(data, encoder),
    ]


def _constant_remarks(data: Dataset) -> list[str]:
    """A constant return: the reward never varies, and neither does the length of an episode."""
    ends = bool(data.terminations.any())
    return [
        f"{name} is {column[0]:g} in every row: its return is a point mass, and spread and risk "
        "say nothing."
        for name, column in zip(data.reward_names, data.rewards.T, strict=True)
        if np.all(column == column[0]) and (column[0] == 0 or not ends)
    ]


def _tail_remarks(data: Dataset) -> list[str]:
    remarks = []
    for name, column in zip(data.reward_names, data.rewards.T, strict=True):
        index = tail_index(column)
        if index < HEAVY_TAIL_INDEX:
            remarks.append(
                f"{name} has a heavy tail (index {index:.1f}; a normal tail is far above "
                f"{HEAVY_TAIL_INDEX:g}): CVaR at small levels rests on few rows and is unstable."
            )
    return remarks


def tail_index(values: np.ndarray) -> float:
    """Hill's estimate from the largest hundredth of the distances to the median."""
    number = max(LEAST_TAIL_ROWS, values.size // 100)
    if values.size < 4 * number:
        return np.inf
    largest = np.sort(np.abs(values - np.median(values)))[-number - 1 :]
    if largest[0] <= 0:
        return np.inf
    excess = float(np.mean(np.log(largest[1:] / largest[0])))
    return np.inf if excess == 0 else 1 / excess


def _horizon_remarks(data: Dataset, horizon: int | None) -> list[str]:
    if horizon is None or data.episodes is None or not np.any(data.truncations):
        return []
    longest = int(np.bincount(data.episodes).max())
    if horizon <= longest:
        return []
    return [
        f"The horizon is {horizon} steps and the longest logged episode has {longest}: "
        f"{1 - longest / horizon:.0%} of the horizon is extrapolated from earlier steps."
    ]


def _precision_remarks(data: Dataset, encoder: Encoder) -> list[str]:
    exact = data.rewards / encoder.reward_unit
    error = np.abs(exact - exact.astype(np.float32)).max(axis=0) * encoder.reward_unit
    spread = data.rewards.std(axis=0)
    lost = (error > 1e-3 * spread) & (spread > 0)
    return [
        f"{name}: single precision changes it by up to {e:.3g}, which is {e / s:.1%} of its "
        "standard deviation. Subtract a constant from the reward if it has a large offset."
        for name, e, s, bad in zip(data.reward_names, error, spread, lost, strict=True)
        if bad
    ]
