"""Estimators of other schools, each with what ours can be asked: `fle.plan` goes in.

plan = fle.plan(data, policy, gamma=0.99)
fle.baselines.weighted_importance_sampling(plan).returns.cvar(0.1)
"""

from fle.baselines.critics import Critics
from fle.baselines.fitted_q import fitted_q_evaluation
from fle.baselines.importance import (
    direct_method,
    doubly_robust,
    importance_sampling,
    per_decision_importance_sampling,
    stitching,
    weighted_importance_sampling,
    weighted_per_decision_importance_sampling,
)
from fle.baselines.logged_episodes import Estimate, WeightedEpisodes
from fle.baselines.second_opinions import second_opinions_of
from fle.returns.opinions import Figure

__all__ = [
    "Critics",
    "Estimate",
    "Figure",
    "WeightedEpisodes",
    "direct_method",
    "doubly_robust",
    "fitted_q_evaluation",
    "importance_sampling",
    "per_decision_importance_sampling",
    "second_opinions_of",
    "stitching",
    "weighted_importance_sampling",
    "weighted_per_decision_importance_sampling",
]
