"""Every random stream of a fit; draws of fitted laws by one compiled function, and densities."""

from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from fle.fitting.encoding import Fitted
from fle.models.law import TINY, Density, placed
from fle.models.support import Lattice

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
