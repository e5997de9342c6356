"""The optimiser loop: one stage of gradient training, as one compiled function."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from fle.fitting.encoding import Fitted, Frame, Rows, joined, transitions
from fle.models.base import GradientModel, ReturnModel, Sizes

# Targets are drawn for blocks of about this many numbers: enough for efficient matrix products,
# few enough to stay in the cache.
BLOCK_NUMBERS = 1_000_000
TABLE_NUMBERS = 100_000_000
# Loops over batches of fewer rows end before a second thread is awake.
SHARED_ROWS = 200
# Weight decay is as given for batches of this size. Adam divides gradients by their noise, which in
# smaller batches is larger by the root of the ratio; decay is weakened as much to keep the balance.
DECAY_BATCH = 500


@cache
def optimiser() -> Any:
    """Adam on clipped gradients.

    A model narrowed to a point mass starts its next stage with enormous gradients; unclipped, Adam
    would remember them for a thousand steps and hardly move.
    """
    import optax

    return optax.chain(optax.clip_by_global_norm(5.0), optax.scale_by_adam())


class TrainingState(NamedTuple):
    """Parameters as one flat vector, so that the optimiser is a handful of operations."""

    parameters: Float[Array, " p"]
    average: Float[Array, " p"]
    adam: Any


@eqx.filter_jit
def initial_state(model: GradientModel) -> TrainingState:
    """A fresh optimiser at the model's parameters."""
    parameters = parameters_of(model)
    return TrainingState(parameters, parameters, optimiser().init(parameters))


@eqx.filter_jit
def parameters_of(model: ReturnModel) -> Float[Array, " p"]:
    """All parameters of a model as one flat vector."""
    return ravel_pytree(eqx.filter(model, eqx.is_inexact_array))[0]


@eqx.filter_jit
def with_parameters(model: GradientModel, parameters: Float[Array, " p"]) -> GradientModel:
    """The model with its parameters replaced by a flat vector."""
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    return eqx.combine(ravel_pytree(arrays)[1](parameters), static)


def _weights_only(model: GradientModel) -> Float[Array, " p"]:
    """One for the entries of weight matrices, zero for biases, which say where returns are."""
    arrays = eqx.filter(model, eqx.is_inexact_array)
    return ravel_pytree(jax.tree.map(lambda a: jnp.full(a.shape, float(a.ndim > 1)), arrays))[0]


