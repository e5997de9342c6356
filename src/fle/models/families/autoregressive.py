"""Autoregressive mixtures: each coordinate of the return given the coordinates before it."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from fle.models.law import Sizes
from fle.models.network import ComponentGradients, Conditionals, Mixture, TriangularLaw
from fle.models.objectives import Likelihood
from fle.models.specs import ModelSpec
from fle.recipe import Resolved


class AutoregressiveLaw(TriangularLaw):
    """p(z_j | x, a, z_1 .. z_j-1) = sum_k w_k N(z_j; mu_k, s_k²)."""

    conditionals: Conditionals
    components: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    # One number picks a component, one draws from it.
    noise_a_coordinate: ClassVar[int] = 2

    def factor(self, outputs: Float[Array, " outputs"]) -> Mixture:
        """A mixture on the line, its weights as logarithms."""
        return Mixture.of_outputs(outputs, self.components, 1, self.scale_floor)

    def log_prob_of_one(self, factor: Mixture, value: Float[Array, ""]) -> Float[Array, ""]:
        """The mixture's log density."""
        return factor.log_density(value[None])

    def ready(self, factor: Mixture) -> Mixture:
        """With cumulated weights."""
        return factor.cumulated()

    def draw_one(self, factor: Mixture, uniforms: Float[Array, " 2"]) -> Float[Array, ""]:
        """From one of the components."""
        return factor.draw(uniforms)[0]


@dataclass(frozen=True)
class Autoregressive(ModelSpec):
    """A mixture for each coordinate of the return, given the coordinates before it.

    p(z | x, a) = prod_j sum_k w_k N(z_j; mu_k, s_k²), where w, mu and s depend on x, a and
    z_1 .. z_j-1. The recipe's `scale_floor`, `component_prior` and `beta` say how it is trained.

    components: number of Gaussians a coordinate.
    hidden: widths of the hidden layers of each coordinate's network.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.Autoregressive(components=5))`.
    """

    components: int = 24
    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "autoregressive"
    reads_codes: ClassVar[bool] = True

    def build(
        self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator
    ) -> AutoregressiveLaw:
        """A law that starts out as independent, roughly standard normal coordinates."""
        bias = Mixture.first_outputs(self.components, 1, generator)
        conditionals = Conditionals.build(sizes, self.hidden, bias, generator)
        return AutoregressiveLaw(conditionals, self.components, recipe.scale_floor)

    def objective(self, recipe: Resolved) -> Likelihood:
        """Maximum likelihood, with gradients that keep components and spare narrow ones."""
        return Likelihood(log_probs=ComponentGradients(recipe.component_prior, recipe.beta))
