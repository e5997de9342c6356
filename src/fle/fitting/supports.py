"""Where the returns of a fit can lie, as the logged rewards and the drawn targets show it."""

from collections.abc import Sequence

import numpy as np

from fle.models.law import placed
from fle.models.support import MOST_ATOMS, Support

# Targets that must share a value, up to float32's digits, for it to be an atom.
LEAST_TIES = 8
DIGITS = 1e-6
# Share of an atom's own targets that others may be in its band, and the most that a band may be,
# in units of the return scale.
OTHERS, WIDEST = 0.02, 0.25


def return_limits(
    rewards: np.ndarray, terminations: np.ndarray, gamma: float, horizon: int | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Least and largest return over 1, 2, ..., `horizon` steps; without one, discounted.

    Rewards stay within those logged. A row adds its reward to what may follow, unless it
    terminated: low = min(r_end, r + gamma low), and high likewise.
    """
    ends = [_least(sign * rewards[terminations]) for sign in (1, -1)]
    goes_on = [_least(sign * rewards[~terminations]) for sign in (1, -1)]
    if horizon is None:
        low, high = (np.fmin(end, go / (1 - gamma)) for end, go in zip(ends, goes_on, strict=True))
        return [(low, -high)]
    found, limits = [np.zeros(rewards.shape[1])] * 2, []
    for step in range(horizon):
        ahead = zip(ends, goes_on, found, strict=True)
        # The last step of a horizon ends there, whichever row it is.
        found = [np.fmin(end, go + (gamma * value if step else 0)) for end, go, value in ahead]
        limits.append((found[0], -found[1]))
    return limits


def _least(rewards: np.ndarray) -> np.ndarray:
    """NaN where there are none."""
    return rewards.min(axis=0) if len(rewards) else np.full(rewards.shape[1], np.nan)


def anywhere(dim: int) -> Support:
    """No limits and no atoms."""
    limits, atoms = np.full(dim, np.inf), np.full((dim, MOST_ATOMS), np.inf)
    return Support(*map(placed, (-limits, limits, atoms, np.zeros_like(atoms))))


def support_of(targets: np.ndarray, limits: Sequence[np.ndarray]) -> Support:
    """The support of a fit to these targets (n, d), in the same units."""
    found = [atoms_of(column) for column in targets.T]
    atoms, bands = (np.stack(part) for part in zip(*found, strict=True))
    return Support(*map(placed, (*limits, atoms, bands)))


def atoms_of(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values that at least LEAST_TIES of the targets (n,) share, and the band around each.

    The band ends where other targets begin, halfway to the next atom, or, where there are any
    others, at a share of the scale.
    """
    atoms, bands = np.full(MOST_ATOMS, np.inf), np.zeros(MOST_ATOMS)
    values, size = np.sort(targets), float(np.abs(targets).max())
    scale = float(targets.std())
    if scale <= 1e-5 * size:
        # A sure return: as wide as its frame.
        scale = 1e-2 * size if size > 0 else 1.0
    apart = np.diff(values) > DIGITS * np.maximum(np.abs(values[1:]), 1e-3 * scale)
    starts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    counts = np.diff(np.append(starts, values.size))
    # The value in the middle of the ties; a run of close values that are not equal is no atom.
    middles = values[starts + counts // 2]
    widths = values[starts + counts - 1] - values[starts]
    tied = (counts >= LEAST_TIES) & (widths <= 4 * DIGITS * np.maximum(np.abs(middles), scale))
    chosen = np.flatnonzero(tied)
    chosen = np.sort(chosen[np.argsort(-counts[chosen], kind="stable")[:MOST_ATOMS]])
    if chosen.size == 0:
        return atoms, bands
    others = np.sort(
        np.repeat(middles, np.where(np.isin(np.arange(counts.size), chosen), 0, counts))
    )
    found = middles[chosen]
    gaps = np.diff(found) / 2
    room = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    if others.size or chosen.size == 1:
        room = np.minimum(room, WIDEST * scale)
    for place, (value, count) in enumerate(zip(found, counts[chosen], strict=True)):
        distances = np.sort(np.abs(others - value))
        allowed = int(OTHERS * count)
        free = distances[allowed] / 2 if allowed < distances.size else np.inf
        atoms[place], bands[place] = value, min(room[place], free)
    return atoms, bands
