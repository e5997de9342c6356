"""Conditional Gaussian mixtures with full covariances."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float
from scipy.special import ndtri as normal_quantile

from fle.models.base import LikelihoodModel, Sizes, Tuning, cumulative_weights, pick
from fle.models.frames import FrameRule, moments_frame
from fle.models.hyperparameters import Hyperparameters
from fle.models.mixtures import drawn_to_standard, even_slopes
from fle.models.network import Network


class Mixture(NamedTuple):
    """Component weights in some form; for each coordinate the components' means and entries on the
    diagonal of their Cholesky factors; the entries below it.

    Components are the first axis of every array. Rows of a batch are the last, if there is one:
    loops over them are long and fast.
    """

    weights: Float[Array, "k ..."]
    means: tuple[Float[Array, "k ..."], ...]
    diagonal: tuple[Float[Array, "k ..."], ...]
    below: tuple[Float[Array, "k ..."], ...]


class GMMModel(LikelihoodModel):
    """p(z | x, a) = sum_k w_k N(z; mu_k, L_k L_k^T), all three given by a network.

    The diagonal of L_k is at least `scale_floor` (in units of the return scale), so that a point
    mass becomes a narrow peak instead of an infinite density.
    """

    network: Network
    components: int = eqx.field(static=True)
    return_dim: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)
    pull: float = eqx.field(static=True)
    beta: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number picks the component, d draw from it."""
        return 1 + self.return_dim

    def mixture(self, outputs: Float[Array, "outputs ..."]) -> Mixture:
        """The mixture for outputs of the network, its weights as logarithms."""
        k, d = self.components, self.return_dim
        entries = d * (d - 1) // 2
        location, spread, logits, offsets, diagonal, below = jnp.split(
            outputs, np.cumsum([d, d, k, k * d, k * d])
        )
        return Mixture(
            jax.nn.log_softmax(logits, axis=0),
            tuple(location[i] + offsets[i::d] for i in range(d)),
            tuple(self.scale_floor + jax.nn.softplus(spread[i] + diagonal[i::d]) for i in range(d)),
            tuple(below[i::entries] for i in range(entries)),
        )

    def condition(self, inputs: Float[Array, " inputs"]) -> Mixture:
        """The mixture at one input, its weights cumulated."""
        mixture = self.mixture(self.network(inputs))
        return mixture._replace(weights=cumulative_weights(mixture.weights))

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of the mixture at one input."""
        mixture = self.mixture(self.network(inputs)[:, None])
        return self._log_densities(mixture, returns[:, None, None])[0, 0]

    def loss(
        self, inputs: Float[Array, " inputs"], target: Float[Array, "draws d"]
    ) -> Float[Array, ""]:
        """The loss of a batch of one."""
        return self.batch_loss(inputs[None], target[None])

    def batch_loss(
        self, inputs: Float[Array, "rows inputs"], targets: Float[Array, "rows draws d"]
    ) -> Float[Array, ""]:
        """Negative log likelihood, averaged over rows and draws; no component gets lost."""
        mixture = self.mixture(self.network.columns(inputs))
        pairs = zip(mixture.means, mixture.diagonal, strict=True)
        mixture = mixture._replace(means=tuple(even_slopes(*pair, self.beta) for pair in pairs))
        likelihood = jnp.mean(self._log_densities(mixture, targets.T))
        pairs = zip(mixture.means, mixture.diagonal, strict=True)
        pulls = [drawn_to_standard(mixture.weights, *pair) for pair in pairs]
        return self.pull * sum(pulls) / self.return_dim - likelihood

    def _log_densities(
        self, mixture: Mixture, returns: Float[Array, "d draws rows"]
    ) -> Float[Array, "draws rows"]:
        """The triangular solve is unrolled, as d is small."""
        weights, means, diagonal, below = mixture
        whitened: list[Float[Array, "k draws rows"]] = []
        for i in range(self.return_dim):
            residual = returns[i] - means[i][:, None]
            for j, value in enumerate(whitened):
                residual = residual - below[_entry(i, j)][:, None] * value
            whitened.append(residual / diagonal[i][:, None])
        exponent = sum(value**2 for value in whitened)
        heights = weights - sum(jnp.log(scales) for scales in diagonal)
        logs = jax.nn.logsumexp(heights[:, None] - 0.5 * exponent, axis=0)
        return logs - 0.5 * self.return_dim * np.log(2 * np.pi)

    def draw(self, law: Mixture, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """Pick a component, then draw from it."""
        component = pick(law.weights, uniforms[0])
        normal = ndtri(uniforms[1:])
        returns = []
        for i in range(self.return_dim):
            lower = sum(law.below[_entry(i, j)][component] * normal[j] for j in range(i))
            returns.append(law.means[i][component] + law.diagonal[i][component] * normal[i] + lower)
        return jnp.stack(returns)


def _entry(row: int, column: int) -> int:
    """Position of a below-diagonal entry in the packed lower triangle."""
    return row * (row - 1) // 2 + column


@dataclass(frozen=True)
class GMM(Hyperparameters):
    """Conditional Gaussian mixture: weights, means and full covariances from one network.

    components: number of Gaussians.
    hidden: widths of the hidden layers.
    scale_floor: least standard deviation of a component, as a share of the return scale.
    pull: how strongly components are drawn to equal weights and standard normal laws, in nats, so
        that none gets lost.
    beta: how far slopes by means are evened out between narrow and wide components; 0 follows the
        plain likelihood.
    """

    components: int = 10
    hidden: tuple[int, ...] = (64, 64)
    scale_floor: float = 0.01
    pull: float = 5e-4
    beta: float = 0.5

    name: ClassVar[str] = "gmm"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(moments_frame)
    tuning: ClassVar[Tuning] = Tuning(steps=4.0, learning_rate=0.7, batch_size=0.2)

    def build(self, sizes: Sizes, generator: np.random.Generator) -> GMMModel:
        """A mixture that starts out as a rough standard normal."""
        k, d = self.components, sizes.returns
        spread_out = normal_quantile((np.arange(k) + 0.5) / k)
        means = spread_out if d == 1 else generator.standard_normal(k * d)
        rest = np.zeros(k * d + k * d * (d - 1) // 2)
        bias = np.concatenate([np.zeros(2 * d + k), means, rest])
        trends = 0 if sizes.discounted else d
        network = Network(sizes.inputs, self.hidden, bias, generator, trends=trends)
        return GMMModel(network, k, d, self.scale_floor, self.pull, self.beta)
