"""The distribution of the return: its statistics, its risk measures, and distances."""

from fle.returns.distances import (
    Floor,
    TruthDistance,
    distances_to_truth,
    energy_distance,
    sampling_floor,
    sliced_wasserstein,
    total_variation,
    total_variation_from_samples,
    wasserstein,
)
from fle.returns.distribution import ReturnDistribution
from fle.returns.measures import Family, Measure, measure
from fle.returns.risk import cvar, lower_partial_moment, quantile

__all__ = [
    "Family",
    "Floor",
    "Measure",
    "ReturnDistribution",
    "TruthDistance",
    "cvar",
    "distances_to_truth",
    "energy_distance",
    "lower_partial_moment",
    "measure",
    "quantile",
    "sampling_floor",
    "sliced_wasserstein",
    "total_variation",
    "total_variation_from_samples",
    "wasserstein",
]
