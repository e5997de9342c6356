"""What would a policy earn, and how badly could it go? Answers from logged data alone.

The pipeline, in order: a `Dataset` of logged transitions (`read` makes one from files) and a target
policy (`load_policy` opens ONNX files) go into `evaluate`, which fits a model (`GMM`,
`Autoregressive`, `Flow`, `Diffusion`, `Histogram`, `Gaussian`, `Categorical`, `Quantile`,
`RewardMixture`, `LinearQuadratic`) stage by stage as `Training` says, and returns an `Evaluation`,
whose `ReturnDistribution`s answer every question of risk. `load` opens a saved one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fle.data import Dataset, read
    from fle.errors import FLEError, FLEWarning
    from fle.fitting import Evaluation, Training, load
    from fle.fitting.evaluate import evaluate
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

# Where each public name lives. Modules are imported when a name is first asked for, so that
# `import fle` and `fle --help` do not wait for JAX.
_HOMES = {
    "fle.data": ("Dataset", "read"),
    "fle.errors": ("FLEError", "FLEWarning"),
    "fle.fitting": ("Evaluation", "Training", "evaluate", "load"),
    "fle.models": (
        "GMM",
        "Autoregressive",
        "Categorical",
        "Diffusion",
        "Flow",
        "Gaussian",
        "Histogram",
        "LinearQuadratic",
        "Quantile",
        "RewardMixture",
    ),
    "fle.policies": ("load_policy",),
    "fle.returns": ("ReturnDistribution",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fle' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