def train_stage(
    model: GradientModel,
    state: TrainingState,
    previous: Fitted,
    frame: Frame,
    rows: Rows,
    batches: Int[Array, "steps batch"],
    stage_rows: Int[Array, " used"],
    learning_rates: Float[Array, " steps"],
    average_rates: Float[Array, " steps"],
    discount: Float[Array, ""],
    weight_decay: Float[Array, ""],
    key: PRNGKeyArray,
    *,
    sizes: Sizes,
    draws: int,
) -> tuple[TrainingState, Float[Array, " steps"]]:
    """Train one stage and return the new state and the loss of every step.

    batches: for every step, positions in `stage_rows`, which are rows of the data.

    Within a stage the previous model is fixed. What does not change between two uses of a row is
    therefore worked out once for all rows of the stage, if there are few enough, and the targets
    of a block of steps are drawn together, afresh for every use of a row.
    """
    update = Update(model, previous, frame, rows, discount, sizes, draws)
    steps, batch_size = batches.shape
    decay = weight_decay * math.sqrt(batch_size / DECAY_BATCH) * _weights_only(model)
    number, tabulated = update.plan(steps, batch_size, stage_rows.shape[0])
    table_key, key = jax.random.split(key)
    if tabulated:
        table, read = update.table(stage_rows, number * batch_size, table_key)

    def batch_loss(parameters: Float[Array, " p"], inputs: Any, targets: Any) -> Any:
        return with_parameters(model, parameters).batch_loss(inputs, targets)

    def step(state: TrainingState, block: Any) -> tuple[TrainingState, Any]:
        inputs, targets, learning_rate, average_rate = block
        loss, gradient = jax.value_and_grad(batch_loss)(state.parameters, inputs, targets)
        direction, adam = optimiser().update(gradient, state.adam)
        parameters = state.parameters - learning_rate * (direction + decay * state.parameters)
        average = state.average + average_rate * (parameters - state.average)
        return TrainingState(parameters, average, adam), loss

    def train_block(state: TrainingState, block: Any) -> tuple[TrainingState, Any]:
        positions, rates, averages, key = block
        flat = positions.reshape(-1)
        if tabulated:
            prepared = jax.vmap(read)(table[flat])
        else:
            prepare_key, key = jax.random.split(key)
            prepared = update.prepare(stage_rows[flat], prepare_key, thin=True)
        inputs, targets = jax.tree.map(
            lambda a: a.reshape(*positions.shape, *a.shape[1:]), update.complete(prepared, key)
        )
        return jax.lax.scan(step, state, (inputs, targets, rates, averages))

    blocks = jax.tree.map(
        lambda a: a.reshape(-1, number, *a.shape[1:]), (batches, learning_rates, average_rates)
    )
    keys = jax.random.split(key, steps // number)
    state, losses = jax.lax.scan(train_block, state, (*blocks, keys))
    return state, losses.reshape(-1)


def stage_training(batch_size: int) -> Callable[..., tuple[TrainingState, Float[Array, " steps"]]]:
    """`train_stage`, compiled as suits batches of this size."""
    return _compiled(shared=batch_size >= SHARED_ROWS)


@cache
def _compiled(*, shared: bool) -> Any:
    """The products of a step are too small to share among cores: waking threads costs more.

    A second fit can use the other core.

    shared: whether XLA may share the loops over a batch.
    """
    options: dict[str, bool | str] = {"xla_cpu_multi_thread_eigen": False}
    if not shared:
        options["xla_disable_hlo_passes"] = "cpu-parallel-task-assigner"
    jit: Any = eqx.filter_jit
    return jit(train_stage, compiler_options=options)


class Prepared(NamedTuple):
    """What is the same each time a row is used: observation and action, a part of the target."""

    observations: Shaped[Array, "k ..."]
    actions: Shaped[Array, "k ..."]
    target: Any


class Update(NamedTuple):
    """One stage's Bellman update: everything a target depends on but the row and the noise."""

    model: GradientModel
    previous: Fitted
    frame: Frame
    rows: Rows
    discount: Float[Array, ""]
    sizes: Sizes
    draws: int

    def prepare(self, index: Int[Array, " k"], key: PRNGKeyArray, *, thin: bool) -> Prepared:
        """All that can be known before a target is drawn.

        thin: keep at most `draws` of the candidate actions of a sampled target, drawn in proportion
            to their probability, as more could not be used.
        """
        previous: Any
        previous, before, limits = self.previous
        batch = transitions(self.rows, index, self.sizes, self.discount, before, limits, self.frame)
        candidates = self.rows.probabilities.shape[1]
        thin_key, noise_key = jax.random.split(key)
        if thin and self.model.target_noise_size > 0 and candidates > self.draws:
            shift = jax.random.uniform(thin_key, index.shape)
            batch = jax.vmap(lambda t, u: t.thinned(u, self.draws))(batch, shift)
        if size := self.model.prepare_noise_size:
            batch = batch._replace(noise=jax.random.uniform(noise_key, (*index.shape, size)))
        target = jax.vmap(lambda t: self.model.prepare(previous, t))(batch)
        return Prepared(self.rows.observations[index], self.rows.actions[index], target)

    def table(
        self, index: Int[Array, " k"], size: int, key: PRNGKeyArray
    ) -> tuple[Float[Array, "k numbers"], Callable[[Float[Array, " numbers"]], Prepared]]:
        """What is known of all rows at `index`, and how to read a line of the table.

        The numbers of a row lie side by side, as memory is slow to jump about in. Rows are prepared
        `size` at a time, to bound the memory the networks need.
        """
        size = min(size, index.shape[0])
        blocks = -(-index.shape[0] // size)
        padded = jnp.pad(index, (0, blocks * size - index.shape[0])).reshape(blocks, size)

        def lines(block: Any) -> Float[Array, "size numbers"]:
            return jax.vmap(lambda row: ravel_pytree(row)[0])(self.prepare(*block, thin=False))

        table = jax.lax.map(lines, (padded, jax.random.split(key, blocks)))
        example = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), self._shapes(thin=False))
        return table.reshape(blocks * size, -1)[: index.shape[0]], ravel_pytree(example)[1]

    def complete(
        self, prepared: Prepared, key: PRNGKeyArray
    ) -> tuple[Float[Array, "k inputs"], Any]:
        """Inputs of prepared rows, and their targets with fresh noise."""
        inputs = joined(prepared.observations, prepared.actions, self.sizes)
        noise = jax.random.uniform(key, (inputs.shape[0], self.model.target_noise_size))
        previous: Any = self.previous.model
        targets = jax.vmap(lambda p, u: self.model.target(previous, p, u, self.draws))(
            prepared.target, noise
        )
        return inputs, targets

    def plan(self, steps: int, batch_size: int, used: int) -> tuple[int, bool]:
        """How many steps make a block, and whether to prepare all rows beforehand."""
        whole, thinned = _numbers(self._shapes(thin=False)), self._shapes(thin=True)
        key = jax.eval_shape(lambda: jax.random.key(0))
        complete = _numbers(jax.eval_shape(self.complete, thinned, key))
        candidates = self.rows.probabilities.shape[1]
        uses = steps * batch_size * min(candidates, self.draws)
        tabulated = used * candidates <= uses and used * whole <= TABLE_NUMBERS
        a_row = max(whole if tabulated else _numbers(thinned), complete)
        most = max(1, BLOCK_NUMBERS // (a_row * batch_size))
        number = max(n for n in range(1, min(most, steps) + 1) if steps % n == 0)
        return number, tabulated

    def _shapes(self, *, thin: bool) -> Prepared:
        """Of what `prepare` gives for one row."""
        index = jax.ShapeDtypeStruct((1,), jnp.int32)
        key = jax.eval_shape(lambda: jax.random.key(0))
        return jax.eval_shape(partial(self.prepare, thin=thin), index, key)


def _numbers(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@eqx.filter_jit
def mean_loss(update: Update, index: Int[Array, " k"], key: PRNGKeyArray) -> Float[Array, ""]:
    """Loss of the update's model against fresh targets of the rows at `index`."""
    prepare_key, target_key = jax.random.split(key)
    prepared = update.prepare(index, prepare_key, thin=True)
    return update.model.batch_loss(*update.complete(prepared, target_key))
