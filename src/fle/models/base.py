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
from jaxtyping import Array, Float, Int

from fle.models.frames import FrameRule

# How far uniform numbers stay from 0 and 1, where quantile functions are infinite.
TINY = 2.0**-24


class Sizes(NamedTuple):
    """Widths of what a model is conditioned on and of what it describes.

    discounted: whether fits are repeated towards a fixed point, so that errors feed on themselves.
    """

    observation: int
    action: int
    returns: int
    discrete_observations: bool
    discrete_actions: bool
    discounted: bool = False

    @property
    def inputs(self) -> int:
        """Width of an encoded (observation, action)."""
        return self.observation + self.action


class Transition(NamedTuple):
    """One logged row, encoded: reward and discount are in the model's units.

    `discount` is 0 where the row terminated. The candidates are the actions the target policy may
    take at the next observation. `limits`, where given, are the least and the largest next return
    that the logged rewards allow. `noise` holds as many uniform numbers as the model asks for by
    its `prepare_noise_size`.
    """

    inputs: Float[Array, " inputs"]
    reward: Float[Array, " d"]
    discount: Float[Array, " d"]
    next_observation: Float[Array, " observation"]
    next_actions: Float[Array, "candidates action"]
    probabilities: Float[Array, " candidates"]
    limits: tuple[Float[Array, " d"], Float[Array, " d"]] | tuple[()] = ()
    noise: Float[Array, " noise"] | tuple[()] = ()

    def next_inputs(self, actions: Float[Array, "k action"]) -> Float[Array, "k inputs"]:
        """The next observation joined with each of the actions."""
        repeated = jnp.broadcast_to(
            self.next_observation, (actions.shape[0], self.next_observation.shape[0])
        )
        return jnp.concatenate([repeated, actions], axis=1)

    def thinned(self, level: Float[Array, ""], number: int) -> "Transition":
        """`number` candidates drawn by their probabilities, evenly spaced from a random level."""
        levels = (level + jnp.arange(number)) / number
        picks = pick(jnp.cumsum(self.probabilities), levels)
        return self._replace(
            next_actions=self.next_actions[picks], probabilities=jnp.full(number, 1 / number)
        )


