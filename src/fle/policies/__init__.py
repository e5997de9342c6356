"""A target policy, stated in any of several ways, becomes a `TabulatedPolicy`."""

from fle.policies.action_table import ActionTable
from fle.policies.answers import TabulatedPolicy, tabulate, tabulated
from fle.policies.function_policies import (
    Deterministic,
    Normal,
    Policy,
    Probabilities,
    Stochastic,
)
from fle.policies.loading import (
    from_d3rlpy,
    from_safetensors,
    from_stable_baselines3,
    from_torch,
    load_policy,
)
from fle.policies.row_policies import (
    Behaviour,
    ProbabilityColumns,
    RowActions,
    RowProbabilities,
    Settled,
    settle,
)

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
    "TabulatedPolicy",
    "from_d3rlpy",
    "from_safetensors",
    "from_stable_baselines3",
    "from_torch",
    "load_policy",
    "settle",
    "tabulate",
    "tabulated",
]
