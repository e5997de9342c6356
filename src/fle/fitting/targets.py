"""Random streams, what a row's targets are, and draws and densities of fitted laws."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from fle.fitting.encoding import Fitted, Frame, Rows, as_vectors, joined, transitions
from fle.fitting.following import Lines
from fle.models.law import TINY, Density, Law, Sizes, placed
from fle.models.objectives import GradientObjective
from fle.models.support import Lattice, Support

# Inputs that are drawn at together: another number would be compiled anew.
SAMPLE_BLOCK = 8_192
# Inputs whose densities are averaged at most, and returns that are asked at together.
DENSITY_CONTEXTS, DENSITY_BLOCK = 2_048, 256
# What float32 makes of a return at its limit, in units of the return scale.
EDGE = 1e-5
# Draws of which a conditional mean is made, spread evenly.
MEAN_DRAWS = 64
# Positions out of more than so many times their number are drawn one by one.
FEW = 50
# Targets are drawn for blocks of about this many numbers: enough for efficient matrix products,
# few enough to stay in the cache.
BLOCK_NUMBERS = 1_000_000
TABLE_NUMBERS = 100_000_000
# Lines that are prepared together, and ask one and the same fit.
LINE_BLOCK = 512
# Candidate actions that a line of a table keeps [0022].
MOST_CANDIDATES = 128


class Purpose(IntEnum):
    """What numbers are drawn for; each purpose has a stream of its own."""

    PLAN = 0
    FIRST_LAW = 1
    FIT = 2
    CHOICE = 3
    PAIRS = 4
    RESAMPLE = 5
    REFIT = 6
    BELLMAN = 7
    CALIBRATION = 8


class Randomness:
    """Generator and keys of one purpose at one stage.

    No stage sees what another one consumed, so a fit that goes on in the middle draws what an
    undisturbed one would.
    """

    def __init__(self, seed: int, purpose: Purpose, stage: int = 0):
        self.generator = np.random.default_rng([seed, purpose, stage])
        self._source = (seed, purpose, stage)
        self._last: PRNGKeyArray | None = None

    def key(self) -> PRNGKeyArray:
        """The next key."""
        if self._last is None:
            # Only now: most streams need no keys, and a plan none at all.
            seed, *path = self._source
            self._last = reduce(jax.random.fold_in, path, jax.random.key(seed))
        self._last, key = jax.random.split(self._last)
        return key

    def positions(self, size: int, levels: np.ndarray | None, number: int) -> np.ndarray:
        """Positions among `size` rows: whole passes in random order, or draws by weight.

        levels: (size,) sums of the weights up to each row.
        """
        if levels is not None:
            drawn = self.generator.random(number) * levels[-1]
            return np.minimum(np.searchsorted(levels, drawn, side="right"), size - 1)
        if number * FEW < size:
            return self.generator.choice(size, number, replace=False)
        passes = -(-number // size)
        shuffled = [self.generator.permutation(size) for _ in range(passes)]
        return np.concatenate(shuffled)[:number]


def draw_block(fitted: Fitted, inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """One return for each of at most SAMPLE_BLOCK inputs, in reward units of the encoder."""
    filled = np.resize(inputs, (SAMPLE_BLOCK, inputs.shape[1]))
    uniforms = generator.random((SAMPLE_BLOCK, fitted.law.noise_size), np.float32)
    uniforms = np.clip(uniforms, TINY, 1 - TINY)
    drawn = _draw(fitted, placed(filled), placed(uniforms))
    return np.asarray(drawn, np.float64)[: len(inputs)]


def draws(fitted: Fitted, inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The same of any number of inputs, block by block."""
    starts = range(0, len(inputs), SAMPLE_BLOCK)
    return np.concatenate(
        [draw_block(fitted, inputs[start : start + SAMPLE_BLOCK], generator) for start in starts]
    )


@eqx.filter_jit
def _draw(
    fitted: Fitted, inputs: Float[Array, "k inputs"], uniforms: Float[Array, "k noise"]
) -> Float[Array, "k d"]:
    return jax.vmap(fitted.sample)(inputs, uniforms)


