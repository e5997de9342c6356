"""Conditional models of the return, one family a file."""

from fle.models.autoregressive import Autoregressive
from fle.models.base import (
    DensityModel,
    ExactModel,
    GradientModel,
    LikelihoodModel,
    ModelSpec,
    ReturnModel,
    Sizes,
    Transition,
)
from fle.models.ddpm import DDPM
from fle.models.diffusion import Diffusion
from fle.models.flow import Flow
from fle.models.gaussian import Gaussian
from fle.models.gmm import GMM
from fle.models.grid import Categorical, Histogram
from fle.models.linear_quadratic import LinearQuadratic
from fle.models.quantile import Quantile
from fle.models.reward_mixture import RewardMixture

__all__ = [
    "DDPM",
    "GMM",
    "Autoregressive",
    "Categorical",
    "DensityModel",
    "Diffusion",
    "ExactModel",
    "Flow",
    "Gaussian",
    "GradientModel",
    "Histogram",
    "LikelihoodModel",
    "LinearQuadratic",
    "ModelSpec",
    "Quantile",
    "ReturnModel",
    "RewardMixture",
    "Sizes",
    "Transition",
]
