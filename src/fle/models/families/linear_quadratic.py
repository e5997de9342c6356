"""The paper's Bellman-complete class for LQR: a Gaussian of quadratic mean and known variance."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import ModelError, SettingsError
from fle.models.law import Density, Sizes, placed
from fle.models.objectives import ClosedForm, Transition
from fle.models.specs import ModelSpec, Moments, identity_frame, require_scalar
from fle.recipe import Resolved


class LinearQuadraticLaw(Density):
    """p(z | x, a) = N(z; theta . phi(x, a), v), phi all products of two coordinates of (x, a)."""

    coefficients: Float[Array, " features"]
    variance: Float[Array, ""]

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

    def draw(
        self, conditioned: Float[Array, ""], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """Mean plus scaled noise."""
        return conditioned[None] + jnp.sqrt(self.variance) * ndtri(uniforms)


class LeastSquares(ClosedForm):
    """Maximum likelihood is least squares. The variance is known: v = noise² + discount² v_next.

    noise_std: the known standard deviation of one reward.
    """

    noise_std: float = eqx.field(static=True)

    def solve(
        self,
        law: LinearQuadraticLaw,
        previous: LinearQuadraticLaw,
        transitions: Transition,
        weights: Float[Array, " rows"],
    ) -> LinearQuadraticLaw:
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
        return type(law)(coefficients, jnp.asarray(variance, jnp.float32))


@jax.jit
def _least_squares(
    previous: LinearQuadraticLaw, transitions: Transition, weights: Float[Array, " rows"]
) -> Float[Array, " features"]:
    def expected_target(transition: Transition) -> Float[Array, ""]:
        means = transition.at_candidates(previous.mean)
        return transition.reward[0] + transition.discount[0] * transition.probabilities @ means

    root = jnp.sqrt(weights)
    features = jax.vmap(quadratic_features)(transitions.inputs) * root[:, None]
    targets = jax.vmap(expected_target)(transitions) * root
    # Each in units of its own: what counts as rounding beside the largest is else left out.
    units = jnp.max(jnp.abs(features), axis=0)
    units = jnp.where(units == 0, 1.0, units)
    return jnp.linalg.lstsq(features / units, targets)[0] / units


def quadratic_features(inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
    """All distinct products of two coordinates."""
    rows, columns = np.triu_indices(inputs.shape[0])
    return inputs[rows] * inputs[columns]


@dataclass(frozen=True)
class LinearQuadratic(ModelSpec):
    """LQR with Gaussian reward noise: fitted exactly, by least squares.

    p(z | x, a) = N(z; theta . phi(x, a), v), phi all products of two coordinates of (x, a); the
    variance v follows from `noise_std` (Wu, Uehara & Sun 2023).

    noise_std: the known standard deviation of one reward.

    Example: `fle.evaluate(data, policy, horizon=10, model=fle.LinearQuadratic(noise_std=0.1))`.
    """

    noise_std: float

    name: ClassVar[str] = "linear-quadratic"
    standardised: ClassVar[bool] = False
    any_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.noise_std > 0:
            raise SettingsError(
                f"LinearQuadratic noise_std: expected a positive number, got {self.noise_std}."
            )

    def build(
        self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator
    ) -> LinearQuadraticLaw:
        """The zero function."""
        require_scalar("LinearQuadratic", sizes.returns)
        if sizes.discrete_observations or sizes.discrete_actions:
            raise ModelError(
                "LinearQuadratic needs continuous observations and actions. Use RewardMixture or "
                "GMM for discrete ones."
            )
        features = sizes.inputs * (sizes.inputs + 1) // 2
        variance = placed(np.array(self.noise_std**2))
        return LinearQuadraticLaw(placed(np.zeros(features)), variance)

    def objective(self, recipe: Resolved) -> LeastSquares:
        """Least squares."""
        return LeastSquares(self.noise_std)

    def frame(self, samples: np.ndarray) -> Moments:
        """The units of the data."""
        return identity_frame(samples)
