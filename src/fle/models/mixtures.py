"""Rules by which mixtures are trained that change slopes and no value."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def drawn_to_standard(
    log_weights: Float[Array, "k ..."],
    means: Float[Array, "k ..."],
    scales: Float[Array, "k ..."],
) -> Float[Array, ""]:
    """Zero, but with a slope: training draws components to equal weights and a standard normal law.

    A narrow component far from all returns explains none of them, so their likelihood never moves
    it again. Where returns are sure at one stage and spread at the next, most would be lost for
    good. The force is hardly felt by a component that explains any returns.
    """
    away = 0.5 * (jnp.mean(means**2) + jnp.mean(jnp.log(scales) ** 2))
    distance = away - jnp.mean(log_weights)
    return distance - jax.lax.stop_gradient(distance)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def even_slopes(
    means: Float[Array, "*shape"], scales: Float[Array, "*shape"], beta: float
) -> Float[Array, "*shape"]:
    """The means of Gaussians as they are, but slopes by them multiplied by `scales` to 2 beta.

    A likelihood's slope by a mean is as steep as the component is narrow, and so is its noise. With
    beta = 1/2 that noise is the same for all, as it is by weights and spreads already, and narrow
    components no longer drown what the others and rare rows have to say. Seitzer, Tavakoli, Antic,
    Martius (2022), for one Gaussian.
    """
    return means


even_slopes.defvjp(
    lambda means, scales, beta: (means, scales),
    lambda beta, scales, slopes: (slopes * scales ** (2 * beta), jnp.zeros_like(scales)),
)
