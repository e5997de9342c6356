"""What would a policy earn, and how badly could it go? Answers from logged data alone.

The pipeline, in order: a `Dataset` of logged transitions and a target policy go into `evaluate`,
which fits a model (`GMM`, `Histogram`, `Gaussian`, `Categorical`, `Quantile`, `RewardMixture`,
`LinearQuadratic`) stage by stage as `Training` says, and returns an `Evaluation`, whose
`ReturnDistribution`s answer every question of risk.
"""

from fle.data import Dataset
from fle.errors import FLEError, FLEWarning
from fle.evaluation import Evaluation, Training, evaluate
from fle.models import (
    GMM,
    Autoregressive,
    Categorical,
    Diffusion,
    Flow,
    Gaussian,
    Histogram,
    LinearQuadratic,
    Quantile,
    RewardMixture,
)
from fle.returns import ReturnDistribution

__version__ = "0.1.0"

__all__ = [
    "GMM",
    "Autoregressive",
    "Categorical",
    "Dataset",
    "Diffusion",
    "Evaluation",
    "FLEError",
    "FLEWarning",
    "Flow",
    "Gaussian",
    "Histogram",
    "LinearQuadratic",
    "Quantile",
    "ReturnDistribution",
    "RewardMixture",
    "Training",
    "evaluate",
]
