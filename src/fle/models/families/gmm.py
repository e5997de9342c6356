"""Conditional Gaussian mixtures with full covariances."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Density, Sizes
from fle.models.network import ComponentGradients, Mixture, Network
from fle.models.objectives import Likelihood
from fle.models.specs import ModelSpec
from fle.recipe import Resolved


class GMMLaw(Density):
    """p(z | x, a) = sum_k w_k N(z; mu_k, L_k L_k^T), all three given by a network.

    The diagonal of L_k is at least `scale_floor` (in units of the return scale).
    """

    network: Network
    components: int = eqx.field(static=True)
    return_dim: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    smooth_draws: ClassVar[bool] = True

    @property
    def noise_size(self) -> int:
        """One number picks the component, d draw from it."""
        return 1 + self.return_dim

    def mixture(self, outputs: Float[Array, "outputs ..."]) -> Mixture:
        """The mixture for outputs of the network, its weights as logarithms."""
        return Mixture.of_outputs(outputs, self.components, self.return_dim, self.scale_floor)

    def condition(self, inputs: Float[Array, " inputs"]) -> Mixture:
        """The mixture at one input, its weights cumulated."""
        return self.mixture(self.network(inputs)).cumulated()

    def draw(self, conditioned: Mixture, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """From one of the components."""
        return conditioned.draw(uniforms)

    def weighted_draws(
        self, conditioned: Mixture, points: Float[Array, "points noise"]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Every component's draws, with its weight."""
        weights = jnp.diff(conditioned.weights, prepend=0.0)
        weights = weights / conditioned.weights[-1] / len(points)
        each = (jnp.arange(self.components) + 0.5) / self.components
        # The middle of a component's own share picks it, with weights that are all alike.
        alike = conditioned._replace(weights=jnp.arange(1.0, self.components + 1))

        def draws(level: Float[Array, ""]) -> Float[Array, "points d"]:
            placed = points.at[:, 0].set(level)
            return jax.vmap(alike.draw)(placed)

        returns = jax.vmap(draws)(each).reshape(-1, self.return_dim)
        return returns, jnp.repeat(weights, len(points))

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        return self.mixture(self.network(inputs)).log_density(returns)

    def log_probs(
        self,
        inputs: Float[Array, "rows inputs"],
        returns: Float[Array, "rows draws d"],
        density: Callable[[Mixture, Array], Array] = Mixture.log_density,
    ) -> Float[Array, "draws rows"]:
        """Log densities of several returns at each row, a column a row, which is faster.

        density: that of mixtures, of the same values and perhaps with other gradients.
        """
        columns = self.mixture(self.network.columns(inputs))
        return density(jax.tree.map(lambda a: a[:, None], columns), returns.T)


@dataclass(frozen=True)
class GMM(ModelSpec):
    """Conditional Gaussian mixture: weights, means and full covariances from one network.

    p(z | x, a) = sum_k w_k N(z; mu_k, L_k L_k^T). Scalar and vector returns. The recipe's
    `scale_floor`, `component_prior`, `beta` and `trend` say how it is trained.

    components: number of Gaussians.
    hidden: widths of the hidden layers.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.GMM(components=20))`.
    """

    components: int = 10
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "gmm"
    reads_codes: ClassVar[bool] = True
    has_trend: ClassVar[bool] = True

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> GMMLaw:
        """A mixture that starts out as a rough standard normal."""
        k, d = self.components, sizes.returns
        bias = Mixture.first_outputs(k, d, generator)
        trends = d if recipe.trend else 0
        network = Network(
            sizes.inputs, self.hidden, bias, generator, trends=trends, codes=sizes.codes
        )
        return GMMLaw(network, k, d, recipe.scale_floor)

    def objective(self, recipe: Resolved) -> Likelihood:
        """Maximum likelihood, with gradients that keep components and spare narrow ones."""
        return Likelihood(log_probs=ComponentGradients(recipe.component_prior, recipe.beta))
