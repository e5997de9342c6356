"""A target policy, stated in any of several ways, becomes an `ActionTable`."""

from fle.policies.action_table import ActionTable
from fle.policies.kinds import (
    Deterministic,
    Policy,
    Probabilities,
    RowProbabilities,
    Stochastic,
)
from fle.policies.tabulate import tabulate, tabulate_for_data

__all__ = [
    "ActionTable",
    "Deterministic",
    "Policy",
    "Probabilities",
    "RowProbabilities",
    "Stochastic",
    "tabulate",
    "tabulate_for_data",
]
