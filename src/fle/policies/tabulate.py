"""Any target policy becomes an `ActionTable`, by calling it once over all rows."""

import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.data import Dataset
from fle.errors import PolicyError, SettingsError
from fle.policies.action_table import ActionTable, normalised, require_finite_actions
from fle.policies.calling import call_in_batches
from fle.policies.kinds import (
    Array,
    Deterministic,
    Policy,
    Probabilities,
    RowProbabilities,
    Stochastic,
    required_positional_parameters,
)

BATCH_SIZE = 65536

_CONTINUOUS = (
    "probabilities were given but the actions are continuous, of width {};"
    " expected Deterministic or Stochastic"
)


def tabulate(
    policy: Policy,
    observations: Array,
    *,
    number_of_actions: int | None,
    action_dim: int | None,
    draws: int = 16,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
) -> ActionTable:
    """The policy's actions and probabilities at each observation.

    Give `number_of_actions` if actions are discrete, `action_dim` if continuous, and None for the
    other. The policy is called in NumPy with batches of `observations`, and is one of:

    - `Probabilities`, `Deterministic`, `Stochastic`: a function with its meaning stated.
    - A function of two required arguments: as `Stochastic`, `draws` draws of equal probability.
    - A function of one argument, whose answer decides. Discrete: floats (n, A) are probabilities,
      integers (n,) are actions. Continuous: (n, k), or (n,) if k is 1, are actions.
    - An array (A,): these probabilities everywhere. An array (S, A): by discrete state.
    """
    space = _space(number_of_actions, action_dim)
    _check_settings(draws, seed, batch_size)
    generator = np.random.default_rng(seed)
    return _tabulate(policy, np.asarray(observations), space, draws, generator, batch_size)


def tabulate_for_data(
    policy: Policy, data: Dataset, *, draws: int = 16, seed: int = 0
) -> tuple[ActionTable, ActionTable]:
    """The policy at each row's next observation, and at the initial observations.

    Terminated rows have an entry too; it is never used.
    """
    space = _space(data.number_of_actions, data.action_dim)
    _check_settings(draws, seed, BATCH_SIZE)
    initial_observations = data.require_initial_observations()
    if isinstance(policy, RowProbabilities):
        return _next_row_table(policy, data, space), _initial_row_table(
            policy, len(initial_observations), space
        )
    _refuse_row_array(policy, data)
    tables = []
    # Two streams, so that a draw at one place says nothing about a draw at the other.
    for observations, stream in zip(
        (data.next_observations, initial_observations),
        np.random.SeedSequence(seed).spawn(2),
        strict=True,
    ):
        generator = np.random.default_rng(stream)
        tables.append(_tabulate(policy, observations, space, draws, generator, BATCH_SIZE))
    return tables[0], tables[1]


@dataclass(frozen=True)
class _Space:
    """The actions that exist: a number of codes, or the width of a vector."""

    number_of_actions: int | None
    action_dim: int | None


def _space(number_of_actions: int | None, action_dim: int | None) -> _Space:
    if (number_of_actions is None) == (action_dim is None):
        raise SettingsError(
            "give number_of_actions (discrete) or action_dim (continuous), and None for the other;"
            f" got {number_of_actions} and {action_dim}"
        )
    return _Space(number_of_actions, action_dim)


def _check_settings(draws: int, seed: int, batch_size: int) -> None:
    for name, value, least in (
        ("draws", draws, 1),
        ("seed", seed, 0),
        ("batch_size", batch_size, 1),
    ):
        if not isinstance(value, int | np.integer) or value < least:
            raise SettingsError(f"{name}: expected an integer of at least {least}, got {value!r}")


def _tabulate(
    policy: Policy,
    observations: Array,
    space: _Space,
    draws: int,
    generator: np.random.Generator,
    batch_size: int,
) -> ActionTable:
    if isinstance(policy, RowProbabilities):
        raise PolicyError(
            "RowProbabilities belong to the rows of a data set: use tabulate_for_data, or a"
            " function of the observations"
        )
    if isinstance(policy, Probabilities):
        answer = call_in_batches(policy.function, observations, batch_size)
        return _probability_table(_checked_probabilities(answer, space, "row"))
    if isinstance(policy, Deterministic):
        answer = call_in_batches(policy.function, observations, batch_size)
        return _deterministic_table(_checked_actions(answer, space))
    if isinstance(policy, Stochastic):
        return _drawn_table(policy, observations, space, draws, generator, batch_size)
    if not callable(policy):
        return _array_table(policy, observations, space)
    if required_positional_parameters(policy) == 2:
        return _drawn_table(Stochastic(policy), observations, space, draws, generator, batch_size)
    answer = call_in_batches(policy, observations, batch_size)
    if space.number_of_actions is not None and answer.ndim == 2 and answer.dtype.kind == "f":
        return _probability_table(_checked_probabilities(answer, space, "row"))
    return _deterministic_table(_checked_actions(answer, space))


def _drawn_table(
    policy: Stochastic,
    observations: Array,
    space: _Space,
    draws: int,
    generator: np.random.Generator,
    batch_size: int,
) -> ActionTable:
    def draw(batch: Array) -> Any:
        return policy.function(batch, generator)

    drawn = [
        _checked_actions(call_in_batches(draw, observations, batch_size), space)
        for _ in range(draws)
    ]
    actions = np.stack(drawn, axis=1)
    return ActionTable(actions, np.full(actions.shape[:2], 1 / draws))


