"""The ways a target policy can be stated."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fle.errors import PolicyError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Probabilities:
    """A discrete policy: observations (n, ...) -> probabilities (n, number of actions)."""

    function: Callable[[Array], Any]


@dataclass(frozen=True)
class Deterministic:
    """One action per observation: integers (n,) if discrete, floats (n, k) if continuous."""

    function: Callable[[Array], Any]


@dataclass(frozen=True)
class Stochastic:
    """A policy that draws: (observations, NumPy generator) -> actions, as `Deterministic` does.

    It is called several times; randomness must come from the generator for runs to repeat.
    """

    function: Callable[[Array, np.random.Generator], Any]


@dataclass(frozen=True)
class Normal:
    """A continuous policy: observations -> (mean, std) of independent normal actions.

    `mean` is (n, k), or (n,) for k = 1; `std` is like it, or (k,) if the same everywhere.
    """

    function: Callable[[Array], tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class RowProbabilities:
    """Probabilities that are already known for each row of the data.

    Row i of `next` (n, A) is the policy at the next observation of row i, in the rows as they were
    given to `Dataset`: rows that it sorted or dropped are found again, and the entry of a
    terminated row may be anything. Row j of `initial` (m, A) is the policy at
    `data.initial_observations[j]`.
    """

    next: Array
    initial: Array


@dataclass(frozen=True, eq=False)
class RowActions:
    """One action that is already known for each row of the data, as in SARSA.

    Row i of `next`, (n,) integers or (n, k) floats, is a draw of the policy at the next observation
    of row i, in the rows as they were given to `Dataset`; the entry of a terminated row may be
    anything. Row j of `initial` is one at `data.initial_observations[j]`.
    """

    next: Array
    initial: Array


@dataclass(frozen=True, eq=False)
class ProbabilityColumns:
    """Probabilities (n, A) at each row's own observation, in the rows as given to `Dataset`.

    Those at a row's next observation are then the following row's.
    """

    values: Array


@dataclass(frozen=True)
class Behaviour:
    """The policy that logged the data: its next action is the one of the following row."""


Policy: TypeAlias = (
    Probabilities
    | Deterministic
    | Stochastic
    | Normal
    | RowProbabilities
    | RowActions
    | ProbabilityColumns
    | Behaviour
    | Callable[..., Any]
    | npt.ArrayLike
)


def required_positional_parameters(function: Callable[..., Any]) -> int:
    """How many arguments a callable insists on; 1 for one that cannot be inspected."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    takes_any = bool(positional) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not takes_any or len(required) > 2 or keyword_only:
        raise PolicyError(
            "the policy must take (observations) or (observations, generator), but its signature"
            f" is {inspect.signature(function)}; wrap it in a function that does"
        )
    return max(1, len(required))
