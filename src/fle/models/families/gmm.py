"""Conditional Gaussian mixtures with full covariances."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Density, Sizes
from fle.models.mixtures import ComponentGradients, Mixture, as_it_is
from fle.models.network import Network
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

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        return self.mixture(self.network(inputs)).log_density(returns)

    def log_probs(
        self,
        inputs: Float[Array, "rows inputs"],
        returns: Float[Array, "rows draws d"],
        view: Callable[[Mixture, Array], Mixture] = as_it_is,
    ) -> Float[Array, "draws rows"]:
        """Log densities of several returns at each row, a column a row, which is faster.

        view: a view of the mixtures, of the same values.
        """
        columns = self.mixture(self.network.columns(inputs))
        weights, means, diagonal, below = view(columns, returns.T)
        mixture = Mixture(
            weights[:, None],
            tuple(mean[:, None] for mean in means),
            tuple(scale[:, None] for scale in diagonal),
            tuple(entry[:, None] for entry in below),
        )
        return mixture.log_density(returns.T)


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
