"""The paper's Bellman-complete class for LQR: a Gaussian of quadratic mean and known variance."""

from dataclasses import dataclass
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import ModelError, SettingsError
from fle.models.base import DensityModel, ExactModel, Sizes, Transition, candidate_outputs
from fle.models.frames import FrameRule, identity_frame
from fle.models.hyperparameters import require_scalar


class LinearQuadraticModel(ExactModel, DensityModel):
    """p(z | x, a) = N(z; theta . phi(x, a), v) with phi all products of two coordinates of (x, a).

    Maximum likelihood is least squares. The variance is known: v = noise² + discount² v_next.
    """

    coefficients: Float[Array, " features"]
    variance: Float[Array, ""]
    noise_std: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number."""
        return 1

    def mean(self, inputs: Float[Array, " inputs"]) -> Float[Array, ""]:
        """Expected return at one input."""
        return self.coefficients @ quadratic_features(inputs)

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        error = returns[0] - self.mean(inputs)
        return -0.5 * (error**2 / self.variance + jnp.log(2 * np.pi * self.variance))

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, ""]:
        """The mean is all that varies."""
        return self.mean(inputs)

    def draw(self, law: Float[Array, ""], uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """Mean plus scaled noise."""
        return law[None] + jnp.sqrt(self.variance) * ndtri(uniforms)

    def refit(
        self, previous: Self, transitions: Transition, weights: Float[Array, " rows"]
    ) -> Self:
        """Weighted least squares on the expected targets."""
        discounts = np.unique(np.asarray(transitions.discount))
        if discounts.size > 1:
            raise ModelError(
                "LinearQuadratic has one known variance for all states, which holds only if no "
                f"row terminates; here the discount varies between {discounts[0]:g} and "
                f"{discounts[-1]:g}. Use Gaussian or GMM."
            )
        coefficients = _least_squares(previous, transitions, weights)
        variance = self.noise_std**2 + discounts[0] ** 2 * previous.variance
        return type(self)(coefficients, jnp.asarray(variance, jnp.float32), self.noise_std)


@jax.jit
def _least_squares(
    previous: LinearQuadraticModel, transitions: Transition, weights: Float[Array, " rows"]
) -> Float[Array, " features"]:
    def expected_target(transition: Transition) -> Float[Array, ""]:
        means = candidate_outputs(previous.mean, transition)
        return transition.reward[0] + transition.discount[0] * transition.probabilities @ means

    root = jnp.sqrt(weights)
    features = jax.vmap(quadratic_features)(transitions.inputs) * root[:, None]
    targets = jax.vmap(expected_target)(transitions) * root
    return jnp.linalg.lstsq(features, targets)[0]


def quadratic_features(inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
    """All distinct products of two coordinates."""
    rows, columns = np.triu_indices(inputs.shape[0])
    return inputs[rows] * inputs[columns]


@dataclass(frozen=True)
class LinearQuadratic:
    """LQR with Gaussian reward noise: fitted exactly, by least squares.

    noise_std: the known standard deviation of one reward.
    """

    noise_std: float

    name: ClassVar[str] = "linear-quadratic"
    standardised: ClassVar[bool] = False
    frame: ClassVar[FrameRule] = staticmethod(identity_frame)

    def __post_init__(self) -> None:
        if not self.noise_std > 0:
            raise SettingsError(f"LinearQuadratic noise_std must be positive: {self.noise_std}.")

    def build(self, sizes: Sizes, generator: np.random.Generator) -> LinearQuadraticModel:
        """The zero function."""
        require_scalar("LinearQuadratic", sizes.returns)
        if sizes.discrete_observations or sizes.discrete_actions:
            raise ModelError(
                "LinearQuadratic needs continuous observations and actions. Use RewardMixture or "
                "GMM for discrete ones."
            )
        features = sizes.inputs * (sizes.inputs + 1) // 2
        variance = jnp.asarray(self.noise_std**2, jnp.float32)
        return LinearQuadraticModel(jnp.zeros(features), variance, self.noise_std)
