"""Gaussian mixtures as a network gives them, and how their components are trained."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float
from scipy.special import ndtri as normal_quantile

from fle.models.law import cumulative_weights, pick


class Mixture(NamedTuple):
    """Component weights, as logarithms or cumulated; for each coordinate the components' means and
    entries on the diagonal of their Cholesky factors; the entries below it.

    Components are the first axis of every array. Rows of a batch are the last, if there is one:
    loops over them are long and fast.
    """

    weights: Float[Array, "k ..."]
    means: tuple[Float[Array, "k ..."], ...]
    diagonal: tuple[Float[Array, "k ..."], ...]
    below: tuple[Float[Array, "k ..."], ...]

    @classmethod
    def of_outputs(
        cls, outputs: Float[Array, "outputs ..."], components: int, dim: int, floor: float
    ) -> "Mixture":
        """From a network's outputs: a location and a scale of all components for each coordinate,
        logits, and what each component differs by.

        The diagonal is at least `floor`, so that a point mass becomes a narrow peak instead of an
        infinite density.
        """
        k, d = components, dim
        entries = d * (d - 1) // 2
        location, spread, logits, offsets, diagonal, below = parts(
            outputs, (d, d, k, k * d, k * d, k * entries)
        )
        return cls(
            logits - jax.nn.logsumexp(logits, axis=0),
            tuple(location[i] + offsets[i::d] for i in range(d)),
            tuple(floor + jax.nn.softplus(spread[i] + diagonal[i::d]) for i in range(d)),
            tuple(below[i::entries] for i in range(entries)),
        )

    @staticmethod
    def first_outputs(components: int, dim: int, generator: np.random.Generator) -> np.ndarray:
        """Outputs that make a rough standard normal."""
        k, d = components, dim
        spread_out = normal_quantile((np.arange(k) + 0.5) / k)
        means = spread_out if d == 1 else generator.standard_normal(k * d)
        rest = np.zeros(k * d + k * d * (d - 1) // 2)
        return np.concatenate([np.zeros(2 * d + k), means, rest])

    def log_density(self, returns: Float[Array, "d ..."]) -> Float[Array, "..."]:
        """log sum_k w_k N(z; mu_k, L_k L_k^T), with weights as logarithms.

        The triangular solve is unrolled, as d is small.
        """
        d = len(self.means)
        whitened: list[Float[Array, "k ..."]] = []
        for i in range(d):
            residual = returns[i] - self.means[i]
            for j, value in enumerate(whitened):
                residual = residual - self.below[_entry(i, j)] * value
            whitened.append(residual / self.diagonal[i])
        exponent = sum(value**2 for value in whitened)
        heights = self.weights - sum(jnp.log(scales) for scales in self.diagonal)
        return jax.nn.logsumexp(heights - 0.5 * exponent, axis=0) - 0.5 * d * np.log(2 * np.pi)

    def cumulated(self) -> "Mixture":
        """With cumulated weights, as `draw` needs them."""
        return self._replace(weights=cumulative_weights(self.weights))

    def draw(self, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """Pick a component by the first number, then draw from it."""
        component = pick(self.weights, uniforms[0])
        normal = ndtri(uniforms[1:])
        returns = []
        for i in range(len(self.means)):
            lower = sum(self.below[_entry(i, j)][component] * normal[j] for j in range(i))
            scale = self.diagonal[i][component]
            returns.append(self.means[i][component] + scale * normal[i] + lower)
        return jnp.stack(returns)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def parts(
    outputs: Float[Array, "outputs ..."], sizes: tuple[int, ...]
) -> list[Float[Array, "size ..."]]:
    """Slices one after another, whose gradients are written each to its place.

    XLA would put them together number by number, and ask of each which slice it is from.
    """
    return jnp.split(outputs, np.cumsum(sizes)[:-1])


def _parts_forward(outputs: Array, sizes: tuple[int, ...]) -> tuple[list[Array], Array]:
    return parts(outputs, sizes), outputs


def _parts_backward(sizes: tuple[int, ...], whole: Array, gradients: list[Array]) -> tuple[Array]:
    # Over the outputs, all of which are replaced: over zeros XLA would pad and add up.
    for start, gradient in zip(np.cumsum((0, *sizes)), gradients, strict=False):
        if gradient.shape[0]:
            whole = jax.lax.dynamic_update_slice_in_dim(whole, gradient, int(start), 0)
    return (whole,)


parts.defvjp(_parts_forward, _parts_backward)


def _entry(row: int, column: int) -> int:
    """Position of a below-diagonal entry in the packed lower triangle."""
    return row * (row - 1) // 2 + column


@dataclass(frozen=True)
class ComponentGradients:
    """Log densities of mixtures, of the same values, and with gradients that train them better.

    prior: strength of the regulariser that keeps components, in nats.
    beta: how far gradients by means are evened out.
    """

    prior: float = 0.0
    beta: float = 0.0

    def __call__(self, law: Any, inputs: Array, returns: Array) -> Array:
        """Log densities of a law made of mixtures, each of them in this way."""
        return law.log_probs(inputs, returns, self.of)

    def of(self, mixture: Mixture, returns: Float[Array, "d ..."]) -> Float[Array, "..."]:
        """Log densities of one or several returns for each mixture.

        Gradients are evened out first, so that the regulariser moves narrow components no more
        than others.
        """
        if self.beta > 0:
            pairs = zip(mixture.means, mixture.diagonal, strict=True)
            means = tuple(even_gradients(*pair, self.beta) for pair in pairs)
            mixture = mixture._replace(means=means)
        densities = mixture.log_density(returns)
        if self.prior > 0:
            densities = densities - self.prior * from_returns(mixture, returns)
        return densities


@jax.custom_jvp
def from_returns(mixture: Mixture, returns: Float[Array, "d ..."]) -> Float[Array, ""]:
    """Zero, with the gradient of `distance_from`."""
    return jnp.zeros(())


@from_returns.defjvp
def _from_returns_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # The distance itself is never worked out, with a logarithm for every component and return.
    return from_returns(*primals), jax.jvp(distance_from, primals, tangents)[1]


def distance_from(mixture: Mixture, returns: Float[Array, "d ..."]) -> Float[Array, ""]:
    """A distance of every component from the returns, and of the weights from equal ones.

    A narrow component far from all returns explains none of them, so their likelihood never moves
    it again. Where returns are sure at one stage and spread at the next, most would be lost for
    good. The distance is the negative log density of a Cauchy distribution at the component: what
    is unused waits where the returns of the row are, where a little weight does no harm. Its
    gradient is bounded, and hardly felt by a component that explains any returns, however rare
    and far they are. The arrays of the mixture stretch to those of the returns.
    """
    away = -jnp.mean(mixture.weights)
    for means, scales, values in zip(mixture.means, mixture.diagonal, returns, strict=True):
        distance = jnp.log1p(((values - means) / scales) ** 2)
        away += (jnp.mean(distance) + jnp.mean(jnp.log(scales))) / len(mixture.means)
    return away


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def even_gradients(
    means: Float[Array, "*shape"], scales: Float[Array, "*shape"], beta: float
) -> Float[Array, "*shape"]:
    """The means of Gaussians as they are, but gradients by them times `scales` to 2 beta.

    A likelihood's gradient by a mean is as steep as the component is narrow, and so is its noise.
    With beta = 1/2 that noise is the same for all, as it is by weights and spreads already, and
    narrow components no longer drown what the others and rare rows have to say. Seitzer, Tavakoli,
    Antic, Martius (2022), for one Gaussian.
    """
    return means


even_gradients.defvjp(
    lambda means, scales, beta: (means, scales),
    lambda beta, scales, gradients: (gradients * scales ** (2 * beta), jnp.zeros_like(scales)),
)
