"""A target policy, stated in any of several ways, becomes an `ActionTable`."""

from fle.policies.action_table import ActionTable
from fle.policies.adapters import from_d3rlpy, from_stable_baselines3, from_torch
from fle.policies.kinds import (
    Behaviour,
    Deterministic,
    Normal,
    Policy,
    Probabilities,
    ProbabilityColumns,
    RowActions,
    RowProbabilities,
    Stochastic,
)
from fle.policies.loading import load_policy
from fle.policies.settling import Settled, settle
from fle.policies.tabulate import tabulate, tabulate_for_data

__all__ = [
    "ActionTable",
    "Behaviour",
    "Deterministic",
    "Normal",
    "Policy",
    "Probabilities",
    "ProbabilityColumns",
    "RowActions",
    "RowProbabilities",
    "Settled",
    "Stochastic",
    "from_d3rlpy",
    "from_stable_baselines3",
    "from_torch",
    "load_policy",
    "settle",
    "tabulate",
    "tabulate_for_data",
]
