"""What a law is: a conditional distribution of returns, written for one example.

A law never sees the units of the returns: the loop hands it targets that are centred and scaled.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# How far uniform numbers stay from 0 and 1, where quantile functions are infinite.
TINY = 2.0**-24


class Sizes(NamedTuple):
    """Widths of what a law is conditioned on and of what it describes.

    observation, action: numbers of a vector, or how many there are if they are discrete.
    coded_observations, coded_actions: whether a network sees the code of a discrete one, and not a
        one-hot vector, as suits where there are many (decision 0022).
    """

    observation: int
    action: int
    returns: int
    discrete_observations: bool
    discrete_actions: bool
    coded_observations: bool = False
    coded_actions: bool = False

    @property
    def inputs(self) -> int:
        """Width of an encoded (observation, action)."""
        return self._observation_width + (1 if self.coded_actions else self.action)

    @property
    def features(self) -> int:
        """Numbers and categories in them: as many rows has a network's first layer."""
        return self.observation + self.action

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        """The columns of an encoded (observation, action) that are codes, and of how many."""
        columns = (
            (self.coded_observations, 0, self.observation),
            (self.coded_actions, self._observation_width, self.action),
        )
        return tuple((column, number) for coded, column, number in columns if coded)

    @property
    def _observation_width(self) -> int:
        return 1 if self.coded_observations else self.observation


class Law(eqx.Module):
    """A conditional distribution of returns that can be sampled.

    Sampling has two parts: `condition` works out the distribution at one input, which may be
    costly, and `draw` turns it and uniform noise into a return, which should be cheap.

    bounded: whether all its returns lie in [-1, 1], so that its frame must hold every target.
    has_density: whether it has `log_prob`.
    """

    bounded: ClassVar[bool] = False
    has_density: ClassVar[bool] = False

    @property
    @abstractmethod
    def noise_size(self) -> int:
        """How many uniform numbers `draw` consumes."""

    @abstractmethod
    def condition(self, inputs: Float[Array, " inputs"]) -> Any:
        """Everything `draw` needs to know about the distribution at one input."""

    @abstractmethod
    def draw(self, conditioned: Any, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """One return: a deterministic function of `condition`'s answer and numbers in (0, 1)."""

    def sample(
        self, inputs: Float[Array, " inputs"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """One return at one input."""
        return self.draw(self.condition(inputs), uniforms)

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return, where there is one."""
        raise TypeError(f"{type(self).__name__} has no density.")


class Density(Law):
    """A law with a density, whose gradient is its gradient: nothing else is hidden in it."""

    has_density: ClassVar[bool] = True

    @abstractmethod
    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""

    def log_probs(
        self, inputs: Float[Array, "rows inputs"], returns: Float[Array, "rows draws d"]
    ) -> Float[Array, "..."]:
        """Log densities of several returns at each row, in any order.

        A law may have a faster way than this.
        """
        return jax.vmap(lambda x, zs: jax.vmap(lambda z: self.log_prob(x, z))(zs))(inputs, returns)


def placed(values: np.ndarray) -> Array:
    """NumPy's array as one of JAX, with single precision.

    `jnp.asarray`, `zeros` and their like compile a program for every new shape.
    """
    single = values.astype(np.float32) if values.dtype == np.float64 else values
    return jax.device_put(single)


def shifted_lattice(shift: Float[Array, " k"], points: int) -> Float[Array, "points k"]:
    """Rank-1 lattice points, all moved by the same shift modulo 1, inside (0, 1)."""
    generators = 2 * np.arange(shift.shape[0]) + 1
    steps = np.arange(points)[:, None] * generators / points % 1
    moved = shift + jnp.asarray(steps, shift.dtype)
    return jnp.clip(moved - jnp.floor(moved), TINY, 1 - TINY)


def cumulative_weights(logits: Float[Array, " k"]) -> Float[Array, " k"]:
    """Softmax, summed up to each entry: as a matrix product, which is faster than a scan."""
    return jax.nn.softmax(logits) @ np.triu(np.ones((logits.size, logits.size), np.float32))


def pick(cumulative: Float[Array, " k"], levels: Float[Array, "*shape"]) -> Int[Array, "*shape"]:
    """Index whose cumulative weight first exceeds each level in [0, 1]: an inverse CDF."""
    below = cumulative <= jnp.asarray(levels)[..., None] * cumulative[-1]
    return jnp.minimum(jnp.sum(below, axis=-1), cumulative.shape[0] - 1)


def over_draws(
    known: Callable[[Float[Array, " inputs"]], Any],
    value: Callable[[Any, Any], Float[Array, ""]],
    inputs: Float[Array, "rows inputs"],
    draws: Any,
) -> Float[Array, " rows*draws"]:
    """`value(known(x), z)` for all rows x and all draws z of a row, which are the second axis.

    Rows and draws are one axis to the networks within `value`. Products with weights are slow to
    differentiate where there are two.
    """
    number = jax.tree.leaves(draws)[0].shape[1]
    repeated = jax.tree.map(lambda a: jnp.repeat(a, number, axis=0), jax.vmap(known)(inputs))
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), draws)
    return jax.vmap(value)(repeated, flat)
