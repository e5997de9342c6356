"""Bellman targets, the optimiser loop, the Bellman loop, and `fle.evaluate`."""

from fle.evaluation.evaluate import evaluate
from fle.evaluation.evaluation import Evaluation
from fle.evaluation.progress import Progress, Silent, TerminalBar
from fle.evaluation.records import StageRecord
from fle.evaluation.settings import Training

__all__ = [
    "Evaluation",
    "Progress",
    "Silent",
    "StageRecord",
    "TerminalBar",
    "Training",
    "evaluate",
]
