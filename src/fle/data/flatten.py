"""Lays a collection of episodes out as one table of transitions."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import numpy as np

from fle.data.transitions import Array
from fle.data.validation import flag_array, numeric_array, require_finite
from fle.errors import DataError

REQUIRED = ("observations", "actions", "rewards")
FLAGS = {"terminations": "terminated", "truncations": "truncated"}
KEYS = (*REQUIRED, *FLAGS, *FLAGS.values())


class Flattened(TypedDict):
    """The row-wise fields of a data set made of whole episodes."""

    observations: Array
    actions: Array
    rewards: Array
    next_observations: Array
    next_missing: Array
    terminations: Array
    truncations: Array
    episodes: Array


def flatten_episodes(episodes: Iterable[Mapping[str, Any]]) -> Flattened:
    """One row per transition, in the order of the episodes."""
    if isinstance(episodes, Mapping):
        raise DataError("episodes: expected a list of mappings, got one mapping; wrap it in [...]")
    parts = [_flatten_one(number, episode) for number, episode in enumerate(episodes)]
    if not parts:
        raise DataError("episodes is empty: expected at least one episode")
    return Flattened(
        observations=_join("observations", parts),
        actions=_join("actions", parts),
        rewards=_join("rewards", parts),
        next_observations=_join("next_observations", parts),
        next_missing=_join("next_missing", parts),
        terminations=_join("terminations", parts),
        truncations=_join("truncations", parts),
        episodes=np.repeat(np.arange(len(parts)), [len(part["actions"]) for part in parts]),
    )


def _flatten_one(number: int, episode: Mapping[str, Any]) -> dict[str, Array]:
    _check_keys(number, episode)
    observations, actions, rewards = (
        numeric_array(f"{name} of episode {number}", episode[name]) for name in REQUIRED
    )
    for name, values in zip(REQUIRED, (observations, actions, rewards), strict=True):
        require_finite(f"{name} of episode {number}", values)
    length = len(actions)
    if len(rewards) != length or len(observations) not in (length, length + 1):
        raise DataError(
            f"episode {number} has {length} actions, {len(rewards)} rewards and"
            f" {len(observations)} observations; expected as many rewards as actions, and as many"
            " observations or one more (the final one)"
        )
    terminations = _flags(number, episode, "terminations", length)
    truncations = _flags(number, episode, "truncations", length)
    final = observations[length:] if len(observations) > length else observations[-1:]
    missing = np.zeros(length, dtype=bool)
    missing[-1] = len(observations) == length and not terminations[-1]
    return {
        "observations": observations[:length],
        "actions": actions,
        "rewards": rewards,
        "next_observations": np.concatenate([observations[1:length], final]),
        "next_missing": missing,
        "terminations": terminations,
        "truncations": truncations,
    }


def _check_keys(number: int, episode: Mapping[str, Any]) -> None:
    if not isinstance(episode, Mapping):
        raise DataError(
            f"episode {number}: expected a mapping with the keys {', '.join(REQUIRED)},"
            f" got {type(episode).__name__}"
        )
    unknown = [key for key in episode if key not in KEYS]
    if unknown:
        nearest = difflib.get_close_matches(str(unknown[0]), KEYS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise DataError(
            f"episode {number}: unknown key {unknown[0]!r}; {hint}expected only {', '.join(KEYS)}"
        )
    absent = [key for key in REQUIRED if key not in episode]
    if absent:
        raise DataError(
            f"episode {number}: {absent[0]!r} is missing; it has {', '.join(map(str, episode))}"
        )


def _flags(number: int, episode: Mapping[str, Any], name: str, length: int) -> Array:
    """One flag per row, from an array or from a single answer about the last row."""
    scalar = FLAGS[name]
    if name in episode and scalar in episode:
        raise DataError(f"episode {number}: give {name!r} or {scalar!r}, not both")
    if name in episode:
        flags = flag_array(f"{name} of episode {number}", episode[name])
        if len(flags) != length:
            raise DataError(
                f"episode {number} has {length} actions but {len(flags)} {name};"
                " expected one per action"
            )
        return flags
    flags = np.zeros(length, dtype=bool)
    if scalar in episode:
        answer = np.asarray(episode[scalar])
        if answer.ndim != 0 or answer.dtype.kind not in "biu" or answer not in (0, 1):
            raise DataError(
                f"episode {number}: {scalar!r} must be True or False, got {episode[scalar]!r};"
                f" use {name!r} for one flag per row"
            )
        flags[-1] = bool(answer)
    return flags


def _join(name: str, parts: list[dict[str, Array]]) -> Array:
    first = parts[0][name]
    for number, part in enumerate(parts):
        if part[name].shape[1:] != first.shape[1:]:
            raise DataError(
                f"{name} of episode {number} have shape {part[name].shape[1:]} per row but those of"
                f" episode 0 have {first.shape[1:]}; expected the same in every episode"
            )
    return np.concatenate([part[name] for part in parts])
