"""MDPs whose return distribution is known, and rollouts of Gymnasium environments.

The Gymnasium form of the lock is `fle.tasks.gymnasium_lock.CombinationLockEnv`; it needs fle[gym].
"""

from fle.tasks.combination_lock import CombinationLock
from fle.tasks.gaussian_returns import LQR, Fork
from fle.tasks.rollouts import collect, monte_carlo_returns
from fle.tasks.tabular import (
    GaussianLaws,
    SparseTerminalMDP,
    TabularMDP,
    draw_categorical,
    policy_function,
    random_mdp,
    random_policy,
    sparse_terminal,
    uniform_policy,
)

__all__ = [
    "LQR",
    "CombinationLock",
    "Fork",
    "GaussianLaws",
    "SparseTerminalMDP",
    "TabularMDP",
    "collect",
    "draw_categorical",
    "monte_carlo_returns",
    "policy_function",
    "random_mdp",
    "random_policy",
    "sparse_terminal",
    "uniform_policy",
]
