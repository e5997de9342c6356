"""A single Gaussian with independent coordinates; with fixed variance FLE is classic FQE."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import SettingsError
from fle.models.base import DensityModel, GradientModel, Sizes, Transition, candidate_outputs
from fle.models.frames import FrameRule, moments_frame
from fle.models.hyperparameters import Hyperparameters
from fle.models.network import Network


class Moments(NamedTuple):
    """Mean and variance of a Bellman target: all that a Gaussian likelihood asks of it."""

    mean: Float[Array, " d"]
    variance: Float[Array, " d"]


class GaussianModel(GradientModel, DensityModel):
    """p(z | x, a) = N(z; mu(x, a), diag sigma²(x, a)).

    The expected log likelihood of a target depends on its mean and variance only, so both
    expectations, over next actions and over next returns, are taken exactly.
    """

    network: Network
    return_dim: int = eqx.field(static=True)
    fixed_std: float | None = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> Moments:
        """Mean and variance at one input."""
        outputs = self.network(inputs)
        if self.fixed_std is not None:
            return Moments(outputs, jnp.full(self.return_dim, self.fixed_std**2))
        mean, raw = jnp.split(outputs, 2)
        return Moments(mean, (self.scale_floor + jax.nn.softplus(raw)) ** 2)

    def prepare(self, previous: Self, transition: Transition) -> Moments:
        """Moments of r + discount * y, by the law of total variance over next actions."""
        means, variances = candidate_outputs(previous.condition, transition)
        mean = transition.probabilities @ means
        variance = transition.probabilities @ (variances + (means - mean) ** 2)
        return Moments(
            transition.reward + transition.discount * mean, transition.discount**2 * variance
        )

    def loss(self, inputs: Float[Array, " inputs"], target: Moments) -> Float[Array, ""]:
        """Expected negative log likelihood of the target."""
        mean, variance = self.condition(inputs)
        spread = (target.mean - mean) ** 2 + target.variance
        return 0.5 * jnp.sum(spread / variance + jnp.log(2 * np.pi * variance))

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        mean, variance = self.condition(inputs)
        return -0.5 * jnp.sum((returns - mean) ** 2 / variance + jnp.log(2 * np.pi * variance))

    def draw(self, law: Moments, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """Mean plus scaled noise."""
        return law.mean + jnp.sqrt(law.variance) * ndtri(uniforms)


@dataclass(frozen=True)
class Gaussian(Hyperparameters):
    """One Gaussian a coordinate. A fixed `std` makes FLE the classic fitted Q evaluation.

    std: None to learn it; otherwise the fixed standard deviation, as a share of the return scale
        (only the mean is then meaningful).
    hidden: widths of the hidden layers.
    scale_floor: least learned standard deviation, as a share of the return scale.
    """

    std: float | None = None
    hidden: tuple[int, ...] = (64, 64)
    scale_floor: float = 0.01

    name: ClassVar[str] = "gaussian"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(moments_frame)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.std is not None and not self.std > 0:
            raise SettingsError(f"Gaussian std must be positive or None, got {self.std}.")

    def build(self, sizes: Sizes, generator: np.random.Generator) -> GaussianModel:
        """A model that starts out as a standard normal."""
        d = sizes.returns
        raw = np.full(d if self.std is None else 0, 0.54)  # softplus(0.54) = 1
        bias = np.concatenate([np.zeros(d), raw])
        trends = 0 if sizes.discounted else d
        network = Network(sizes.inputs, self.hidden, bias, generator, trends=trends)
        return GaussianModel(network, d, self.std, self.scale_floor)
