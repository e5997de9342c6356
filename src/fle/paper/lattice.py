"""Fitted Likelihood Estimation on finite MDPs with whole rewards: exact, many data sets at once.

The class is every table of probabilities on a lattice of returns. Its maximum-likelihood fit to
Bellman targets is the Bellman update of the logged frequencies, so nothing is approximated. The
lattice is closed under undiscounted updates, and under updates with a discount of one half.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import SettingsError
from fle.tasks import TabularMDP

FloatArray = NDArray[np.float64]
Discount = Literal["none", "half"]


class Outcomes(NamedTuple):
    """p(reward, next state | s, a), (..., S, A, K, S + 1): the last state is "terminated"."""

    rewards: NDArray[np.int64]
    probabilities: FloatArray


def true_outcomes(mdp: TabularMDP) -> Outcomes:
    """The MDP itself."""
    if mdp.reward_values.min() < 0:
        raise SettingsError(f"Rewards must not be negative here; {mdp.reward_values} came.")
    ends = mdp.terminations[..., None]
    moves = np.concatenate([(1 - ends) * mdp.transitions, ends], axis=-1)
    joint = mdp.reward_probabilities[..., :, None] * moves[..., None, :]
    return Outcomes(mdp.reward_values, joint)


def logged_outcomes(
    truth: Outcomes, data: ArrayLike, rows: int, generators: list[np.random.Generator]
) -> Outcomes:
    """Frequencies in `rows` rows, one data set a generator; pairs (s, a) come with law `data`.

    Counts are drawn at once, which is the same as counting rows. A pair without rows has equal
    frequencies.
    """
    joint = np.asarray(data, dtype=float)[..., None, None] * truth.probabilities
    flat = joint.reshape(-1) / joint.sum()
    counts = np.stack([generator.multinomial(rows, flat) for generator in generators])
    counts = counts.reshape(len(generators), *joint.shape).astype(float)
    totals = counts.sum(axis=(-2, -1), keepdims=True)
    equal = 1 / (counts.shape[-2] * counts.shape[-1])
    return Outcomes(truth.rewards, np.where(totals > 0, counts / np.maximum(totals, 1), equal))


def start_laws(outcomes: Outcomes) -> FloatArray:
    """A return of 0 for certain, (..., S, A, 1)."""
    return np.ones((*outcomes.probabilities.shape[:-2], 1))


def update(
    outcomes: Outcomes, policy: ArrayLike, laws: FloatArray, *, stage: int, discount: Discount
) -> FloatArray:
    """The Bellman update number `stage` (from 1) of laws (..., S, A, L) on the lattice 0, 1, ....

    Discounted by one half, the lattice of stage t has spacing 2^(1-t): y/2 keeps its place, and a
    reward moves by 2^(t-1) places.
    """
    of_state = np.einsum("sa,...sal->...sl", np.asarray(policy, dtype=float), laws)
    ended = np.zeros((*of_state.shape[:-2], 1, of_state.shape[-1]))
    ended[..., 0] = 1.0
    onward = np.concatenate([of_state, ended], axis=-2)
    shifts = outcomes.rewards * (1 if discount == "none" else 2 ** (stage - 1))
    width = laws.shape[-1]
    pieces = np.einsum("...saku,...ul->...sakl", outcomes.probabilities, onward)
    result = np.zeros((*pieces.shape[:-2], width + int(shifts.max())))
    for kind, shift in enumerate(shifts):
        result[..., shift : shift + width] += pieces[..., kind, :]
    return result


def spacing(stages: int, discount: Discount) -> float:
    """Distance of neighbouring returns after so many updates."""
    return 1.0 if discount == "none" else 2.0 ** (1 - stages)


def refined(law: FloatArray, stages: int, more: int) -> FloatArray:
    """A half-discounted law of `stages` updates on the lattice of `more` updates."""
    factor = 2 ** (more - stages)
    result = np.zeros((*law.shape[:-1], (law.shape[-1] - 1) * factor + 1))
    result[..., ::factor] = law
    return result


def same_length(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both padded with zeros to the longer of the two."""
    length = max(first.shape[-1], second.shape[-1])
    padded = [
        np.concatenate([law, np.zeros((*law.shape[:-1], length - law.shape[-1]))], axis=-1)
        for law in (first, second)
    ]
    return padded[0], padded[1]


def lattice_total_variation(first: FloatArray, second: FloatArray) -> FloatArray:
    """TV of laws (..., L)."""
    return 0.5 * np.abs(first - second).sum(axis=-1)


def lattice_wasserstein(
    first: FloatArray, second: FloatArray, spacing: float, order: float = 1.0
) -> FloatArray:
    """W_p of laws (..., L) on one lattice, by coupling equal quantiles."""
    lower, upper = np.cumsum(first, axis=-1), np.cumsum(second, axis=-1)
    if order == 1:
        return np.abs(lower - upper).sum(axis=-1) * spacing
    leading = np.broadcast_shapes(lower.shape, upper.shape)[:-1]
    pairs = zip(
        np.broadcast_to(lower, (*leading, lower.shape[-1])).reshape(-1, lower.shape[-1]),
        np.broadcast_to(upper, (*leading, upper.shape[-1])).reshape(-1, upper.shape[-1]),
        strict=True,
    )
    costs = [_transport(f, g, order) for f, g in pairs]
    return spacing * np.array(costs).reshape(leading) ** (1 / order)


def _transport(lower: FloatArray, upper: FloatArray, order: float) -> float:
    """∫ |F⁻¹ - G⁻¹|^p over levels, in places of the lattice."""
    levels = np.union1d(np.clip(lower, 0, 1), np.clip(upper, 0, 1))
    levels = np.concatenate([[0.0], levels[levels > 0]])
    middles = (levels[1:] + levels[:-1]) / 2
    last = len(lower) - 1
    places = [np.minimum(np.searchsorted(cdf, middles), last) for cdf in (lower, upper)]
    return float(np.diff(levels) @ np.abs(places[0] - places[1]).astype(float) ** order)
