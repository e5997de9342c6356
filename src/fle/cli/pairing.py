"""Policies held against each other from the same starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fle.policies import ActionTable
from fle.returns import quantile

if TYPE_CHECKING:
    from fle.fitting import Evaluation

# In blocks of one size, so that sampling compiles once.
BLOCK = 16_384
BLOCKS = 2
PAIRS = BLOCK * BLOCKS


@dataclass(frozen=True)
class Difference:
    """Return of the first minus return of the second, in pairs with the same start.

    beats: share of the pairs that the first wins. ties: share that neither wins.
    """

    first: str
    second: str
    mean: float
    low: float
    high: float
    beats: float
    ties: float

    @classmethod
    def of(cls, first: str, second: str, ours: np.ndarray, theirs: np.ndarray) -> "Difference":
        """From paired returns; `low` and `high` are the 5% and 95% quantiles."""
        gaps = ours - theirs
        low, high = quantile(gaps, [0.05, 0.95])
        return cls(
            first,
            second,
            float(gaps.mean()),
            float(low),
            float(high),
            float(np.mean(gaps > 0)),
            float(np.mean(gaps == 0)),
        )


def paired_starts(starts: int, seed: int) -> np.ndarray:
    """Which start each pair has: all of them equally often, up to one."""
    return np.resize(np.random.default_rng([seed, 3]).permutation(starts), PAIRS)


def returns_from(
    evaluation: "Evaluation",
    initial: ActionTable,
    starts: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """A return (n, d) from each of n starts, given as observations; actions by the policy."""
    from fle.models.base import TINY

    fitted = evaluation.fits[-1]
    cumulative = np.cumsum(initial.probabilities, axis=1)
    levels = generator.random(len(initial)) * cumulative[:, -1]
    picks = np.minimum((levels[:, None] >= cumulative).sum(axis=1), initial.candidates - 1)
    actions = initial.actions[np.arange(len(initial)), picks]
    inputs = evaluation.encoder.inputs(starts, actions)
    uniforms = generator.random((len(inputs), fitted.model.noise_size), np.float32)
    uniforms = np.clip(uniforms, TINY, 1 - TINY)
    draw = _compiled_draw()
    blocks = [
        np.asarray(draw(fitted, inputs[block], uniforms[block])) for block in _blocks(len(inputs))
    ]
    return np.concatenate(blocks).astype(np.float64) * evaluation.encoder.reward_unit


def differences(names: Sequence[str], returns: Sequence[np.ndarray]) -> list[Difference]:
    """Each policy against every later one."""
    return [
        Difference.of(names[i], names[j], returns[i], returns[j])
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]


@cache
def _compiled_draw() -> Callable[..., Any]:
    """One function for all policies, so that equal models are compiled once."""
    import equinox as eqx
    import jax

    return eqx.filter_jit(lambda fitted, inputs, noise: jax.vmap(fitted.sample)(inputs, noise))


def _blocks(length: int) -> list[slice]:
    return [slice(first, first + BLOCK) for first in range(0, length, BLOCK)]
