"""What a stage draws, as a function of the seed and the stage alone."""

from typing import Self

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


class Randomness:
    """Generator and keys of one stage.

    No stage sees what another one consumed, so a fit that goes on in the middle draws what an
    undisturbed one would.
    """

    def __init__(self, seed: int, stage: int):
        self.generator = np.random.default_rng([seed, 1, stage])
        self._key = jax.random.fold_in(jax.random.key(seed), stage)

    @classmethod
    def before(cls, seed: int) -> Self:
        """Before the first stage, which is number 1: for the first model, and what it decides."""
        return cls(seed, 0)

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
