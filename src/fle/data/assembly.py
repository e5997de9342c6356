"""All checks of a data set in order: single fields first, then how the rows hang together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fle.data import episodes as episode_rules
from fle.data import validation
from fle.data.recorded import Recorded, first_probabilities, follow_probabilities
from fle.data.transitions import Array, Transitions, ends_episode, starts_episode
from fle.errors import DataError

MINIMUM_ROWS = 2
FIRST_ROWS, MOST_CODES = 1_000, 50


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """What a Dataset holds, with every warning collected and none emitted yet."""

    transitions: Transitions
    initial_observations: Array | None
    initial_probabilities: Array | None
    number_of_observations: int | None
    number_of_actions: int | None
    reward_names: tuple[str, ...]
    probability_names: tuple[str, ...]
    number_of_source_rows: int
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def assemble(
    *,
    observations: Any,
    actions: Any,
    rewards: Any,
    next_observations: Any | None,
    next_missing: Array | None,
    terminations: Any | None,
    truncations: Any | None,
    episodes: Any | None,
    steps: Any | None,
    weights: Any | None,
    initial_observations: Any | None,
    number_of_actions: int | None,
    reward_names: Sequence[str] | None,
    order: Any | None = None,
    recorded: Recorded | None = None,
    earlier_warnings: Sequence[str] = (),
    earlier_notes: Sequence[str] = (),
    ours: bool = False,
) -> Assembled:
    """Check and complete the fields; `next_missing` marks unknown next observations.

    `order` is checked and sorts the rows as `steps` would, but declares nothing about time.
    `ours` says that the observations are known to be finite, and their memory may be used again.
    """
    warnings = list(earlier_warnings)
    transitions, action_count, labels = _check_fields(
        observations=observations,
        actions=actions,
        rewards=rewards,
        next_observations=next_observations,
        next_missing=next_missing,
        terminations=terminations,
        truncations=truncations,
        episodes=episodes,
        steps=order if steps is None else steps,
        weights=weights,
        number_of_actions=number_of_actions,
        recorded=recorded,
        ours=ours,
    )
    given_rows = len(transitions)
    # A time-dependent problem ends at its horizon, so there the flags may be absent.
    if truncations is None and steps is None and not transitions.terminations.any():
        warnings.append(
            "no row is terminated and no truncations were given: every return runs on without an"
            " end; give terminations (or all-False truncations if the problem never ends)"
        )
    transitions = episode_rules.settle_flags(transitions, warnings)
    if labels is not None:
        transitions = episode_rules.order_rows(transitions, warnings)
    elif terminations is not None or truncations is not None:
        derived = episode_rules.derive_episodes(transitions)
        transitions = replace(transitions, episodes=derived)
        labels = np.arange(given_rows)
    if labels is not None:
        episode_rules.check_steps(transitions, labels)
        episode_rules.check_ends(transitions, labels)
    transitions = episode_rules.close_open_ends(transitions, warnings)
    transitions = episode_rules.settle_next_observations(transitions, warnings)
    transitions = follow_probabilities(transitions)

    initial_probabilities = None
    if initial_observations is None:
        initial_probabilities = first_probabilities(transitions)
        initial = episode_rules.first_observations(transitions)
    else:
        initial = validation.like_observations(
            "initial_observations", initial_observations, transitions.observations
        )
    notes = (*earlier_notes, *_remarks_on_episodes(transitions.episodes, warnings))
    notes += _remarks_on_actions(transitions.actions, action_count)
    if steps is None:
        transitions = replace(transitions, steps=None)
    transitions = episode_rules.continue_rows(transitions, warnings, overwrite=ours)
    if transitions.weights is not None:
        validation.weight_array(transitions.weights)
    return Assembled(
        transitions=transitions,
        initial_observations=initial,
        initial_probabilities=initial_probabilities,
        number_of_observations=_count_states(transitions, initial),
        number_of_actions=action_count,
        reward_names=validation.reward_name_tuple(reward_names, transitions.rewards.shape[1]),
        probability_names=() if recorded is None else recorded.names,
        number_of_source_rows=given_rows,
        warnings=tuple(warnings),
        notes=notes,
    )


def _check_fields(
    *,
    observations: Any,
    actions: Any,
    rewards: Any,
    next_observations: Any | None,
    next_missing: Array | None,
    terminations: Any | None,
    truncations: Any | None,
    episodes: Any | None,
    steps: Any | None,
    weights: Any | None,
    number_of_actions: int | None,
    recorded: Recorded | None,
    ours: bool,
) -> tuple[Transitions, int | None, Array | None]:
    """Each field by itself; also the number of actions and the episodes' own ids."""
    checked_observations = validation.observation_array(observations, known_finite=ours)
    rows = len(checked_observations)
    checked_actions, action_count = validation.action_array(actions, number_of_actions)
    numbers, labels = None, None
    if episodes is not None:
        numbers, labels = episode_rules.number_episodes(validation.episode_array(episodes))
    nowhere = np.zeros(rows, dtype=bool)
    transitions = Transitions(
        observations=checked_observations,
        actions=checked_actions,
        rewards=validation.reward_array(rewards),
        next_observations=None
        if next_observations is None
        else validation.like_observations(
            "next_observations", next_observations, checked_observations
        ),
        next_missing=nowhere if next_missing is None else next_missing,
        terminations=nowhere
        if terminations is None
        else validation.flag_array("terminations", terminations),
        truncations=nowhere
        if truncations is None
        else validation.flag_array("truncations", truncations),
        episodes=numbers,
        steps=None if steps is None else validation.step_array(steps),
        weights=None if weights is None else validation.weight_array(weights),
        probabilities=None if recorded is None else recorded.here,
        next_probabilities=None if recorded is None else recorded.following,
        source_rows=np.arange(rows),
    )
    for name, values in vars(transitions).items():
        if values is not None:
            validation.require_rows(name, values, rows)
    if rows < MINIMUM_ROWS:
        raise DataError(
            f"the data has {rows} transition; expected at least {MINIMUM_ROWS},"
            " since one row says nothing about a distribution"
        )
    return transitions, action_count, labels


def _remarks_on_episodes(episodes: Array | None, warnings: list[str]) -> tuple[str, ...]:
    if episodes is None:
        return ()
    starts = starts_episode(episodes)
    if starts.sum() == 1:
        warnings.append(
            "the data is one episode only: no interval can be given,"
            " because episodes are the independent pieces that intervals resample"
        )
    if (starts & ends_episode(episodes)).all():
        return ("every episode has length one: this is a bandit problem",)
    return ()


def _remarks_on_actions(actions: Array, count: int | None) -> tuple[str, ...]:
    """Codes that were stored as floats look like a continuous action."""
    if count is not None or actions.shape[1] > 1:
        return ()
    # The first rows tell most continuous actions, without sorting all.
    if not (_are_codes(actions[:FIRST_ROWS]) and _are_codes(actions)):
        return ()
    largest = int(actions.max())
    return (
        f"the actions are whole numbers, 0 to {largest}, stored as floats, and taken as"
        " continuous; if they are codes of choices, give"
        f" number_of_actions={largest + 1}",
    )


def _are_codes(actions: Array) -> bool:
    values = np.unique(actions)
    whole = bool((values == np.floor(values)).all())
    return whole and values[0] >= 0 and 1 < values.size <= MOST_CODES


def _count_states(transitions: Transitions, initial: Array | None) -> int | None:
    if transitions.observations.ndim > 1:
        return None
    fields = (transitions.observations, transitions.next_observations, initial)
    return 1 + max(int(states.max()) for states in fields if states is not None)
