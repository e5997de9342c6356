"""From data, policy and recipe to fitted distributions: the plan, the Bellman loop, saved runs."""

from fle.fitting.behaviour import LoggingPolicy, logging_policy
from fle.fitting.comparison import Comparison, compare
from fle.fitting.evaluation import Evaluation, LoggedData, Provenance
from fle.fitting.jobs import carry_out
from fle.fitting.measurement import StageRecord
from fle.fitting.planning import evaluate, plan
from fle.fitting.plans import Plan
from fle.fitting.runs import load
from fle.screen import Progress, Silent, TerminalBar

__all__ = [
    "Comparison",
    "Evaluation",
    "LoggedData",
    "LoggingPolicy",
    "Plan",
    "Progress",
    "Provenance",
    "Silent",
    "StageRecord",
    "TerminalBar",
    "carry_out",
    "compare",
    "evaluate",
    "load",
    "logging_policy",
    "plan",
]
