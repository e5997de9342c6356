"""The optimiser loop: one stage of gradient training, as one compiled function, which is kept."""

import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fle.fitting.following import Lines
from fle.fitting.targets import BLOCK_NUMBERS, TABLE_NUMBERS, Update
from fle.models.law import Law
from fle.recipe import DECAY_BATCH, GRADIENT_NORM

# Loops over batches of fewer rows end before a second thread is awake.
SHARED_ROWS = 200
SWITCH = "FLE_COMPILATION_CACHE"
MOST_BYTES = 512 * 2**20
# Of Adam: how much of the running means stays at a step, and what is added to the root.
MEAN_DECAY, SQUARE_DECAY, LEAST_ROOT = 0.9, 0.999, 1e-8
# Quicker compilations are not worth a file.
LEAST_SECONDS = 0.3


class Adam(NamedTuple):
    """Running means of gradients and of their squares, for a flat vector of parameters."""

    steps: Int[Array, ""]
    mean: Float[Array, " p"]
    square: Float[Array, " p"]

    @classmethod
    def of(cls, parameters: Float[Array, " p"]) -> "Adam":
        """Before the first step."""
        return cls(jnp.int32(0), jnp.zeros_like(parameters), jnp.zeros_like(parameters))

    def step(self, gradient: Float[Array, " p"]) -> "tuple[Float[Array, ' p'], Adam]":
        """The direction against which parameters move, from clipped gradients (Kingma, Ba 2015).

        A model narrowed to a point mass starts its next stage with enormous gradients; unclipped,
        Adam would remember them for a thousand steps and hardly move. What all entries share is
        one factor: a division takes as long as twenty products.
        """
        gradient = gradient * jnp.minimum(1.0, GRADIENT_NORM / jnp.sqrt(jnp.sum(gradient**2)))
        steps = self.steps + 1
        mean = MEAN_DECAY * self.mean + (1 - MEAN_DECAY) * gradient
        square = SQUARE_DECAY * self.square + (1 - SQUARE_DECAY) * gradient**2
        unbiased = 1 / (1 - MEAN_DECAY**steps), 1 / (1 - SQUARE_DECAY**steps)
        direction = unbiased[0] * mean / (jnp.sqrt(unbiased[1] * square) + LEAST_ROOT)
        return direction, Adam(steps, mean, square)


class OptimiserState(NamedTuple):
    """Parameters as one flat vector, so that the optimiser is a handful of operations."""

    parameters: Float[Array, " p"]
    average: Float[Array, " p"]
    adam: Adam


@eqx.filter_jit
def initial_state(law: Law) -> OptimiserState:
    """A fresh optimiser at the law's parameters."""
    parameters = parameters_of(law)
    return OptimiserState(parameters, parameters, Adam.of(parameters))


@eqx.filter_jit
def parameters_of(law: Law) -> Float[Array, " p"]:
    """All parameters of a law as one flat vector."""
    return ravel_pytree(eqx.filter(law, eqx.is_inexact_array))[0]


@eqx.filter_jit
def with_parameters(law: Law, parameters: Float[Array, " p"]) -> Law:
    """The law with its parameters replaced by a flat vector."""
    arrays, static = eqx.partition(law, eqx.is_inexact_array)
    return eqx.combine(ravel_pytree(arrays)[1](parameters), static)


def _weights_only(law: Law) -> Float[Array, " p"]:
    """One for the entries of weight matrices, zero for biases, which say where returns are."""
    arrays = eqx.filter(law, eqx.is_inexact_array)
    return ravel_pytree(jax.tree.map(lambda a: jnp.full(a.shape, float(a.ndim > 1)), arrays))[0]


class Schedule(NamedTuple):
    """What every step of a stage uses: positions among the stage's lines, and two rates."""

    batches: Int[Array, "steps batch"]
    learning_rates: Float[Array, " steps"]
    average_rates: Float[Array, " steps"]


class Layout(NamedTuple):
    """How a stage is laid out in memory.

    steps: optimiser steps whose targets are drawn together.
    copies: how often each row stands among the lines, each following the log as far as it will.
    tabulated: whether the lines are prepared beforehand; else every use of a row has its own line.
    """

    steps: int
    copies: int
    tabulated: bool


