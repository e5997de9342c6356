"""Tasks of Gymnasium environments that step one at a time."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.tasks import collect, monte_carlo_returns
from tasks.task import ActingPolicy, Array, steps_until_negligible

# More starts than logged episodes, but few enough for slow resets.
STARTS = 1_000
ENVIRONMENTS = 64
# Fewer returns than simulators written in NumPy draw: a step here takes 50 to 150 microseconds.
TRUTH_SIZE = 10_000


@dataclass(frozen=True)
class Rollouts:
    """The source of a task in an environment; `make(limit)` makes one with that time limit.

    Logged episodes are cut after `longest` steps, those of the truth only when complete.
    """

    make: Callable[[int], Any]
    behaviour: ActingPolicy
    policy: ActingPolicy
    longest: int
    gamma: float = 1.0
    horizon: int | None = None

    def log(self, rows: int, seed: int) -> dict[str, Any]:
        with own_warnings_ignored():
            columns = collect(
                lambda: self.make(self.longest),
                self.behaviour.act,
                rows=rows,
                seed=seed,
                environments=min(ENVIRONMENTS, max(1, rows // self.longest)),
            )
            columns["initial_observations"] = self._starts(20_000 + seed)
        return columns

    def truth(self, n: int, seed: int) -> Array:
        steps = steps_until_negligible(self.gamma, self.horizon)
        with own_warnings_ignored():
            returns = monte_carlo_returns(
                lambda: self.make(10 * steps),
                self.policy.act,
                episodes=n,
                gamma=self.gamma,
                horizon=steps,
                seed=10_000 + seed,
                environments=ENVIRONMENTS,
            )
        return np.reshape(returns, (n, -1))

    def _starts(self, seed: int) -> Array:
        environment = self.make(self.longest)
        seeds = [seed, *(None for _ in range(STARTS - 1))]
        starts = [environment.reset(seed=own)[0] for own in seeds]
        environment.close()
        return np.stack([np.asarray(start) for start in starts])


@contextmanager
def own_warnings_ignored() -> Iterator[None]:
    """Box2D's bindings warn of their own age, and crash the process where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
