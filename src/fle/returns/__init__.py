"""The law of the return: its statistics, its risks, and distances between laws."""

from fle.returns.distances import (
    Floor,
    energy_distance,
    sampling_floor,
    sliced_wasserstein,
    total_variation,
    total_variation_from_samples,
    wasserstein,
)
from fle.returns.distribution import ReturnDistribution
from fle.returns.risk import cvar, lower_partial_moment, quantile, value_at_risk

__all__ = [
    "Floor",
    "ReturnDistribution",
    "cvar",
    "energy_distance",
    "lower_partial_moment",
    "quantile",
    "sampling_floor",
    "sliced_wasserstein",
    "total_variation",
    "total_variation_from_samples",
    "value_at_risk",
    "wasserstein",
]
