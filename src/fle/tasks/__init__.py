"""MDPs whose return distribution is known, and rollouts of Gymnasium environments.

The Gymnasium form of the lock is `fle.tasks.gymnasium_lock.CombinationLockEnv`; it needs fle[gym].
"""

from fle.tasks.combination_lock import CombinationLock
from fle.tasks.fork import Fork
from fle.tasks.lqr import LQR
from fle.tasks.rollouts import collect, monte_carlo_returns
from fle.tasks.sparse_tabular import GaussianLaws, SparseTerminalMDP, sparse_terminal
from fle.tasks.tabular import (
    TabularMDP,
    policy_function,
    random_mdp,
    random_policy,
    uniform_policy,
)
from fle.tasks.task_parts import draw_categorical

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
