"""A model of one's own, a conditional Laplace distribution, on a problem whose answer is known.

The state moves as x' = 0.8 x + 0.4 a and each step earns -x². The last reward has Laplace noise
whose scale depends on the state, so the return that follows (x, a) is a Laplace variable.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import fle
from fle.models import ModelSpec
from fle.models.law import Density, Sizes
from fle.models.network import Network
from fle.recipe import Resolved


class LocationAndScale(NamedTuple):
    """Of every coordinate."""

    location: Float[Array, " d"]
    scale: Float[Array, " d"]


class LaplaceLaw(Density):
    """p(z | x, a) = prod_j exp(-|z_j - m_j(x, a)| / b_j(x, a)) / (2 b_j(x, a))."""

    network: Network
    return_dim: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> LocationAndScale:
        """Location and scale at one input."""
        location, raw = jnp.split(self.network(inputs), 2)
        return LocationAndScale(location, self.scale_floor + jax.nn.softplus(raw))

    def draw(
        self, conditioned: LocationAndScale, uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """The inverse distribution function; each tail from its own end, to keep its digits."""
        tail = jnp.minimum(uniforms, 1 - uniforms)
        side = jnp.where(uniforms < 0.5, 1.0, -1.0)
        return conditioned.location + side * conditioned.scale * jnp.log(2 * tail)

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        location, scale = self.condition(inputs)
        return -jnp.sum(jnp.abs(returns - location) / scale + jnp.log(2 * scale))


@dataclass(frozen=True)
class Laplace(ModelSpec):
    """One Laplace distribution a coordinate, location and scale from a network.

    hidden: widths of the hidden layers.
    """

    hidden: tuple[int, ...] = (64, 64)

    name: ClassVar[str] = "laplace"

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> LaplaceLaw:
        """A law that starts out centred, with scale about 0.7."""
        bias = np.zeros(2 * sizes.returns)
        network = Network(sizes.inputs, self.hidden, bias, generator)
        return LaplaceLaw(network, sizes.returns, recipe.scale_floor)


HORIZON = 4
START = 1.0


def move(state, action):
    return 0.8 * state + 0.4 * action


def noise_scale(state):
    return 0.3 + 0.3 * state**2


def target_policy(observations):
    return -0.5 * observations


def logged_data(rows_a_step, seed):
    generator = np.random.default_rng(seed)
    steps = np.repeat(np.arange(HORIZON), rows_a_step)
    states = generator.uniform(-1.5, 1.5, len(steps))
    actions = generator.uniform(-1.0, 1.0, len(steps))
    last = steps == HORIZON - 1
    noise = generator.laplace(0, noise_scale(states))
    return fle.Dataset(
        observations=states[:, None],
        actions=actions[:, None],
        rewards=-(states**2) + np.where(last, noise, 0),
        next_observations=move(states, actions)[:, None],
        terminations=last,
        steps=steps,
        initial_observations=[[START]],
    )


def true_distribution():
    """Location and scale of the return from the initial state: everything but the noise is sure."""
    state, location = START, 0.0
    for step in range(HORIZON):
        location -= state**2
        if step < HORIZON - 1:
            state = move(state, target_policy(state))
    return location, noise_scale(state)


def main():
    result = fle.evaluate(
        logged_data(20_000, seed=0),
        target_policy,
        horizon=HORIZON,
        model=Laplace(),
        recipe=fle.Recipe(steps=1000),
        seed=0,
    )
    location, scale = true_distribution()
    returns = result.returns
    # Of a Laplace variable: the q-quantile below the middle is m + b log(2q), and the mean beneath
    # it is lower by another b.
    rows = [
        ("mean", returns.mean(), location),
        ("standard deviation", returns.std(), np.sqrt(2) * scale),
        ("5% quantile", returns.quantile(0.05), location + scale * np.log(0.1)),
        ("CVaR at 10%", returns.cvar(0.1), location + scale * (np.log(0.2) - 1)),
        ("log density at mean", returns.log_prob(location), -np.log(2 * scale)),
    ]
    print(f"{'':20} {'estimate':>9} {'truth':>9}")
    for name, estimate, truth in rows:
        print(f"{name:20} {estimate:9.3f} {truth:9.3f}")


if __name__ == "__main__":
    main()
