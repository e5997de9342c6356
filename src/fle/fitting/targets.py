"""What a row's targets are: one step along the log, and then what the previous fit says."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from fle.fitting.encoding import Fitted, Frame, Rows, as_vectors, joined, transitions
from fle.fitting.sampling import draw_block
from fle.models.law import Law, Sizes
from fle.models.objectives import GradientObjective
from fle.recipe import SLACK

# Targets are drawn for blocks of about this many numbers: enough for efficient matrix products,
# few enough to stay in the cache.
BLOCK_NUMBERS = 1_000_000
TABLE_NUMBERS = 100_000_000


class Prepared(NamedTuple):
    """What is the same each time a row is used: observation and action, a part of the target."""

    observations: Shaped[Array, "k ..."]
    actions: Shaped[Array, "k ..."]
    target: Any


class Update(NamedTuple):
    """One stage's one-step Bellman update: all that a target depends on but the row and the noise.

    z = r + discount * y with a' ~ policy(x') and y ~ previous(x', a').
    """

    objective: GradientObjective
    law: Law
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
        if thin and self.objective.target_noise_size(self.law) > 0 and candidates > self.draws:
            shift = jax.random.uniform(thin_key, index.shape)
            batch = jax.vmap(lambda t, u: t.thinned(u, self.draws))(batch, shift)
        if size := self.objective.prepare_noise_size(self.law):
            batch = batch._replace(noise=jax.random.uniform(noise_key, (*index.shape, size)))
        target = jax.vmap(lambda t: self.objective.prepare(self.law, previous, t))(batch)
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
        size = self.objective.target_noise_size(self.law)
        noise = jax.random.uniform(key, (inputs.shape[0], size))
        previous = self.previous.law
        targets = jax.vmap(
            lambda p, u: self.objective.target(self.law, previous, p, u, self.draws)
        )(prepared.target, noise)
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
    """Loss of the update's law against fresh targets of the rows at `index`."""
    prepare_key, target_key = jax.random.split(key)
    prepared = update.prepare(index, prepare_key, thin=True)
    return update.objective.loss(update.law, *update.complete(prepared, target_key))


def draw_targets(
    previous: Fitted,
    rows: Rows,
    index: np.ndarray,
    discount: float,
    sizes: Sizes,
    generator: np.random.Generator,
) -> np.ndarray:
    """One draw of r + discount * y for each of at most SAMPLE_BLOCK rows, in reward units."""
    cumulative = np.cumsum(np.asarray(rows.probabilities)[index], axis=1)
    levels = generator.random((len(index), 1), np.float32) * cumulative[:, -1:]
    picks = np.minimum((cumulative <= levels).sum(axis=1), cumulative.shape[1] - 1)
    observations = np.asarray(rows.next_observations)[index]
    actions = np.asarray(rows.next_actions)[index, picks]
    returns = draw_block(previous, as_vectors(observations, actions, sizes), generator)
    if previous.limits:
        low, high = (np.asarray(limit) for limit in previous.limits)
        slack = SLACK * np.asarray(previous.frame.scale)
        returns = np.clip(returns, low - slack, high + slack)
    continues = np.asarray(rows.continues)[index, None]
    return np.asarray(rows.rewards)[index] + discount * continues * returns
