"""From a Dataset and action tables to the arrays that compiled code indexes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from fle.data import Dataset
from fle.data.passes import centre_and_scale
from fle.models.law import Law, Sizes
from fle.models.objectives import Transition
from fle.policies import ActionTable
from fle.recipe import BEYOND, SLACK


class Rows(NamedTuple):
    """All logged rows. Discrete observations and actions are indices, continuous ones vectors."""

    observations: Shaped[Array, "n ..."]
    actions: Shaped[Array, "n ..."]
    rewards: Float[Array, "n d"]
    continues: Float[Array, " n"]
    next_observations: Shaped[Array, "n ..."]
    next_actions: Shaped[Array, "n candidates ..."]
    probabilities: Float[Array, "n candidates"]


class Frame(NamedTuple):
    """Centre and scale of the returns a law describes, in reward units of the encoder."""

    centre: Float[Array, " d"]
    scale: Float[Array, " d"]


class Limits(NamedTuple):
    """Least and largest return that rewards allow, in reward units of the encoder."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]


class Fitted(NamedTuple):
    """A law and the frame it was trained in; as the previous fit, the limits of its returns."""

    law: Law
    frame: Frame
    limits: Limits | tuple[()] = ()

    def sample(
        self, inputs: Float[Array, " inputs"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """One return, out of the frame."""
        return self.frame.centre + self.frame.scale * self.law.sample(inputs, uniforms)


@dataclass(frozen=True)
class Encoder:
    """Standardises observations, continuous actions and the size of rewards, in float64.

    Rewards are only divided, never centred: what a constant reward adds to a return depends on how
    long the episode lasts.
    """

    sizes: Sizes
    observation_centre: np.ndarray
    observation_scale: np.ndarray
    action_centre: np.ndarray
    action_scale: np.ndarray
    reward_unit: np.ndarray

    @classmethod
    def standardising(cls, data: Dataset) -> Self:
        """Centre and scale from the logged rows."""
        size = np.sqrt(np.mean(np.square(data.rewards), axis=0))
        return cls(
            _sizes(data),
            *_centre_and_scale(data.observations),
            *_centre_and_scale(data.actions),
            reward_unit=np.where(size > 0, size, 1.0),
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

    def rows(self, data: Dataset, table: ActionTable) -> Rows:
        """All rows of the data with the target policy's next actions."""
        return Rows(
            observations=jnp.asarray(self.observations(data.observations)),
            actions=jnp.asarray(self.actions(data.actions)),
            rewards=jnp.asarray((data.rewards / self.reward_unit).astype(np.float32)),
            continues=jnp.asarray((~data.terminations).astype(np.float32)),
            next_observations=jnp.asarray(self.observations(data.next_observations)),
            next_actions=jnp.asarray(self.actions(table.actions)),
            probabilities=jnp.asarray(table.probabilities.astype(np.float32)),
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
    rows: Rows,
    index: Int[Array, " batch"],
    sizes: Sizes,
    discount: Float[Array, ""],
    previous: Frame,
    limits: Limits | tuple[()],
    frame: Frame,
) -> Transition:
    """The rows at `index`, with the Bellman update expressed in the units of `frame`.

    With y' = (y - c0)/s0 in the previous frame and z' = (z - c)/s in this one, z = r + g y reads
    z' = (r + g c0 - c)/s + (g s0/s) y'.
    """
    discounts = (discount * rows.continues[index])[:, None]
    centre, scale = previous
    low_high = [
        jnp.broadcast_to((limit - centre) / scale, discounts.shape[:1] + centre.shape)
        for limit in limits
    ]
    return Transition(
        inputs=joined(rows.observations[index], rows.actions[index], sizes),
        reward=(rows.rewards[index] + discounts * centre - frame.centre) / frame.scale,
        discount=discounts * scale / frame.scale,
        next_observation=as_vector(rows.next_observations[index], sizes.observation),
        next_actions=as_vector(rows.next_actions[index], sizes.action),
        probabilities=rows.probabilities[index],
        limits=(low_high[0] - SLACK, low_high[1] + SLACK) if limits else (),
    )


def return_limits(rows: Rows, discounts: Sequence[float]) -> list[Limits]:
    """Limits of the returns before each stage of these discounts; at first nothing was earned.

    A row adds its reward to what was possible before, unless it terminated.
    """
    rewards, continues = np.asarray(rows.rewards, np.float64), np.asarray(rows.continues) > 0
    beyond = BEYOND * np.ptp(rewards, axis=0)
    least = _extremes(rewards - beyond, continues, np.min)
    largest = _extremes(rewards + beyond, continues, np.max)
    low = high = np.zeros(rewards.shape[1])
    limits = []
    for discount in discounts:
        limits.append(Limits(jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)))
        low = np.min([end + go_on * discount * low for end, go_on in least], axis=0)
        high = np.max([end + go_on * discount * high for end, go_on in largest], axis=0)
    return limits


def _extremes(
    rewards: np.ndarray, continues: np.ndarray, extreme: Callable[..., np.ndarray]
) -> list[tuple[np.ndarray, int]]:
    """The extreme reward of rows that terminated and of those that did not, where there are any."""
    kinds = ((rewards[~continues], 0), (rewards[continues], 1))
    return [(extreme(values, axis=0), go_on) for values, go_on in kinds if len(values)]
