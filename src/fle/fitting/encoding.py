"""From a Dataset and action tables to the arrays that compiled code indexes."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from fle.data import Dataset
from fle.data.passes import centre_and_scale
from fle.fitting.following import Lines, Trail
from fle.models.law import Law, Sizes
from fle.models.objectives import Transition
from fle.models.support import Support
from fle.policies import ActionTable


class Rows(NamedTuple):
    """All logged rows. Discrete observations and actions are indices, continuous ones vectors."""

    observations: Shaped[Array, "n ..."]
    actions: Shaped[Array, "n ..."]
    next_observations: Shaped[Array, "n ..."]
    next_actions: Shaped[Array, "n candidates ..."]
    probabilities: Float[Array, "n candidates"]


class Frame(NamedTuple):
    """Centre and scale of the returns a law describes, in reward units of the encoder."""

    centre: Float[Array, " d"]
    scale: Float[Array, " d"]


class Fitted(NamedTuple):
    """A law, the frame it was trained in, and where its returns can lie, in reward units."""

    law: Law
    frame: Frame
    support: Support

    def sample(
        self, inputs: Float[Array, " inputs"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """One return, out of the frame."""
        returns = self.frame.centre + self.frame.scale * self.law.sample(inputs, uniforms)
        return self.support.project(returns)


@dataclass(frozen=True)
class Encoder:
    """Standardises observations, continuous actions and the size of rewards, in float64.

    Rewards are centred only where they have a large offset and no episode ends early: what a
    constant reward adds to a return depends on how long the episode lasts.
    """

    sizes: Sizes
    observation_centre: np.ndarray
    observation_scale: np.ndarray
    action_centre: np.ndarray
    action_scale: np.ndarray
    reward_unit: np.ndarray
    reward_centre: np.ndarray

    @classmethod
    def standardising(cls, data: Dataset, reward_centre: np.ndarray | None = None) -> Self:
        """Centre and scale from the logged rows."""
        centre = np.zeros(data.return_dim) if reward_centre is None else reward_centre
        size = np.sqrt(np.mean(np.square(data.rewards - centre), axis=0))
        return cls(
            _sizes(data),
            *_centre_and_scale(data.observations),
            *_centre_and_scale(data.actions),
            reward_unit=np.where(size > 0, size, 1.0),
            reward_centre=centre,
        )

    @classmethod
    def raw(cls, data: Dataset) -> Self:
        """Everything as it is, for laws defined in the units of the data."""
        sizes = _sizes(data)
        return cls(
            sizes,
            observation_centre=np.zeros(sizes.observation),
            observation_scale=np.ones(sizes.observation),
            action_centre=np.zeros(sizes.action),
            action_scale=np.ones(sizes.action),
            reward_unit=np.ones(sizes.returns),
            reward_centre=np.zeros(sizes.returns),
        )

    def observations(self, values: np.ndarray) -> np.ndarray:
        """Indices, or standardised vectors."""
        if self.sizes.discrete_observations:
            return values.astype(np.int32)
        return _standardise(values, self.observation_centre, self.observation_scale)

    def actions(self, values: np.ndarray) -> np.ndarray:
        """Indices, or standardised vectors."""
        if self.sizes.discrete_actions:
            return values.astype(np.int32)
        return _standardise(values, self.action_centre, self.action_scale)

    def rewards(self, data: Dataset) -> np.ndarray:
        """(n, d) In units of their size, in float64."""
        return (data.rewards - self.reward_centre) / self.reward_unit

    def rows(self, data: Dataset, table: ActionTable, trail: Trail) -> Rows:
        """All rows of the data with the target policy's next actions."""
        return Rows(
            observations=jnp.asarray(self.observations(data.observations)),
            actions=jnp.asarray(self.actions(data.actions)),
            next_observations=jnp.asarray(self.observations(data.next_observations)),
            next_actions=jnp.asarray(self.actions(table.actions)),
            probabilities=jnp.asarray(trail.probabilities.astype(np.float32)),
        )

    def inputs(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Encoded (observation, action) pairs, one a row."""
        return as_vectors(self.observations(observations), self.actions(actions), self.sizes)


def _sizes(data: Dataset) -> Sizes:
    states, actions = data.number_of_observations, data.number_of_actions
    return Sizes(
        observation=data.observations.shape[1] if states is None else states,
        action=data.actions.shape[1] if actions is None else actions,
        returns=data.return_dim,
        discrete_observations=states is not None,
        discrete_actions=actions is not None,
    )


def _centre_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if values.ndim == 1:
        return np.zeros(1), np.ones(1)
    return centre_and_scale(values)


def _standardise(values: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return ((values.astype(np.float64) - centre) / scale).astype(np.float32)


def as_vectors(observations: np.ndarray, actions: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Encoded observations and actions, as indices or vectors, as one vector a row."""
    pairs = ((observations, sizes.observation), (actions, sizes.action))
    vectors = [
        values[:, None] == np.arange(size) if values.ndim == 1 else values for values, size in pairs
    ]
    return np.concatenate(vectors, axis=1, dtype=np.float32)


def as_vector(values: Shaped[Array, "..."], size: int) -> Float[Array, "... size"]:
    """Indices become one-hot vectors; vectors stay."""
    if jnp.issubdtype(values.dtype, jnp.integer):
        return jax.nn.one_hot(values, size)
    return values


def joined(
    observations: Shaped[Array, "k ..."], actions: Shaped[Array, "k ..."], sizes: Sizes
) -> Float[Array, "k inputs"]:
    """Observations and actions, as indices or vectors, as one vector a row."""
    vectors = as_vector(observations, sizes.observation), as_vector(actions, sizes.action)
    return jnp.concatenate(vectors, axis=1)


@eqx.filter_jit
def transitions(
    rows: Rows, lines: Lines, sizes: Sizes, previous: Fitted, frame: Frame
) -> Transition:
    """The rows of the lines, with the Bellman update expressed in the units of `frame`.

    With y' = (y - c0)/s0 in the previous frame and z' = (z - c)/s in this one, z = r + g y reads
    z' = (r + g c0 - c)/s + (g s0/s) y'.
    """
    discounts = jnp.asarray(lines.discounts)[:, None]
    centre, scale = previous.frame
    return Transition(
        inputs=joined(rows.observations[lines.rows], rows.actions[lines.rows], sizes),
        reward=(lines.rewards + discounts * centre - frame.centre) / frame.scale,
        discount=discounts * scale / frame.scale,
        next_observation=as_vector(rows.next_observations[lines.ends], sizes.observation),
        next_actions=as_vector(rows.next_actions[lines.ends], sizes.action),
        probabilities=rows.probabilities[lines.ends],
    )
