"""Any target policy becomes an `ActionTable`, by calling it once over all rows."""

import reprlib
import warnings
from typing import Any

import numpy as np

from fle.data import Dataset
from fle.errors import FLEWarning, PolicyError, SettingsError
from fle.policies.action_table import ActionTable
from fle.policies.calling import call_in_batches
from fle.policies.kinds import (
    Array,
    Behaviour,
    Deterministic,
    Normal,
    Policy,
    Probabilities,
    ProbabilityColumns,
    RowActions,
    RowProbabilities,
    Stochastic,
    required_positional_parameters,
)
from fle.policies.row_tables import (
    action_tables,
    deterministic_table,
    probability_table,
    probability_tables,
)
from fle.policies.settling import settle
from fle.policies.spaces import Space, checked_actions, checked_normal, checked_probabilities

BATCH_SIZE = 65536


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

    - `Probabilities`, `Deterministic`, `Stochastic`, `Normal`: a function with its meaning stated.
    - A function of two required arguments: as `Stochastic`, `draws` draws of equal probability.
    - A function of one argument, whose answer decides. Discrete: floats (n, A) are probabilities,
      integers (n,) are actions. Continuous: (n, k), or (n,) if k is 1, are actions.
    - An array (A,): these probabilities everywhere. An array (S, A): by discrete state.
    """
    space = Space(number_of_actions, action_dim)
    _check_settings(draws, seed, batch_size)
    generator = np.random.default_rng(seed)
    return _tabulate(policy, np.asarray(observations), space, draws, generator, batch_size)


def tabulate_for_data(
    policy: Policy, data: Dataset, *, draws: int = 16, seed: int = 0
) -> tuple[ActionTable, ActionTable]:
    """The policy at each row's next observation, and at the initial observations.

    Terminated rows have an entry too; it is never used.
    """
    space = Space(data.number_of_actions, data.action_dim)
    _check_settings(draws, seed, BATCH_SIZE)
    initial_observations = data.require_initial_observations()
    settled = settle(policy, data, seed=seed)
    policy = settled.policy
    for remark in settled.remarks:
        warnings.warn(remark, FLEWarning, stacklevel=2)
    if isinstance(policy, RowProbabilities):
        return probability_tables(policy, data, space)
    if isinstance(policy, RowActions):
        return action_tables(policy, data, space)
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
    space: Space,
    draws: int,
    generator: np.random.Generator,
    batch_size: int,
) -> ActionTable:
    if isinstance(policy, RowProbabilities | RowActions | ProbabilityColumns | Behaviour):
        raise PolicyError(
            f"{type(policy).__name__} belongs to the rows of a data set: use tabulate_for_data, or"
            " a function of the observations"
        )
    if isinstance(policy, Probabilities):
        answer = call_in_batches(policy.function, observations, batch_size)
        return probability_table(checked_probabilities(answer, space, "row"))
    if isinstance(policy, Deterministic):
        answer = call_in_batches(policy.function, observations, batch_size)
        return deterministic_table(checked_actions(answer, space))
    if isinstance(policy, Stochastic):
        return _drawn_table(policy, observations, space, draws, generator, batch_size)
    if isinstance(policy, Normal):
        return _normal_table(policy, observations, space, draws, generator, batch_size)
    if not callable(policy):
        return _array_table(policy, observations, space)
    if required_positional_parameters(policy) == 2:
        return _drawn_table(Stochastic(policy), observations, space, draws, generator, batch_size)
    answer = call_in_batches(policy, observations, batch_size)
    if space.number_of_actions is not None and answer.ndim == 2 and answer.dtype.kind == "f":
        return probability_table(checked_probabilities(answer, space, "row"))
    return deterministic_table(checked_actions(answer, space))


def _drawn_table(
    policy: Stochastic,
    observations: Array,
    space: Space,
    draws: int,
    generator: np.random.Generator,
    batch_size: int,
) -> ActionTable:
    def draw(batch: Array) -> Any:
        return policy.function(batch, generator)

    drawn = [
        checked_actions(call_in_batches(draw, observations, batch_size), space)
        for _ in range(draws)
    ]
    actions = np.stack(drawn, axis=1)
    return ActionTable(actions, np.full(actions.shape[:2], 1 / draws))


def _normal_table(
    policy: Normal,
    observations: Array,
    space: Space,
    draws: int,
    generator: np.random.Generator,
    batch_size: int,
) -> ActionTable:
    """Asks once for mean and std, however many actions are drawn."""

    def mean_and_std(batch: Array) -> Array:
        mean, std = (np.asarray(part) for part in policy.function(batch))
        if mean.ndim == 1 and std.shape in ((), mean.shape):
            mean, std = mean[:, None], std.reshape(-1, 1)
        if mean.ndim != 2 or std.shape not in (mean.shape, mean.shape[1:], (1, *mean.shape[1:])):
            raise PolicyError(
                "mean and std: expected shapes (n, k) and (n, k), or (k,) for a std that is the"
                f" same everywhere; got {mean.shape} and {std.shape} for {len(batch)} observations"
            )
        return np.stack([mean, np.broadcast_to(std, mean.shape)], axis=1)

    mean, std = checked_normal(call_in_batches(mean_and_std, observations, batch_size), space)
    noise = generator.standard_normal((len(mean), draws, mean.shape[1]))
    actions = mean[:, None] + std[:, None] * noise
    return ActionTable(actions, np.full(actions.shape[:2], 1 / draws))


def _array_table(policy: Any, observations: Array, space: Space) -> ActionTable:
    probabilities = _policy_array(policy)
    if probabilities.ndim == 1:
        constant = checked_probabilities(probabilities[None], space, "row")
        return probability_table(np.broadcast_to(constant, (len(observations), constant.shape[1])))
    if probabilities.ndim != 2 or observations.ndim != 1:
        raise PolicyError(
            f"an array policy of shape {probabilities.shape} does not fit observations of shape"
            f" {observations.shape}; expected (A,) for the same probabilities everywhere, or (S, A)"
            " where observations are discrete states. For one row of probabilities per row of the"
            " data use RowProbabilities(next=..., initial=...)"
        )
    by_state = checked_probabilities(probabilities, space, "state")
    if observations.max() >= len(by_state):
        raise PolicyError(
            f"the array policy has {len(by_state)} rows but the data has state"
            f" {observations.max()}; expected one row for each state, at least"
            f" {observations.max() + 1}"
        )
    return probability_table(by_state[observations])


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
    if callable(policy) or isinstance(policy, Probabilities | Deterministic | Stochastic | Normal):
        return
    array = _policy_array(policy)
    by_row = len(array) in (len(data), data.number_of_source_rows)
    if array.ndim == 2 and by_row and len(array) != data.number_of_observations:
        raise PolicyError(
            f"an array policy of shape {array.shape} has one row per row of the data; for that use"
            " RowProbabilities(next=..., initial=...). If its rows are states, give the function"
            " lambda states: table[states]"
        )
