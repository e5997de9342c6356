"""Bellman targets, the optimiser loop, the Bellman loop, `fle.evaluate`, and saved runs."""

from fle.fitting.evaluate import evaluate
from fle.fitting.evaluation import Evaluation
from fle.fitting.progress import Progress, Silent, TerminalBar
from fle.fitting.provenance import LoggedData, Provenance
from fle.fitting.records import StageRecord
from fle.fitting.run_directory import load
from fle.fitting.settings import Training

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
