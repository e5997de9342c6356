"""The contract of a conditional return model, written for one example in standardised units.

A model never sees the units of the returns: the loop hands it targets that are centred and scaled,
and a Bellman update in those units is still affine, `z = reward + discount * y`.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fle.errors import ModelError


class Sizes(NamedTuple):
    """Widths of what a model is conditioned on and of what it describes."""

    observation: int
    action: int
    returns: int
    discrete_observations: bool
    discrete_actions: bool

    @property
    def inputs(self) -> int:
        """Width of an encoded (observation, action)."""
        return self.observation + self.action


class Transition(NamedTuple):
    """One logged row, encoded: reward and discount are in the model's units.

    `discount` is 0 where the row terminated. The candidates are the actions the target policy may
    take at the next observation.
    """

    inputs: Float[Array, " inputs"]
    reward: Float[Array, " d"]
    discount: Float[Array, " d"]
    next_observation: Float[Array, " observation"]
    next_actions: Float[Array, "candidates action"]
    probabilities: Float[Array, " candidates"]

    def next_inputs(self, actions: Float[Array, "k action"]) -> Float[Array, "k inputs"]:
        """The next observation joined with each of the actions."""
        repeated = jnp.broadcast_to(
            self.next_observation, (actions.shape[0], self.next_observation.shape[0])
        )
        return jnp.concatenate([repeated, actions], axis=1)


class ReturnModel(eqx.Module):
    """A conditional law of returns that can be sampled."""

    @property
    @abstractmethod
    def noise_size(self) -> int:
        """How many standard normal numbers `sample` consumes."""

    @abstractmethod
    def sample(
        self, inputs: Float[Array, " inputs"], noise: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """One return: a deterministic function of the inputs and of standard normal noise."""


class DensityModel(ReturnModel):
    """A model that also has a density."""

    @abstractmethod
    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""


class GradientModel(ReturnModel):
    """A model trained by stochastic gradients on `loss(inputs, bellman_target(...))`."""

    @abstractmethod
    def target_noise_size(self, draws: int) -> int:
        """How many standard normal numbers `bellman_target` consumes for `draws` draws a row."""

    @abstractmethod
    def bellman_target(
        self, previous: Self, transition: Transition, noise: Float[Array, " noise"]
    ) -> Any:
        """What the loss needs to know of r + discount * y, y from the previous model."""

    @abstractmethod
    def loss(self, inputs: Float[Array, " inputs"], target: Any) -> Float[Array, ""]:
        """The loss of one row against its Bellman target."""


class LikelihoodModel(GradientModel, DensityModel):
    """A density, trained by the likelihood of sampled targets."""

    def target_noise_size(self, draws: int) -> int:
        """One number a draw picks the action, the rest draw the return."""
        return draws * (1 + self.noise_size)

    def bellman_target(
        self, previous: Self, transition: Transition, noise: Float[Array, " noise"]
    ) -> Float[Array, "draws d"]:
        """Draws of r + discount * y with a' ~ policy and y ~ previous(x', a')."""
        return sampled_targets(previous, transition, noise)

    def loss(
        self, inputs: Float[Array, " inputs"], target: Float[Array, "draws d"]
    ) -> Float[Array, ""]:
        """Negative log likelihood, averaged over the draws."""
        return -jnp.mean(jax.vmap(lambda z: self.log_prob(inputs, z))(target))


class ExactModel(ReturnModel):
    """A model whose maximum-likelihood fit is computed in closed form or by a convex solve.

    Such a class is defined in the units of the data: its spec says `standardised = False`.
    """

    @abstractmethod
    def refit(
        self, previous: Self, transitions: Transition, weights: Float[Array, " rows"]
    ) -> Self:
        """The maximum-likelihood fit to the Bellman targets of all rows (leading axis: rows).

        Called outside compiled code, so that it can look at the data and refuse it.
        """


class ModelSpec(Protocol):
    """Hyperparameters of a model family: a frozen dataclass that builds the model."""

    name: ClassVar[str]
    standardised: ClassVar[bool]
    frame: ClassVar[Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]]

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> ReturnModel:
        """A fresh model for data of these sizes."""


def sampled_targets(
    previous: ReturnModel, transition: Transition, noise: Float[Array, " noise"]
) -> Float[Array, "draws d"]:
    """Draws of r + discount * y; the actions of one row are drawn systematically, not one by one.

    Systematic draws give every action its expected count up to one, which costs nothing and
    removes most of the variance over actions.
    """
    noise = noise.reshape(-1, 1 + previous.noise_size)
    draws = noise.shape[0]
    if transition.probabilities.shape[0] == 1:
        inputs = transition.next_inputs(transition.next_actions)[0]
        returns = jax.vmap(lambda e: previous.sample(inputs, e))(noise[:, 1:])
    else:
        levels = (ndtr(noise[0, 0]) + jnp.arange(draws)) / draws
        picks = pick(transition.probabilities, levels)
        inputs = transition.next_inputs(transition.next_actions[picks])
        returns = jax.vmap(previous.sample)(inputs, noise[:, 1:])
    return transition.reward + transition.discount * returns


def pick(
    probabilities: Float[Array, " k"], levels: Float[Array, "*shape"]
) -> Int[Array, "*shape"]:
    """Index whose cumulative probability first exceeds each level in [0, 1]: an inverse CDF."""
    cumulative = jnp.cumsum(probabilities)
    below = cumulative <= jnp.asarray(levels)[..., None] * cumulative[-1]
    return jnp.minimum(jnp.sum(below, axis=-1), probabilities.shape[0] - 1)


def candidate_outputs(
    function: Callable[[Float[Array, " inputs"]], Any], transition: Transition
) -> Any:
    """The function at every candidate next input: how a closed-form target sees the policy."""
    return jax.vmap(function)(transition.next_inputs(transition.next_actions))


def moments_frame(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale of unbounded models: mean and standard deviation."""
    return samples.mean(axis=0), _positive(samples.std(axis=0), samples)


def range_frame(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half-width of models on [-1, 1]: the sampled range and a margin."""
    low, high = samples.min(axis=0), samples.max(axis=0)
    return (low + high) / 2, _positive(RANGE_MARGIN * (high - low) / 2, samples)


def identity_frame(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Models that are defined in the units of the data."""
    return np.zeros(samples.shape[1]), np.ones(samples.shape[1])


RANGE_MARGIN = 1.1


def _positive(scale: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Constant returns have no spread: their scale is a hundredth of their size."""
    size = np.abs(samples).max(axis=0)
    return np.where(scale > 1e-5 * size, scale, np.where(size > 0, 1e-2 * size, 1.0))


def require_scalar(model: str, returns: int) -> None:
    """Refuse vector returns where a model has no meaning for them."""
    if returns != 1:
        raise ModelError(
            f"{model} models scalar returns only, and these returns have {returns} coordinates. "
            "Use GMM, Histogram or Categorical, or evaluate one reward at a time."
        )


def grid_cells(model: str, per_dimension: int, returns: int, limit: int) -> int:
    """Number of cells of a full grid, refused where it cannot be held or learned."""
    cells = per_dimension**returns
    if cells > limit:
        raise ModelError(
            f"{model} would need {per_dimension}^{returns} = {cells:,} cells for a return of "
            f"{returns} coordinates (at most {limit:,}). Use fewer cells a coordinate, or GMM, "
            "whose size does not grow with the dimension."
        )
    return cells