class ReturnModel(eqx.Module):
    """A conditional law of returns that can be sampled.

    Sampling has two parts: `condition` works out the law at one input, which may be costly, and
    `draw` turns that law and uniform noise into a return, which should be cheap.

    bounded: whether all its returns lie in [-1, 1], so that its frame must hold every target.
    """

    bounded: ClassVar[bool] = False

    @property
    @abstractmethod
    def noise_size(self) -> int:
        """How many uniform numbers `draw` consumes."""

    @abstractmethod
    def condition(self, inputs: Float[Array, " inputs"]) -> Any:
        """Everything `draw` needs to know about the law at one input."""

    @abstractmethod
    def draw(self, law: Any, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """One return: a deterministic function of the law and of numbers in (0, 1)."""

    def sample(
        self, inputs: Float[Array, " inputs"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """One return at one input."""
        return self.draw(self.condition(inputs), uniforms)


class DensityModel(ReturnModel):
    """A model that also has a density."""

    @abstractmethod
    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""


class GradientModel(ReturnModel):
    """A model trained by stochastic gradients on a loss against its Bellman target.

    The target has two parts as well: `prepare` does what is the same each time a row is used, and
    `target` adds what is random.
    """

    @property
    def target_noise_size(self) -> int:
        """How many uniform numbers `target` consumes; 0 where the target is exact."""
        return 0

    @property
    def prepare_noise_size(self) -> int:
        """How many uniform numbers `prepare` finds in `transition.noise`."""
        return 0

    @abstractmethod
    def prepare(self, previous: Self, transition: Transition) -> Any:
        """What is known of r + discount * y before anything is drawn, y from `previous`.

        Between uses it is kept in float32, which holds whole numbers up to 2^24.
        """

    def target(
        self, previous: Self, prepared: Any, uniforms: Float[Array, " noise"], draws: int
    ) -> Any:
        """What the loss is measured against; an exact target is what was prepared."""
        return prepared

    @abstractmethod
    def loss(self, inputs: Float[Array, " inputs"], target: Any) -> Float[Array, ""]:
        """The loss of one row against its Bellman target."""

    def batch_loss(self, inputs: Float[Array, "rows inputs"], targets: Any) -> Float[Array, ""]:
        """The mean loss of a batch, where there is a faster way than row by row."""
        return jnp.mean(jax.vmap(self.loss)(inputs, targets))


class NextLaws(NamedTuple):
    """The laws of the next return, one for each candidate action, and the update to apply."""

    laws: Any
    probabilities: Float[Array, " candidates"]
    reward: Float[Array, " d"]
    discount: Float[Array, " d"]
    limits: tuple[Float[Array, " d"], Float[Array, " d"]] | tuple[()] = ()


class LikelihoodModel(GradientModel, DensityModel):
    """A density, trained by the likelihood of sampled targets."""

    @property
    def target_noise_size(self) -> int:
        """One number picks the actions, the rest draw the returns."""
        return 1 + self.noise_size

    def prepare(self, previous: Self, transition: Transition) -> NextLaws:
        """The previous model's laws at all candidate next actions."""
        return next_laws(previous, transition)

    def target(
        self, previous: Self, prepared: NextLaws, uniforms: Float[Array, " noise"], draws: int
    ) -> Float[Array, "draws d"]:
        """Draws of r + discount * y with a' ~ policy and y ~ previous(x', a')."""
        return draw_updates(previous, prepared, uniforms, draws)

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


class Tuning(NamedTuple):
    """What a model changes in the default `Training`: factors, and the target draws of a row."""

    steps: float = 1.0
    learning_rate: float = 1.0
    batch_size: float = 1.0
    draws: int = 4
    weight_decay: float | None = None


class ModelSpec(Protocol):
    """Hyperparameters of a model family: a frozen dataclass that builds the model.

    It may have a `tuning: ClassVar[Tuning]`, where the default training does not suit it.
    """

    name: ClassVar[str]
    standardised: ClassVar[bool]
    frame: ClassVar[FrameRule]

    def build(self, sizes: Sizes, generator: np.random.Generator) -> ReturnModel:
        """A fresh model for data of these sizes."""


def next_laws(previous: ReturnModel, transition: Transition) -> NextLaws:
    """The laws of the previous model at all candidate next actions of one row."""
    laws = candidate_outputs(previous.condition, transition)
    return NextLaws(
        laws,
        transition.probabilities,
        transition.reward,
        transition.discount,
        transition.limits,
    )


def draw_updates(
    model: ReturnModel, prepared: NextLaws, uniforms: Float[Array, " noise"], draws: int
) -> Float[Array, "draws d"]:
    """Draws of r + discount * y for one row.

    The draws form a lattice, shifted at random: each of them is distributed as it should be, and
    together they cover the actions and the noise evenly, so few of them go a long way. What a
    model says beyond the limits is impossible, and would come back at every stage.
    """
    points = shifted_lattice(uniforms, draws)
    if prepared.probabilities.shape[0] == 1:
        law = jax.tree.map(lambda a: a[0], prepared.laws)
        returns = jax.vmap(lambda u: model.draw(law, u))(points[:, 1:])
    else:
        picks = pick_actions(prepared, points)
        laws = jax.tree.map(lambda a: a[picks], prepared.laws)
        returns = jax.vmap(model.draw)(laws, points[:, 1:])
    return prepared.reward + prepared.discount * jnp.clip(returns, *prepared.limits)


def pick_actions(prepared: NextLaws, points: Float[Array, "points noise"]) -> Int[Array, " points"]:
    """Which candidate action each point draws its return from."""
    return pick(jnp.cumsum(prepared.probabilities), points[:, 0])


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


def candidate_outputs(
    function: Callable[[Float[Array, " inputs"]], Any], transition: Transition
) -> Any:
    """The function at every candidate next input: how a closed-form target sees the policy."""
    return jax.vmap(function)(transition.next_inputs(transition.next_actions))