def _array_table(policy: Any, observations: Array, space: _Space) -> ActionTable:
    probabilities = _policy_array(policy)
    if probabilities.ndim == 1:
        constant = _checked_probabilities(probabilities[None], space, "row")
        return _probability_table(np.broadcast_to(constant, (len(observations), constant.shape[1])))
    if probabilities.ndim != 2 or observations.ndim != 1:
        raise PolicyError(
            f"an array policy of shape {probabilities.shape} does not fit observations of shape"
            f" {observations.shape}; expected (A,) for the same probabilities everywhere, or (S, A)"
            " where observations are discrete states. For one row of probabilities per row of the"
            " data use RowProbabilities(next=..., initial=...)"
        )
    by_state = _checked_probabilities(probabilities, space, "state")
    if observations.max() >= len(by_state):
        raise PolicyError(
            f"the array policy has {len(by_state)} rows but the data has state"
            f" {observations.max()}; expected one row for each state, at least"
            f" {observations.max() + 1}"
        )
    return _probability_table(by_state[observations])


def _policy_array(policy: Any) -> Array:
    try:
        array = np.asarray(policy)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise PolicyError(
            "the policy must be a function of observations or an array of probabilities, got"
            f" {reprlib.repr(policy)} ({type(policy).__name__})"
        )
    return array


def _refuse_row_array(policy: Policy, data: Dataset) -> None:
    """An (n, A) array would pass for an (S, A) one and be looked up by state."""
    if callable(policy) or isinstance(policy, Probabilities | Deterministic | Stochastic):
        return
    array = _policy_array(policy)
    by_row = len(array) in (len(data), data.number_of_source_rows)
    if array.ndim == 2 and by_row and len(array) != data.number_of_observations:
        raise PolicyError(
            f"an array policy of shape {array.shape} has one row per row of the data; for that use"
            " RowProbabilities(next=..., initial=...). If its rows are states, give the function"
            " lambda states: table[states]"
        )


def _next_row_table(policy: RowProbabilities, data: Dataset, space: _Space) -> ActionTable:
    array = _row_array("next", policy.next, data.number_of_source_rows, space)
    used = np.zeros(len(array), dtype=bool)
    used[data.source_rows[~data.terminations]] = True
    # A log has nothing sensible to say about rows that are over or left out.
    filled = np.where(used[:, None], array, 1 / array.shape[1])
    return _probability_table(_checked_probabilities(filled, space, "next row")[data.source_rows])


def _initial_row_table(policy: RowProbabilities, rows: int, space: _Space) -> ActionTable:
    array = _row_array("initial", policy.initial, rows, space)
    return _probability_table(_checked_probabilities(array, space, "initial row"))


def _row_array(name: str, values: Any, rows: int, space: _Space) -> Array:
    if space.number_of_actions is None:
        raise PolicyError(_CONTINUOUS.format(space.action_dim))
    array = _policy_array(values)
    if array.shape != (rows, space.number_of_actions):
        raise PolicyError(
            f"RowProbabilities.{name}: expected shape ({rows}, {space.number_of_actions}),"
            f" got {array.shape}"
        )
    return array


def _checked_probabilities(answer: Array, space: _Space, row_name: str) -> Array:
    count = space.number_of_actions
    if count is None:
        raise PolicyError(_CONTINUOUS.format(space.action_dim))
    if answer.ndim != 2 or answer.shape[1] != count:
        raise PolicyError(
            f"probabilities: expected shape (n, {count}) for {count} actions, got {answer.shape}"
        )
    return normalised(row_name, answer)


def _checked_actions(answer: Array, space: _Space) -> Array:
    """(n,) integers or (n, k) floats inside the space."""
    if space.number_of_actions is None:
        actions = answer[:, None] if answer.ndim == 1 and space.action_dim == 1 else answer
        if actions.ndim != 2 or actions.shape[1] != space.action_dim:
            raise PolicyError(
                f"actions: expected shape (n, {space.action_dim}) for continuous actions of width"
                f" {space.action_dim}, got {answer.shape}"
            )
        actions = actions if actions.dtype.kind == "f" else actions.astype(np.float64)
        require_finite_actions(actions)
        return actions
    if answer.ndim != 1 or answer.dtype.kind == "f":
        hint = (
            "convert actions with .astype(int)" if answer.ndim == 1 else "use .ravel() for (n, 1)"
        )
        raise PolicyError(
            "discrete actions: expected integers of shape (n,), or float probabilities of shape"
            f" (n, {space.number_of_actions}), got {answer.dtype} of shape {answer.shape}; {hint}"
        )
    outside = (answer < 0) | (answer >= space.number_of_actions)
    if outside.any():
        row = int(np.argmax(outside))
        raise PolicyError(
            f"actions: row {row} is {answer[row]}; expected 0 to {space.number_of_actions - 1}"
        )
    return answer.astype(np.int64, copy=False)


def _probability_table(probabilities: Array) -> ActionTable:
    """Every action is a candidate; the codes are stored once however many rows there are."""
    actions = np.broadcast_to(np.arange(probabilities.shape[1]), probabilities.shape)
    return ActionTable(actions, probabilities)


def _deterministic_table(actions: Array) -> ActionTable:
    return ActionTable(actions[:, None], np.ones((len(actions), 1)))
