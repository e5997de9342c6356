"""From a Dataset and action tables to the arrays that compiled code indexes."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from fle.data import Dataset
from fle.data.passes import centre_and_scale, gather, shows_next, standardised
from fle.fitting.following import Lines, Trail
from fle.models.law import Law, Sizes, placed
from fle.models.objectives import Transition
from fle.models.support import Lattice, Support, lattice_of
from fle.policies import ActionTable

# More categories than this are encoded by their code; float32 holds it exactly up to the last
# number [0022].
MOST_ONE_HOT, MOST_CODES = 128, 2**24


class Rows(NamedTuple):
    """All logged rows. Discrete observations and actions are indices, continuous ones vectors.

    observations: of the n rows, then next observations that are not those of the row after; of
        codes, which take next to nothing, all of them: logs of one size have then one shape, and
        share what is compiled.
    following: where the next observation of each row stands among them.
    next_actions: of each row, or once where all rows have the same candidates.
    """

    observations: Shaped[Array, "m ..."]
    actions: Shaped[Array, "n ..."]
    following: Int[Array, " n"]
    next_actions: Shaped[Array, "once candidates ..."]
    probabilities: Float[Array, "n candidates"]

    def candidates(self, index: Shaped[Array, " k"]) -> Shaped[Array, "k candidates ..."]:
        """Next actions of these rows."""
        if self.next_actions.shape[0] == 1:
            return jnp.broadcast_to(
                self.next_actions, (index.shape[0], *self.next_actions.shape[1:])
            )
        return self.next_actions[index]


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

    reward_origin, reward_spacing: the lattice that all rewards lie on, in the units of the data;
        a spacing of 0 where there is none.
    """

    sizes: Sizes
    observation_centre: np.ndarray
    observation_scale: np.ndarray
    action_centre: np.ndarray
    action_scale: np.ndarray
    reward_unit: np.ndarray
    reward_centre: np.ndarray
    reward_origin: np.ndarray
    reward_spacing: np.ndarray

    @classmethod
    def standardising(
        cls, data: Dataset, reward_centre: np.ndarray | None = None, *, codes: bool = False
    ) -> Self:
        """Centre and scale from the logged rows.

        codes: whether many categories are encoded by their code, not as a one-hot vector.
        """
        centre = np.zeros(data.return_dim) if reward_centre is None else reward_centre
        size = np.sqrt(np.mean(np.square(data.rewards - centre), axis=0))
        lattice = lattice_of(data.rewards, data.terminations)
        return cls(
            _sizes(data, codes=codes),
            *_centre_and_scale(data.observations),
            *_centre_and_scale(data.actions),
            reward_unit=np.where(size > 0, size, 1.0),
            reward_centre=centre,
            reward_origin=lattice.origin,
            reward_spacing=lattice.spacing,
        )

    @classmethod
    def raw(cls, data: Dataset) -> Self:
        """Everything as it is, for laws defined in the units of the data."""
        sizes = _sizes(data, codes=False)
        return cls(
            sizes,
            observation_centre=np.zeros(sizes.observation),
            observation_scale=np.ones(sizes.observation),
            action_centre=np.zeros(sizes.action),
            action_scale=np.ones(sizes.action),
            reward_unit=np.ones(sizes.returns),
            reward_centre=np.zeros(sizes.returns),
            reward_origin=np.zeros(sizes.returns),
            reward_spacing=np.zeros(sizes.returns),
        )

    def observations(self, *parts: np.ndarray) -> np.ndarray:
        """Indices, or standardised vectors; several arrays one below the other."""
        if self.sizes.discrete_observations:
            return np.concatenate(parts, dtype=np.int32, casting="same_kind")
        return standardised(parts, self.observation_centre, self.observation_scale)

    def actions(self, values: np.ndarray) -> np.ndarray:
        """Indices, or standardised vectors."""
        if self.sizes.discrete_actions:
            return values.astype(np.int32)
        return standardised([values], self.action_centre, self.action_scale)

    def rewards(self, data: Dataset) -> np.ndarray:
        """(n, d) In units of their size, in float64."""
        return (data.rewards - self.reward_centre) / self.reward_unit

    def lattice(self, gamma: float, steps: int | None) -> Lattice | None:
        """Where the sums of so many rewards lie, in the units of the data; discounted, anywhere."""
        if steps is None or (gamma != 1 and steps > 1) or not self.reward_spacing.any():
            return None
        return Lattice(steps * self.reward_origin, self.reward_spacing)

    def rows(
        self, data: Dataset, table: ActionTable, trail: Trail, *, room: int | None = None
    ) -> Rows:
        """All rows of the data with the target policy's next actions.

        room: rows that the arrays have room for, so that those of several data sets have one shape.
        """
        codes = data.observations.ndim == 1
        apart = np.flatnonzero(codes | ~shows_next(data.observations, data.next_observations))
        following = np.arange(1, len(data) + 1, dtype=np.int32)
        following[apart] = len(data) + np.arange(len(apart))
        others = gather(data.next_observations, apart)
        observations = self.observations(data.observations, others)
        candidates = self.actions(table.listed)
        sizes = [len(observations), len(data), len(candidates)]
        if room is not None:
            # Next observations may all be others than those of the rows.
            sizes = [2 * room, room, 1 if len(candidates) == 1 else room]
        return Rows(
            observations=placed(_filled_up(observations, sizes[0])),
            actions=placed(_filled_up(self.actions(data.actions), sizes[1])),
            following=placed(_filled_up(following, sizes[1])),
            next_actions=placed(_filled_up(candidates, sizes[2])),
            probabilities=placed(_filled_up(trail.probabilities, sizes[1])),
        )

    def inputs(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Encoded (observation, action) pairs, one a row."""
        return as_vectors(self.observations(observations), self.actions(actions), self.sizes)


def _filled_up(array: np.ndarray, size: int) -> np.ndarray:
    if len(array) == size:
        return array
    return np.pad(array, [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1))


def _sizes(data: Dataset, *, codes: bool) -> Sizes:
    states, actions = data.number_of_observations, data.number_of_actions
    return Sizes(
        observation=data.observations.shape[1] if states is None else states,
        action=data.actions.shape[1] if actions is None else actions,
        returns=data.return_dim,
        discrete_observations=states is not None,
        discrete_actions=actions is not None,
        coded_observations=codes and MOST_ONE_HOT < (states or 0) <= MOST_CODES,
        coded_actions=codes and MOST_ONE_HOT < (actions or 0) <= MOST_CODES,
    )


def _centre_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if values.ndim == 1:
        return np.zeros(1), np.ones(1)
    return centre_and_scale(values)


def as_vectors(observations: np.ndarray, actions: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Encoded observations and actions, as indices or vectors, as one vector a row."""
    vectors = []
    for values, size, coded in _parts(observations, actions, sizes):
        if coded:
            vectors.append(values[:, None])
        else:
            vectors.append(values if values.ndim > 1 else values[:, None] == np.arange(size))
    return np.concatenate(vectors, axis=1, dtype=np.float32)


def _parts(observations: Any, actions: Any, sizes: Sizes) -> tuple[tuple[Any, int, bool], ...]:
    """Of each its values, how many there can be, and whether their code is what a law sees."""
    return (
        (observations, sizes.observation, sizes.coded_observations),
        (actions, sizes.action, sizes.coded_actions),
    )


def as_vector(values: Shaped[Array, "..."], size: int, coded: bool) -> Float[Array, "... width"]:
    """Indices become one-hot vectors, or numbers where they are coded; vectors stay."""
    if coded:
        return values[..., None].astype(jnp.float32)
    if jnp.issubdtype(values.dtype, jnp.integer):
        return jax.nn.one_hot(values, size)
    return values


def joined(
    observations: Shaped[Array, "k ..."], actions: Shaped[Array, "k ..."], sizes: Sizes
) -> Float[Array, "k inputs"]:
    """Observations and actions, as indices or vectors, as one vector a row."""
    parts = _parts(observations, actions, sizes)
    return jnp.concatenate([as_vector(*part) for part in parts], axis=1)


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
    following = rows.observations[rows.following[lines.ends]], rows.candidates(lines.ends)
    next_observation, next_actions = (as_vector(*part) for part in _parts(*following, sizes))
    return Transition(
        inputs=joined(rows.observations[lines.rows], rows.actions[lines.rows], sizes),
        reward=(lines.rewards + discounts * centre - frame.centre) / frame.scale,
        discount=discounts * scale / frame.scale,
        next_observation=next_observation,
        next_actions=next_actions,
        probabilities=rows.probabilities[lines.ends],
    )
