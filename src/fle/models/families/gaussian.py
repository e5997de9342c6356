"""A single Gaussian with independent coordinates; with fixed variance FLE is classic FQE."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import SettingsError
from fle.models.law import Density, Sizes
from fle.models.network import Network
from fle.models.objectives import GradientObjective, Transition
from fle.models.specs import ModelSpec
from fle.recipe import Resolved


class MeanAndVariance(NamedTuple):
    """Of a return or a Bellman target: all that a Gaussian likelihood asks of it."""

    mean: Float[Array, " d"]
    variance: Float[Array, " d"]


class IndependentNormal(Density):
    """p(z | x, a) = N(z; m(x, a), diag v(x, a)), abstract: whatever gives mean and variance."""

    @abstractmethod
    def condition(self, inputs: Float[Array, " inputs"]) -> MeanAndVariance:
        """Mean and variance at one input."""

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        mean, variance = self.condition(inputs)
        return -0.5 * jnp.sum((returns - mean) ** 2 / variance + jnp.log(2 * np.pi * variance))

    def draw(
        self, conditioned: MeanAndVariance, uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """Mean plus scaled noise."""
        return conditioned.mean + jnp.sqrt(conditioned.variance) * ndtri(uniforms)


class GaussianLaw(IndependentNormal):
    """p(z | x, a) = N(z; mu(x, a), diag sigma²(x, a)) by a network."""

    network: Network
    return_dim: int = eqx.field(static=True)
    fixed_std: float | None = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    smooth_draws: ClassVar[bool] = True

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> MeanAndVariance:
        """Mean and variance at one input."""
        outputs = self.network(inputs)
        if self.fixed_std is not None:
            return MeanAndVariance(outputs, jnp.full(self.return_dim, self.fixed_std**2))
        mean, raw = jnp.split(outputs, 2)
        return MeanAndVariance(mean, (self.scale_floor + jax.nn.softplus(raw)) ** 2)


class ExpectedLikelihood(GradientObjective):
    """The likelihood of a Gaussian, expected over next actions and next returns, exactly.

    It depends on the target's mean and variance only.
    """

    in_nats: ClassVar[bool] = True

    def prepare(
        self, law: GaussianLaw, previous: GaussianLaw, transition: Transition
    ) -> MeanAndVariance:
        """Moments of r + discount * y, by the law of total variance over next actions."""
        means, variances = transition.at_candidates(previous.condition)
        mean = transition.probabilities @ means
        variance = transition.probabilities @ (variances + (means - mean) ** 2)
        return MeanAndVariance(
            transition.reward + transition.discount * mean, transition.discount**2 * variance
        )

    def loss(
        self, law: GaussianLaw, inputs: Float[Array, "rows inputs"], targets: MeanAndVariance
    ) -> Float[Array, ""]:
        """Expected negative log likelihood of the targets."""
        mean, variance = jax.vmap(law.condition)(inputs)
        spread = (targets.mean - mean) ** 2 + targets.variance
        return 0.5 * jnp.mean(jnp.sum(spread / variance + jnp.log(2 * np.pi * variance), axis=1))


@dataclass(frozen=True)
class Gaussian(ModelSpec):
    """One Gaussian a coordinate. A fixed `std` makes FLE the classic fitted Q evaluation.

    p(z | x, a) = N(z; mu(x, a), diag sigma²(x, a)). The recipe's `scale_floor` is the least learned
    sigma, its `trend` says whether mu has a quadratic trend beside the network.

    std: None to learn it; otherwise the fixed standard deviation, as a share of the return scale
        (only the mean is then meaningful).
    hidden: widths of the hidden layers.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.Gaussian(hidden=(32, 32)))`.
    """

    std: float | None = None
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "gaussian"
    reads_codes: ClassVar[bool] = True
    has_trend: ClassVar[bool] = True
    any_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.std is not None and not self.std > 0:
            raise SettingsError(
                f"Gaussian std: expected a positive number or None, got {self.std}."
            )

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> GaussianLaw:
        """A law that starts out as a standard normal."""
        d = sizes.returns
        raw = np.full(d if self.std is None else 0, 0.54)  # softplus(0.54) = 1
        bias = np.concatenate([np.zeros(d), raw])
        trends = d if recipe.trend else 0
        network = Network(
            sizes.inputs, self.hidden, bias, generator, trends=trends, codes=sizes.codes
        )
        return GaussianLaw(network, d, self.std, recipe.scale_floor)

    def objective(self, recipe: Resolved) -> ExpectedLikelihood:
        """The expected likelihood, exact over next actions and returns."""
        return ExpectedLikelihood()
