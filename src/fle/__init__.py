"""What would a policy earn, and how badly could it go? Answers from logged data alone.

The pipeline, in order: a `Dataset` of logged transitions (`read` makes one from files) and a target
policy (`load_policy` opens ONNX files) go into `plan`, which resolves everything without training;
`evaluate` carries the plan out: it fits a model (`GMM`, `Autoregressive`, `Flow`, `Diffusion`,
`Histogram`, `Gaussian`, `Categorical`, `Quantile`, `RewardMixture`, `LinearQuadratic`) stage by
stage as the `Recipe` says, and returns an `Evaluation`, whose `ReturnDistribution`s answer every
question of risk. `compare` does so for several policies. `load` opens a saved evaluation.
`gate` decides whether a policy keeps what is required of it.
`carry_out` carries out many plans, as jobs of `executors` if there are any.
`baselines` has estimators of other schools, for a second opinion.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fle import baselines, executors
    from fle.data import Dataset, memory_ceiling, prepare, read
    from fle.data import open_log as open  # noqa: A004
    from fle.errors import FLEError, FLEWarning
    from fle.fitting import (
        Comparison,
        Evaluation,
        Plan,
        carry_out,
        compare,
        evaluate,
        load,
        plan,
    )
    from fle.models.families.autoregressive import Autoregressive
    from fle.models.families.categorical import Categorical
    from fle.models.families.diffusion import Diffusion
    from fle.models.families.flow import Flow
    from fle.models.families.gaussian import Gaussian
    from fle.models.families.gmm import GMM
    from fle.models.families.histogram import Histogram
    from fle.models.families.linear import Linear
    from fle.models.families.linear_quadratic import LinearQuadratic
    from fle.models.families.quantile import Quantile
    from fle.models.families.reward_mixture import RewardMixture
    from fle.policies import load_policy
    from fle.recipe import Recipe
    from fle.returns import ReturnDistribution
    from fle.returns.intervals import Interval
    from fle.trust.gate import Gate, gate

__version__ = "0.1.0"

# Where each public name lives. Modules are imported when a name is first asked for, so that
# `import fle` and `fle --help` do not wait for JAX.
_HOMES = {
    "fle.data": ("Dataset", "memory_ceiling", "prepare", "read"),
    "fle.errors": ("FLEError", "FLEWarning"),
    "fle.fitting": (
        "Comparison",
        "Evaluation",
        "Plan",
        "carry_out",
        "compare",
        "evaluate",
        "load",
        "plan",
    ),
    "fle.models.families.autoregressive": ("Autoregressive",),
    "fle.models.families.categorical": ("Categorical",),
    "fle.models.families.diffusion": ("Diffusion",),
    "fle.models.families.flow": ("Flow",),
    "fle.models.families.gaussian": ("Gaussian",),
    "fle.models.families.gmm": ("GMM",),
    "fle.models.families.histogram": ("Histogram",),
    "fle.models.families.linear": ("Linear",),
    "fle.models.families.linear_quadratic": ("LinearQuadratic",),
    "fle.models.families.quantile": ("Quantile",),
    "fle.models.families.reward_mixture": ("RewardMixture",),
    "fle.policies": ("load_policy",),
    "fle.recipe": ("Recipe",),
    "fle.returns": ("ReturnDistribution",),
    "fle.returns.intervals": ("Interval",),
    "fle.trust.gate": ("Gate", "gate"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
# Packages whose parts the pages name as `fle.package.part`.
_ROOMS = ("baselines", "executors", "models", "paper", "policies", "returns", "tasks", "trust")
# Public names that a module would not want for its own.
_CALLED = {"open": ("fle.data", "open_log")}

__all__ = [
    "GMM",
    "Autoregressive",
    "Categorical",
    "Comparison",
    "Dataset",
    "Diffusion",
    "Evaluation",
    "FLEError",
    "FLEWarning",
    "Flow",
    "Gate",
    "Gaussian",
    "Histogram",
    "Interval",
    "Linear",
    "LinearQuadratic",
    "Plan",
    "Quantile",
    "Recipe",
    "ReturnDistribution",
    "RewardMixture",
    "baselines",
    "carry_out",
    "compare",
    "evaluate",
    "executors",
    "gate",
    "load",
    "load_policy",
    "memory_ceiling",
    "open",
    "plan",
    "prepare",
    "read",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"fle.{name}")
    if name not in _HOME_OF and name not in _CALLED:
        raise AttributeError(f"module 'fle' has no attribute {name!r}")
    home, own = _CALLED.get(name) or (_HOME_OF[name], name)
    value = getattr(import_module(home), own)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
