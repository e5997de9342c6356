"""How well data covers a policy: density ratios, and the relative condition number."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fle.errors import SettingsError
from fle.trust.bounds.complexity import not_negative, positive, second_moment

# Directions in which the data varies less than this share of the most are taken for none.
NEGLIGIBLE = 1e-10


def density_ratio(occupancy: ArrayLike, data: ArrayLike) -> float:
    """C = max of occupancy / data over states and actions (and steps), at least 1.

    For classes that are free in every state and action, such as tables, this is the paper's C
    exactly: fits that are wrong at the worst pair alone attain it. For others it is an upper bound.
    Infinite where the policy goes and the data does not.

    Args:
        occupancy: probabilities of the policy, (S, A), or (H, S, A) for every step.
        data: probabilities of the logged pairs, which broadcast against them.
    """
    policy, logged = np.broadcast_arrays(
        np.asarray(occupancy, dtype=float), np.asarray(data, dtype=float)
    )
    if policy.size == 0 or not (np.all(policy >= 0) and np.all(logged >= 0)):
        raise SettingsError(
            "occupancy and data: expected probabilities, none negative or missing, got shapes"
            f" {np.shape(occupancy)} and {np.shape(data)}"
        )
    visited = policy > 0
    with np.errstate(divide="ignore"):
        ratios = policy[visited] / logged[visited]
    return float(max(1.0, ratios.max(initial=1.0)))


def relative_condition_number(policy_moment: ArrayLike, data_moment: ArrayLike) -> float:
    """sup_w (wᵀ E_policy[φφᵀ] w) / (wᵀ E_data[φφᵀ] w), the paper's C for linear features.

    It bounds how mean square errors of w·φ carry over from the data to the policy, and may be
    below 1. Directions that neither visits are left out, so repeated features do no harm. Infinite
    if the policy moves where the data does not. For many steps take the largest.

    Args:
        policy_moment: E[φφᵀ] under the policy, (F, F).
        data_moment: E[φφᵀ] under the data, (F, F).
    """
    policy = second_moment("policy_moment", policy_moment)
    data = second_moment("data_moment", data_moment)
    if policy.shape != data.shape:
        raise SettingsError(
            f"policy_moment and data_moment: expected one shape, got {policy.shape} and"
            f" {data.shape}"
        )
    values, vectors = np.linalg.eigh(data)
    seen = values > NEGLIGIBLE * max(values[-1], np.finfo(float).tiny)
    unseen = vectors[:, ~seen]
    if unseen.size and np.any(
        np.einsum("fi,fg,gi->i", unseen, policy, unseen) > NEGLIGIBLE * np.trace(policy)
    ):
        return math.inf
    whitening = vectors[:, seen] / np.sqrt(values[seen])
    if not whitening.size:
        return 0.0
    return float(np.linalg.eigvalsh(whitening.T @ policy @ whitening)[-1])


def gaussian_total_variation(gap: float, std: float) -> float:
    """TV of two Gaussians with one standard deviation and means `gap` apart: erf(gap/(√8 std))."""
    return math.erf(abs(gap) / (math.sqrt(8) * positive("std", std)))


def gaussian_zeta(root_mean_square_gap: float, std: float) -> float:
    """ζ = sqrt(E_data gap²) / (√(2π) std), for Gaussians of one known standard deviation.

    At least (E_data TV²)^½, and unlike that it carries over by the relative condition number κ:
    TV <= sqrt(κ) Σ_h ζ_h holds with these ζ_h. With the smaller ones it can fail, as total
    variation saturates at 1 and then no longer grows with the gap.

    Args:
        root_mean_square_gap: root mean square difference of the means, under the data.
        std: their standard deviation.
    """
    gap = not_negative("root_mean_square_gap", root_mean_square_gap)
    return gap / (math.sqrt(2 * math.pi) * positive("std", std))


def gaussian_coverage(condition_number: float, largest_gap: float, std: float) -> float:
    """C = κ (gap / (√(2π) std TV(gap)))², at least 1: the paper's C of linear-Gaussian classes.

    What the relative condition number alone lacks: between 0 and the largest gap, TV is at most
    gap / (√(2π) std) and at least its share of that line.

    Args:
        condition_number: κ of the features.
        largest_gap: largest difference of two means of the class, over all logged pairs.
        std: their standard deviation.
    """
    gap = positive("largest_gap", largest_gap)
    saturation = gaussian_zeta(gap, std) / gaussian_total_variation(gap, std)
    return max(1.0, not_negative("condition_number", condition_number) * saturation**2)