def mean_block(fitted: Fitted, inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Conditional means at at most SAMPLE_BLOCK inputs, in reward units of the encoder.

    Means of draws, as a support may have changed what a law says. Those of an input are points of
    a lattice, moved at random; hence the error is far below that of as many independent ones.
    """
    size = fitted.law.noise_size
    filled = placed(np.resize(inputs, (SAMPLE_BLOCK, inputs.shape[1])))
    shifts = generator.random((SAMPLE_BLOCK, size), np.float32)
    drawn = []
    for point in range(MEAN_DRAWS):
        moved = (shifts + point * (2 * np.arange(size) + 1) / MEAN_DRAWS) % 1
        uniforms = placed(np.clip(moved, TINY, 1 - TINY))
        drawn.append(np.asarray(_draw(fitted, filled, uniforms), np.float64)[: len(inputs)])
    return np.mean(drawn, axis=0)


def in_data_units(
    fitted: Fitted,
    drawn: np.ndarray,
    unit: np.ndarray,
    offset: np.ndarray,
    lattice: Lattice | None = None,
) -> np.ndarray:
    """Drawn returns (n, d) in the units of the data, on the lattice of the rewards if there is one.

    Atoms, which float32 holds to seven digits, get these digits: a click is 1, not 0.99999994.
    """
    returns = drawn * unit + offset
    atoms = np.asarray(fitted.support.atoms)
    for column, (values, known) in enumerate(zip(drawn.T, atoms, strict=True)):
        places = np.flatnonzero(np.isin(values.astype(np.float32), known))
        exact = returns[places, column]
        size = np.floor(np.log10(np.maximum(np.abs(exact), 1e-300)))
        step = 10.0 ** (size - 6)
        returns[places, column] = np.where(exact == 0, 0.0, np.round(exact / step) * step)
    return returns if lattice is None else lattice.nearest(returns)


@dataclass(frozen=True)
class MixtureOverInputs:
    """The distribution of a return whose (observation, action) is itself random."""

    fitted: Fitted
    inputs: np.ndarray
    weights: np.ndarray
    unit: np.ndarray
    offset: np.ndarray
    lattice: Lattice | None

    def draw(self, generator: np.random.Generator, number: int) -> np.ndarray:
        """Draws of the return; the inputs are picked systematically, then shuffled."""
        picks = systematic(self.weights, number, generator)
        drawn = draws(self.fitted, self.inputs[picks], generator)
        return in_data_units(self.fitted, drawn, self.unit, self.offset, self.lattice)

    def log_density(self, returns: np.ndarray) -> np.ndarray:
        """Log density of each return, averaged over at most DENSITY_CONTEXTS inputs."""
        inputs, log_weights = self.inputs, np.log(np.maximum(self.weights, 1e-30))
        if len(inputs) > DENSITY_CONTEXTS:
            picks = systematic(self.weights, DENSITY_CONTEXTS, np.random.default_rng(0))
            inputs = inputs[picks]
            log_weights = np.full(DENSITY_CONTEXTS, -np.log(DENSITY_CONTEXTS))
        frame = self.fitted.frame
        scaled = ((returns - self.offset) / self.unit - np.asarray(frame.centre)) / np.asarray(
            frame.scale
        )
        unit = np.log(self.unit * np.asarray(frame.scale)).sum()
        blocks = []
        for start in range(0, len(scaled), DENSITY_BLOCK):
            block = scaled[start : start + DENSITY_BLOCK]
            padded = np.pad(block, ((0, DENSITY_BLOCK - len(block)), (0, 0)))
            values = _log_density(self.fitted, placed(inputs), placed(log_weights), placed(padded))
            blocks.append(np.asarray(values, np.float64)[: len(block)])
        return np.concatenate(blocks) - unit


@eqx.filter_jit
def _log_density(
    fitted: Fitted,
    inputs: Float[Array, "k inputs"],
    log_weights: Float[Array, " k"],
    returns: Float[Array, "n d"],
) -> Float[Array, " n"]:
    """Of returns inside their limits, with what is reflected there; atoms stay narrow peaks."""
    law, dim = cast(Density, fitted.law), returns.shape[1]
    support = fitted.support.standardised(*fitted.frame)
    limits = jnp.concatenate([support.low, support.high])
    known, coordinates = jnp.isfinite(limits), jnp.tile(jnp.eye(dim), (2, 1))

    def at(z: Float[Array, " d"]) -> Float[Array, ""]:
        logs = jax.vmap(lambda x: law.log_prob(x, z))(inputs)
        return jax.nn.logsumexp(logs + log_weights)

    def image(limit: Float[Array, ""], coordinate: Float[Array, " d"]) -> Float[Array, "n d"]:
        return returns + 2 * coordinate * (limit - returns)

    # The returns themselves and their image at every limit, one after another to save memory.
    images = jax.vmap(image)(jnp.where(known, limits, 0), coordinates)
    logs = jax.lax.map(jax.vmap(at), jnp.concatenate([returns[None], images]))
    seen = jnp.concatenate([jnp.array([True]), known])
    total = jax.nn.logsumexp(jnp.where(seen[:, None], logs, -jnp.inf), axis=0)
    inside = (returns >= support.low - EDGE) & (returns <= support.high + EDGE)
    return jnp.where(inside.all(axis=1), total, -jnp.inf)


def systematic(weights: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
    """Indices whose counts are number * weights up to one, in random order.

    Weights often repeat, as the probabilities of a policy's actions at every observation do. Were
    they left in order, equal steps through them would meet the same action each time, or never.
    """
    order = generator.permutation(len(weights))
    levels = (np.arange(number) + generator.random()) / number
    cumulative = np.cumsum(weights[order])
    picks = np.searchsorted(cumulative, levels * cumulative[-1], side="right")
    return generator.permutation(order[np.minimum(picks, len(weights) - 1)])


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
