"""What would a policy earn, and how badly could it go? Answers from logged data alone.

The pipeline, in order: a `Dataset` of logged transitions (`read` makes one from files) and a target
policy (`load_policy` opens ONNX files) go into `evaluate`, which fits a model (`GMM`,
`Autoregressive`, `Flow`, `Diffusion`, `Histogram`, `Gaussian`, `Categorical`, `Quantile`,
`RewardMixture`, `LinearQuadratic`) stage by stage as `Training` says, and returns an `Evaluation`,
whose `ReturnDistribution`s answer every question of risk. `load` opens a saved one.
"""

from fle.data import Dataset, read
from fle.errors import FLEError, FLEWarning
from fle.evaluation import Evaluation, Training, evaluate, load
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
from fle.policies import load_policy
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
    "load",
    "load_policy",
    "read",
]