def layout_of(
    update: Update, steps: int, batch_size: int, rows: int, *, copies: int, several: bool
) -> Layout:
    """The layout for stages of this many rows.

    copies: the most that are of use. several: whether lines ask different fits, which must be
        sorted, and are therefore tabulated.
    """
    whole, drawn = update.numbers()
    candidates, uses = update.candidates(thin=False), steps * batch_size
    worth = rows * candidates <= uses * min(candidates, update.draws)
    tabulated = several or (worth and rows * whole <= TABLE_NUMBERS)
    copies = max(1, min(copies, uses // (rows * candidates), TABLE_NUMBERS // (rows * whole)))
    a_line = max(whole, drawn) if tabulated else drawn
    most = max(1, BLOCK_NUMBERS // (a_line * batch_size))
    number = max(n for n in range(1, min(most, steps) + 1) if steps % n == 0)
    return Layout(number, copies if tabulated else 1, tabulated)


def train_stage(
    update: Update,
    state: OptimiserState,
    lines: Lines,
    schedule: Schedule,
    weight_decay: Float[Array, ""],
    key: PRNGKeyArray,
    layout: Layout,
) -> tuple[OptimiserState, Float[Array, " steps"]]:
    """Train one stage and return the new state and the loss of every step.

    Within a stage the previous fits are fixed. What does not change between two uses of a line is
    therefore worked out once for all lines of the stage, if there are few enough, and the targets
    of a block of steps are drawn together, afresh for every use.
    """
    batch_size = schedule.batches.shape[1]
    decay = weight_decay * math.sqrt(batch_size / DECAY_BATCH) * _weights_only(update.law)
    table_key, key = jax.random.split(key)
    if layout.tabulated:
        table, read = update.table(lines, table_key, thin=False)

    def batch_loss(parameters: Float[Array, " p"], inputs: Any, targets: Any) -> Any:
        return update.objective.loss(with_parameters(update.law, parameters), inputs, targets)

    def step(state: OptimiserState, block: Any) -> tuple[OptimiserState, Any]:
        inputs, targets, learning_rate, average_rate = block
        loss, gradient = jax.value_and_grad(batch_loss)(state.parameters, inputs, targets)
        direction, adam = state.adam.step(gradient)
        parameters = state.parameters - learning_rate * (direction + decay * state.parameters)
        average = state.average + average_rate * (parameters - state.average)
        return OptimiserState(parameters, average, adam), loss

    def train_block(state: OptimiserState, block: Any) -> tuple[OptimiserState, Any]:
        (positions, rates, averages), key = block
        flat = positions.reshape(-1)
        if layout.tabulated:
            prepared = jax.vmap(read)(table[flat])
        else:
            prepare_key, key = jax.random.split(key)
            chosen = jax.tree.map(lambda a: a[flat], lines)
            prepared = update.prepare(chosen, prepare_key, thin=True)
        inputs, targets = among_devices(
            jax.tree.map(
                lambda a: a.reshape(*positions.shape, *a.shape[1:]), update.complete(prepared, key)
            )
        )
        return jax.lax.scan(step, state, (inputs, targets, rates, averages))

    blocks = jax.tree.map(lambda a: a.reshape(-1, layout.steps, *a.shape[1:]), schedule)
    keys = jax.random.split(key, blocks.learning_rates.shape[0])
    state, losses = jax.lax.scan(train_block, state, (blocks, keys))
    return state, losses.reshape(-1)


def among_devices(batches: Any) -> Any:
    """Arrays (steps, batch, ...), the rows of a batch shared among this machine's devices.

    Parameters and what a step does to them are the same on all; XLA adds up the gradients. Few rows
    stay on one device: to add up gradients would cost more than they do.
    """
    devices, rows = jax.local_devices(), jax.tree.leaves(batches)[0].shape[1]
    if len(devices) == 1 or rows % len(devices) or rows < len(devices) * SHARED_ROWS:
        return batches
    mesh = jax.sharding.Mesh(np.array(devices), ("rows",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "rows"))
    return jax.lax.with_sharding_constraint(batches, spread)


def stage_training(batch_size: int) -> Callable[..., tuple[OptimiserState, Float[Array, " steps"]]]:
    """`train_stage`, compiled as suits batches of this size."""
    return _compiled(shared=batch_size >= SHARED_ROWS)


@cache
def _compiled(*, shared: bool) -> Any:
    """The products of a step are too small to share among cores: waking threads costs more.

    A second fit can use the other core.

    shared: whether XLA may share the loops over a batch.
    """
    jit: Any = eqx.filter_jit
    return jit(train_stage, compiler_options=compiler_options(shared=shared))


def compiler_options(*, shared: bool) -> dict[str, bool | str | int]:
    """For one thread a fit, on processors; other devices know none of these options."""
    if jax.default_backend() != "cpu":
        return {}
    options: dict[str, bool | str | int] = {
        "xla_cpu_multi_thread_eigen": False,
        "xla_cpu_prefer_vector_width": 512,
    }
    if not shared:
        options["xla_disable_hlo_passes"] = "cpu-parallel-task-assigner"
    return options


def keep_compiled() -> None:
    """Turn the cache on, unless it is switched off or the user chose one for JAX."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return
    if jax.config.values.get("jax_compilation_cache_dir"):
        return
    # Without a cache, or a home to keep it in, everything works.
    with suppress(OSError, RuntimeError):
        folder = user_cache() / "fle" / "jax"
        # Compiled code is run, so nobody else may write it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            _remove_oldest(folder)
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def user_cache() -> Path:
    """Where the system wants caches of this user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _remove_oldest(folder: Path) -> None:
    files = [(path.stat().st_mtime, path.stat().st_size, path) for path in folder.iterdir()]
    total = 0
    for _, size, path in sorted(files, reverse=True):
        total += size
        if total > MOST_BYTES:
            path.unlink(missing_ok=True)
