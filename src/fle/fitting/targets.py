"""What a row's targets are: what the log showed after it, and then what a previous fit says."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from fle.fitting.encoding import Fitted, Frame, Rows, as_vectors, joined, transitions
from fle.fitting.following import Lines
from fle.fitting.sampling import draw_block
from fle.models.law import Law, Sizes
from fle.models.objectives import GradientObjective
from fle.models.support import Support

# Targets are drawn for blocks of about this many numbers: enough for efficient matrix products,
# few enough to stay in the cache.
BLOCK_NUMBERS = 1_000_000
TABLE_NUMBERS = 100_000_000
# Lines that are prepared together, and ask one and the same fit.
LINE_BLOCK = 512
# Candidate actions that a line of a table keeps [0022].
MOST_CANDIDATES = 128


class Prepared(NamedTuple):
    """What is the same each time a line is used: observation and action, a part of the target."""

    observations: Shaped[Array, "k ..."]
    actions: Shaped[Array, "k ..."]
    target: Any


class Update(NamedTuple):
    """One stage's Bellman update: all that a target depends on but the line and the noise.

    z = G + discount * y with a' ~ policy(x') and y ~ previous(x', a').

    previous: the fits that may be asked, one after another on the first axis of their arrays.
    frame, support: of the law that is fitted.
    """

    objective: GradientObjective
    law: Law
    previous: Fitted
    frame: Frame
    support: Support
    rows: Rows
    sizes: Sizes
    draws: int

    def prepare(self, lines: Lines, key: PRNGKeyArray, *, thin: bool) -> Prepared:
        """All that can be known before a target is drawn, for lines that ask the fit of the first.

        thin: keep at most `draws` of the candidate actions of a sampled target, drawn in proportion
            to their probability, as more could not be used. Else many are kept, but not any number.
        """
        several = self._number_of_fits() > 1
        fitted = self._fit(lines.fits[0] if several else 0)
        previous: Any = fitted.law
        batch = transitions(self.rows, lines, self.sizes, fitted, self.frame)
        kept, shape = self.candidates(thin=thin), lines.rows.shape
        thin_key, noise_key = jax.random.split(key)
        if kept < self.rows.probabilities.shape[1]:
            shift = jax.random.uniform(thin_key, shape)
            batch = jax.vmap(lambda t, u: t.thinned(u, kept))(batch, shift)
        if size := self.objective.prepare_noise_size(self.law):
            batch = batch._replace(noise=jax.random.uniform(noise_key, (*shape, size)))
        support = fitted.support.standardised(*fitted.frame)
        target = jax.vmap(
            lambda t: self.objective.prepare(self.law, previous, t._replace(support=support))
        )(batch)
        return Prepared(self.rows.observations[lines.rows], self.rows.actions[lines.rows], target)

    def table(
        self, lines: Lines, key: PRNGKeyArray, *, thin: bool
    ) -> tuple[Float[Array, "k numbers"], Callable[[Float[Array, " numbers"]], Prepared]]:
        """What is known of all lines, and how to read a row of the table.

        The numbers of a line lie side by side, as memory is slow to jump about in. Lines are
        prepared a block at a time, to bound the memory the networks need.
        """
        number = lines.rows.shape[0]
        size = min(LINE_BLOCK, number)
        blocks = -(-number // size)
        padded = jax.tree.map(
            lambda a: jnp.pad(a, [(0, blocks * size - number)] + [(0, 0)] * (a.ndim - 1)).reshape(
                blocks, size, *a.shape[1:]
            ),
            lines,
        )

        def prepared(block: Any) -> Float[Array, "size numbers"]:
            return jax.vmap(lambda row: ravel_pytree(row)[0])(self.prepare(*block, thin=thin))

        table = jax.lax.map(prepared, (padded, jax.random.split(key, blocks)))
        example = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), self._shapes(thin=thin))
        return table.reshape(blocks * size, -1)[:number], ravel_pytree(example)[1]

    def complete(
        self, prepared: Prepared, key: PRNGKeyArray
    ) -> tuple[Float[Array, "k inputs"], Any]:
        """Inputs of prepared lines, and their targets with fresh noise."""
        inputs = joined(prepared.observations, prepared.actions, self.sizes)
        size = self.objective.target_noise_size(self.law)
        key, blur_key = jax.random.split(key)
        noise = jax.random.uniform(key, (inputs.shape[0], size))
        # Where there are several, an objective that is right across fits does not look at it.
        previous, frame, support = self._fit(0)
        inside = support.standardised(*frame)
        targets = jax.vmap(
            lambda p, u: self.objective.target(self.law, previous, p, u, self.draws, inside)
        )(prepared.target, noise)
        support = self.support.standardised(*self.frame)
        return inputs, self.objective.blurred(targets, support, blur_key)

    def candidates(self, *, thin: bool) -> int:
        """How many actions `prepare` keeps of a row; all of them where the target is exact."""
        number = int(self.rows.probabilities.shape[1])
        if self.objective.target_noise_size(self.law) == 0:
            return number
        return min(number, self.draws if thin else MOST_CANDIDATES)

    def numbers(self) -> tuple[int, int]:
        """How many a line has in a table, and how many while its targets are drawn."""
        whole, thinned = (_numbers(self._shapes(thin=thin)) for thin in (False, True))
        return whole, max(thinned, _numbers(_shapes(*self._structure(), what="complete")))

    def _number_of_fits(self) -> int:
        return int(self.previous.frame.centre.shape[0])

    def _fit(self, number: Any) -> Fitted:
        return jax.tree.map(lambda a: a[number] if eqx.is_array(a) else a, self.previous)

    def _shapes(self, *, thin: bool) -> Prepared:
        """Of what `prepare` gives for one line."""
        return _shapes(*self._structure(), what="thin" if thin else "whole")

    def _structure(self) -> tuple[Any, tuple[Any, ...]]:
        """All but the numbers: the tree, and its leaves with shapes in place of arrays.

        How many rows there are makes no difference to a line.
        """
        one = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype), self.rows)
        leaves, tree = jax.tree.flatten(self._replace(rows=one))
        shapes = (
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf
            for leaf in leaves
        )
        return tree, tuple(shapes)


@lru_cache(maxsize=256)
def _shapes(tree: Any, leaves: tuple[Any, ...], *, what: str) -> Any:
    """Of one line of an update: "whole" or "thin" as prepared, or "complete".

    To work them out is to trace the networks, which takes longer than a short training.
    """
    update: Update = jax.tree.unflatten(tree, leaves)
    row, number = jax.ShapeDtypeStruct((1,), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.float32)
    rewards = jax.ShapeDtypeStruct((1, update.sizes.returns), jnp.float32)
    key = jax.eval_shape(partial(jax.random.key, 0))
    if what == "complete":
        thinned = _shapes(tree, leaves, what="thin")
        return eqx.filter_eval_shape(Update.complete, update, thinned, key)
    lines: Any = Lines(row, row, rewards, number, row)
    prepare = partial(Update.prepare, thin=what == "thin")
    return eqx.filter_eval_shape(prepare, update, lines, key)


def _numbers(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@eqx.filter_jit
def stacked(fits: list[Fitted]) -> Fitted:
    """Fits of one kind as one, a number on the first axis of every array."""
    arrays, others = zip(*(eqx.partition(fit, eqx.is_array) for fit in fits), strict=True)
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)
    return eqx.combine(together, others[0])


@eqx.filter_jit
def mean_loss(update: Update, lines: Lines, key: PRNGKeyArray) -> Float[Array, ""]:
    """Loss of the update's law against fresh targets of the lines, in blocks that ask one fit."""
    prepare_key, target_key = jax.random.split(key)
    table, read = update.table(lines, prepare_key, thin=True)
    return update.objective.loss(update.law, *update.complete(jax.vmap(read)(table), target_key))


def draw_targets(
    fits: list[Fitted],
    rows: Rows,
    lines: Lines,
    sizes: Sizes,
    generator: np.random.Generator,
) -> np.ndarray:
    """One draw of G + discount * y for each of at most SAMPLE_BLOCK lines, in reward units."""
    cumulative = np.cumsum(np.asarray(rows.probabilities)[lines.ends], axis=1)
    levels = generator.random((len(lines.rows), 1), np.float32) * cumulative[:, -1:]
    picks = np.minimum((cumulative <= levels).sum(axis=1), cumulative.shape[1] - 1)
    places = np.asarray(rows.following)[lines.ends]
    observations = np.asarray(rows.observations)[places]
    actions = np.asarray(rows.candidates(lines.ends))[np.arange(len(picks)), picks]
    inputs, returns = as_vectors(observations, actions, sizes), np.zeros(lines.rewards.shape)
    asked = lines.discounts > 0
    for number in np.unique(lines.fits[asked]):
        here = asked & (lines.fits == number)
        returns[here] = draw_block(fits[number], inputs[here], generator)
    return lines.rewards + lines.discounts[:, None] * returns
