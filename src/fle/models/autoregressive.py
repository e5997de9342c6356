"""Autoregressive mixtures: each coordinate of the return given the coordinates before it."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float
from scipy.special import ndtri as normal_quantile

from fle.models.base import Sizes, Tuning, cumulative_weights, pick
from fle.models.conditionals import Conditionals, TriangularModel
from fle.models.frames import FrameRule, moments_frame
from fle.models.hyperparameters import Hyperparameters
from fle.models.mixtures import drawn_to_standard, even_slopes


class Components(NamedTuple):
    """A mixture of normal laws on the line; its weights as logarithms or cumulated."""

    weights: Float[Array, " k"]
    means: Float[Array, " k"]
    scales: Float[Array, " k"]


class AutoregressiveModel(TriangularModel):
    """p(z_j | x, a, z_1 .. z_j-1) = sum_k w_k N(z_j; mu_k, s_k²)."""

    conditionals: Conditionals
    scale_floor: float = eqx.field(static=True)
    pull: float = eqx.field(static=True)
    beta: float = eqx.field(static=True)

    # One number picks a component, one draws from it.
    noise_a_coordinate: ClassVar[int] = 2

    def law(self, outputs: Float[Array, " outputs"]) -> Components:
        """A location and a scale of all components, and what each differs from them."""
        location, spread, logits, offsets, scales = jnp.split(
            outputs, np.cumsum([1, 1, *[(outputs.size - 2) // 3] * 2])
        )
        return Components(
            jax.nn.log_softmax(logits),
            location + offsets,
            self.scale_floor + jax.nn.softplus(spread + scales),
        )

    def log_prob_of_one(self, law: Components, value: Float[Array, ""]) -> Float[Array, ""]:
        """The mixture's log density; training does not lose components."""
        weights, means, scales = law
        pulled = self.pull * drawn_to_standard(weights, means, scales) if self.pull else 0.0
        means = even_slopes(means, scales, self.beta)
        logs = weights - jnp.log(scales) - 0.5 * ((value - means) / scales) ** 2
        return jax.nn.logsumexp(logs) - 0.5 * np.log(2 * np.pi) - pulled

    def ready(self, law: Components) -> Components:
        """With cumulated weights."""
        return law._replace(weights=cumulative_weights(law.weights))

    def draw_one(self, law: Components, uniforms: Float[Array, " 2"]) -> Float[Array, ""]:
        """From one of the components."""
        component = pick(law.weights, uniforms[0])
        return law.means[component] + law.scales[component] * ndtri(uniforms[1])


@dataclass(frozen=True)
class Autoregressive(Hyperparameters):
    """A mixture for each coordinate of the return, given the coordinates before it.

    components: number of Gaussians a coordinate.
    hidden: widths of the hidden layers of each coordinate's network.
    scale_floor: least standard deviation of a component, as a share of the return scale.
    pull: how strongly components are drawn to equal weights and standard normal laws in discounted
        fits, in nats, so that none gets lost.
    beta: how far slopes by means are evened out between narrow and wide components; 0 follows the
        plain likelihood.
    """

    components: int = 24
    hidden: tuple[int, ...] = (64, 64)
    scale_floor: float = 0.01
    pull: float = 5e-4
    beta: float = 0.5

    name: ClassVar[str] = "autoregressive"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(moments_frame)
    tuning: ClassVar[Tuning] = Tuning(learning_rate=0.7, batch_size=0.7, draws=2)

    def build(self, sizes: Sizes, generator: np.random.Generator) -> AutoregressiveModel:
        """A model that starts out as independent, roughly standard normal coordinates."""
        k = self.components
        spread_out = normal_quantile((np.arange(k) + 0.5) / k)
        bias = np.concatenate([np.zeros(2 + k), spread_out, np.zeros(k)])
        conditionals = Conditionals.build(sizes, self.hidden, bias, generator)
        pull = self.pull if sizes.discounted else 0.0
        return AutoregressiveModel(conditionals, self.scale_floor, pull, self.beta)
