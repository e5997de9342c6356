"""The optimiser loop: one stage of gradient training, as one compiled function."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fle.evaluation.encoding import Fitted, Frame, Rows, transitions
from fle.models.base import GradientModel, Sizes, sampled_targets

ADAM = optax.scale_by_adam()
# Targets are computed for this many rows at once: large enough for efficient matrix products,
# small enough to stay in the cache.
BLOCK_NUMBERS = 4_000_000


class TrainingState(NamedTuple):
    """Parameters as one flat vector, so that the optimiser is a handful of operations."""

    parameters: Float[Array, " p"]
    average: Float[Array, " p"]
    adam: Any


def initial_state(model: GradientModel) -> TrainingState:
    """A fresh optimiser at the model's parameters."""
    parameters = ravel_pytree(eqx.filter(model, eqx.is_inexact_array))[0]
    return TrainingState(parameters, parameters, ADAM.init(parameters))


def with_parameters(model: GradientModel, parameters: Float[Array, " p"]) -> GradientModel:
    """The model with its parameters replaced by a flat vector."""
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    return eqx.combine(ravel_pytree(arrays)[1](parameters), static)


@eqx.filter_jit
def train_stage(
    model: GradientModel,
    state: TrainingState,
    previous: Fitted,
    frame: Frame,
    rows: Rows,
    batches: Int[Array, "steps batch"],
    learning_rates: Float[Array, " steps"],
    average_rates: Float[Array, " steps"],
    discount: Float[Array, ""],
    key: PRNGKeyArray,
    *,
    sizes: Sizes,
    draws: int,
) -> tuple[TrainingState, Float[Array, " steps"]]:
    """Train one stage and return the new state and the loss of every step.

    Within a stage the previous model is fixed, so the targets of a block of steps are drawn
    together, one fresh draw for every use of a row, and the steps themselves only fit.
    """
    steps, batch_size = batches.shape

    def batch_loss(parameters: Float[Array, " p"], inputs: Any, targets: Any) -> Any:
        current = with_parameters(model, parameters)
        return jnp.mean(jax.vmap(current.loss)(inputs, targets))

    def step(state: TrainingState, block: Any) -> tuple[TrainingState, Any]:
        inputs, targets, learning_rate, average_rate = block
        loss, gradient = jax.value_and_grad(batch_loss)(state.parameters, inputs, targets)
        update, adam = ADAM.update(gradient, state.adam)
        parameters = state.parameters - learning_rate * update
        average = state.average + average_rate * (parameters - state.average)
        return TrainingState(parameters, average, adam), loss

    def train_block(state: TrainingState, block: Any) -> tuple[TrainingState, Any]:
        index, rates, averages, key = block
        inputs, targets = make_targets(
            model, previous, frame, rows, index.reshape(-1), discount, key, sizes, draws
        )
        inputs, targets = jax.tree.map(
            lambda a: a.reshape(*index.shape, *a.shape[1:]), (inputs, targets)
        )
        return jax.lax.scan(step, state, (inputs, targets, rates, averages))

    length = _block_length(model, steps, batch_size, rows, sizes, draws)
    blocks = jax.tree.map(
        lambda a: a.reshape(-1, length, *a.shape[1:]), (batches, learning_rates, average_rates)
    )
    keys = jax.random.split(key, steps // length)
    state, losses = jax.lax.scan(train_block, state, (*blocks, keys))
    return state, losses.reshape(-1)


def make_targets(
    model: GradientModel,
    previous: Fitted,
    frame: Frame,
    rows: Rows,
    index: Int[Array, " k"],
    discount: Float[Array, ""],
    key: PRNGKeyArray,
    sizes: Sizes,
    draws: int,
) -> tuple[Float[Array, "k inputs"], Any]:
    """Inputs and Bellman targets of the rows at `index`."""
    batch = transitions(rows, index, sizes, discount, previous.frame, frame)
    noise = jax.random.normal(key, (index.shape[0], model.target_noise_size(draws)))
    targets = jax.vmap(lambda t, e: model.bellman_target(previous.model, t, e))(batch, noise)
    return batch.inputs, targets


@eqx.filter_jit
def mean_loss(
    model: GradientModel,
    previous: Fitted,
    frame: Frame,
    rows: Rows,
    index: Int[Array, " k"],
    discount: Float[Array, ""],
    key: PRNGKeyArray,
    *,
    sizes: Sizes,
    draws: int,
) -> Float[Array, ""]:
    """Loss of a trained model against fresh targets of the rows at `index`."""
    inputs, targets = make_targets(
        model, previous, frame, rows, index, discount, key, sizes, draws
    )
    return jnp.mean(jax.vmap(model.loss)(inputs, targets))


@eqx.filter_jit
def draw_targets(
    previous: Fitted,
    frame: Frame,
    rows: Rows,
    index: Int[Array, " k"],
    discount: Float[Array, ""],
    key: PRNGKeyArray,
    *,
    sizes: Sizes,
) -> Float[Array, "k d"]:
    """One draw of r + discount * y for each row at `index`, in the units of `frame`."""
    batch = transitions(rows, index, sizes, discount, previous.frame, frame)
    noise = jax.random.normal(key, (index.shape[0], 1 + previous.model.noise_size))
    return jax.vmap(lambda t, e: sampled_targets(previous.model, t, e))(batch, noise)[:, 0]


def _block_length(
    model: GradientModel, steps: int, batch_size: int, rows: Rows, sizes: Sizes, draws: int
) -> int:
    """The largest number of steps that divides the stage and keeps a block small."""
    one_row = jax.eval_shape(
        lambda: make_targets(
            model,
            Fitted(model, Frame(jnp.zeros(sizes.returns), jnp.ones(sizes.returns))),
            Frame(jnp.zeros(sizes.returns), jnp.ones(sizes.returns)),
            rows,
            jnp.zeros(1, int),
            jnp.zeros(()),
            jax.random.key(0),
            sizes,
            draws,
        )
    )
    numbers = sum(leaf.size for leaf in jax.tree.leaves(one_row))
    numbers += sizes.inputs * min(draws, rows.probabilities.shape[1])
    numbers += model.target_noise_size(draws)
    most = max(1, BLOCK_NUMBERS // (numbers * batch_size))
    return max(length for length in range(1, min(most, steps) + 1) if steps % length == 0)
