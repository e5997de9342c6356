"""Bellman targets, the optimiser loop, the Bellman loop, `fle.evaluate`, and saved runs."""

from fle.evaluation.evaluate import evaluate
from fle.evaluation.evaluation import Evaluation
from fle.evaluation.progress import Progress, Silent, TerminalBar
from fle.evaluation.provenance import LoggedData, Provenance
from fle.evaluation.records import StageRecord
from fle.evaluation.run_directory import load
from fle.evaluation.settings import Training

__all__ = [
    "Evaluation",
    "LoggedData",
    "Progress",
    "Provenance",
    "Silent",
    "StageRecord",
    "TerminalBar",
    "Training",
    "evaluate",
    "load",
]
