"""Every random stream of a fit, as a function of the seed, the stage and the purpose alone."""

from enum import IntEnum

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


class Purpose(IntEnum):
    """What numbers are drawn for; each purpose has a stream of its own."""

    PLAN = 0
    FIRST_LAW = 1
    FIT = 2
    CHOICE = 3
    PAIRS = 4


class Randomness:
    """Generator and keys of one purpose at one stage.

    No stage sees what another one consumed, so a fit that goes on in the middle draws what an
    undisturbed one would.
    """

    def __init__(self, seed: int, purpose: Purpose, stage: int = 0):
        self.generator = np.random.default_rng([seed, purpose, stage])
        self._key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), stage)

    def key(self) -> PRNGKeyArray:
        """The next key."""
        self._key, key = jax.random.split(self._key)
        return key

    def positions(self, size: int, weights: np.ndarray | None, number: int) -> np.ndarray:
        """Positions among `size` rows: whole passes in random order, or draws by weight."""
        if weights is not None:
            return self.generator.choice(size, number, p=weights / weights.sum())
        passes = -(-number // size)
        shuffled = [self.generator.permutation(size) for _ in range(passes)]
        return np.concatenate(shuffled)[:number]
