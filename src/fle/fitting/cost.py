"""What a fit will take, before it is begun."""

import time
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fle.models.law import Sizes
from fle.models.specs import ModelSpec
from fle.recipe import Resolved

# A training step takes about this many times its bare matrix products (`benchmarks/step_time.py`),
# and a fit this many seconds to compile.
STEP_OVER_PRODUCTS, COMPILATION = 3.0, 6.0
SIDE, REPETITIONS = 64, 200


class Cost(NamedTuple):
    """What training takes: optimiser steps, times that a row is used, and a guess in seconds."""

    steps: int
    row_uses: int
    seconds: float

    def in_words(self) -> str:
        """In one line."""
        return (
            f"{self.steps:,} optimiser steps, {self.row_uses:,} uses of a row, about "
            f"{self.seconds:,.0f} s on this machine with a core to itself"
        )


def expected_cost(spec: ModelSpec, recipe: Resolved, sizes: Sizes, stages: int, rows: int) -> Cost:
    """From the widths of the networks and the speed of a matrix product here.

    A step has two products backward for one forward, and one at the next inputs.
    """
    steps = recipe.steps * stages
    uses = steps * recipe.batch_size
    numbers = _parameters(spec, sizes)
    if numbers == 0:
        return Cost(0, stages * rows, COMPILATION)
    products = 2.0 * 4 * numbers * uses
    return Cost(steps, uses, COMPILATION + STEP_OVER_PRODUCTS * products / _speed())


def _parameters(spec: ModelSpec, sizes: Sizes) -> int:
    """Entries of the matrices between layers, where the model says its widths."""
    values = spec.values()
    hidden = values.get("hidden")
    if hidden is None:
        return 0
    layers = (hidden, hidden) if isinstance(hidden, int) else tuple(hidden)
    outputs = 1
    for name, factor in (("components", 3), ("bins", 1), ("atoms", 1), ("quantiles", 1)):
        outputs = max(outputs, factor * (values.get(name) or 1) * sizes.returns)
    widths = [sizes.inputs, *layers, outputs]
    return sum(a * b for a, b in pairwise(widths))


@cache
def _speed() -> float:
    """Operations a second of matrix products of a step's size, which one core does alone."""
    left = np.ones((SIDE, SIDE), np.float32)
    best = np.inf
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        left @ left
        best = min(best, time.perf_counter() - began)
    return 2 * SIDE**3 / max(best, 1e-9)
