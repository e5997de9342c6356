"""What returns the logged rewards allow at all."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from fle.fitting.encoding import Limits, Rows

# Rewards may go beyond those logged by this share of their range.
BEYOND = 0.05


def return_limits(rows: Rows, discounts: Sequence[float]) -> list[Limits]:
    """Limits of the returns before each stage of these discounts; at first nothing was earned.

    A row adds its reward to what was possible before, unless it terminated.
    """
    rewards, continues = np.asarray(rows.rewards, np.float64), np.asarray(rows.continues) > 0
    beyond = BEYOND * np.ptp(rewards, axis=0)
    least = _extremes(rewards - beyond, continues, np.min)
    largest = _extremes(rewards + beyond, continues, np.max)
    low = high = np.zeros(rewards.shape[1])
    limits = []
    for discount in discounts:
        limits.append(Limits(jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)))
        low = np.min([end + go_on * discount * low for end, go_on in least], axis=0)
        high = np.max([end + go_on * discount * high for end, go_on in largest], axis=0)
    return limits


def _extremes(
    rewards: np.ndarray, continues: np.ndarray, extreme: Callable[..., np.ndarray]
) -> list[tuple[np.ndarray, int]]:
    """The extreme reward of rows that terminated and of those that did not, where there are any."""
    kinds = ((rewards[~continues], 0), (rewards[continues], 1))
    return [(extreme(values, axis=0), go_on) for values, go_on in kinds if len(values)]
