"""What users and files give becomes the content of a data set: all checks, in their order."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fle.data import episodes as rules
from fle.data import validation
from fle.data.episodes import Transitions
from fle.data.passes import Array, gather, row_blocks
from fle.data.schema import COLUMN_OF, FIELDS, OTHER_ARRAYS, ROW_FIELDS, WORDS, Kind
from fle.data.validation import Context, Faults, flag_array, numeric_array, require_finite
from fle.errors import DataError

FIRST_ROWS, MOST_CODES = 1_000, 50
REQUIRED = tuple(name for name, column in COLUMN_OF.items() if WORDS[column].required)
# An episode of its own has flags by row, or one answer in the words of a table.
FLAGS = {name: COLUMN_OF[name] for name in ("terminations", "truncations")}
# Given by every episode, or by none.
OPTIONAL = ("propensities",)
ENDLESS = (
    "no row is terminated and no truncations were given: every return runs on without an end; give"
    " terminations (or all-False truncations if the problem never ends)"
)
EPISODE_KEYS = (*REQUIRED, *FLAGS, *FLAGS.values(), *OPTIONAL)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Probabilities (n, policies, actions) at the rows' own observations and at their next ones."""

    names: tuple[str, ...]
    here: Array
    following: Array | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """Fields as they were given, and what is known about them.

    fields: by the names of the schema; what is absent or None was not given.
    next_missing: (n,), where next observations are fillers.
    order: sorts the rows as `steps` would, but declares nothing about time; numbers or dates.
    unusable: (n,), rows with fillers, where an episode is cut.
    owned: whether the observations are known to be finite, and their memory may be used again.
    warnings, notes: what was found out before.
    rows: how many there are, where faults are collected: zeros stand for a faulty field.
    is_part: whether these are some rows of a log; what is said of all its rows must wait.
    """

    fields: Mapping[str, Any]
    number_of_actions: int | None = None
    reward_names: Sequence[str] | None = None
    observation_names: Sequence[str] | None = None
    action_names: Sequence[str] | None = None
    action_labels: Sequence[str] | None = None
    next_missing: Array | None = None
    order: Any | None = None
    unusable: Array | None = None
    recorded: Recorded | None = None
    owned: bool = False
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    faults: Faults = field(default_factory=Faults)
    rows: int = 0
    is_part: bool = False


def assemble(given: Given) -> dict[str, Any]:
    """The values of all fields, checked and completed; warnings are collected, none is emitted."""
    warnings, sorting = list(given.warnings), list[str]()
    transitions, labels, initial = _checked(given)
    rows = len(transitions)
    transitions = _in_episodes(given, transitions, labels, (warnings, sorting))
    values: dict[str, Any] = dict.fromkeys(OTHER_ARRAYS)
    if initial is None:
        values.update(_at_first_rows(transitions))
    else:
        values["initial_observations"] = initial
    count = _count_actions(given, transitions.others)
    given.faults.require_none()
    notes = (*given.notes, *sorting)
    if not given.is_part:
        known = transitions.episodes
        number = None if known is None else len(rules.first_rows_in_blocks(known))
        notes += remarks_on_episodes(number, rows, warnings)
        notes += remarks_on_actions(transitions.others["actions"], count)
    if given.fields.get("steps") is None:
        transitions = replace(transitions, steps=None)
    transitions = rules.continue_rows(transitions, overwrite=given.owned)
    columns = transitions.columns()
    values.update({name: columns.get(name) for name in ROW_FIELDS})
    if values["weights"] is not None:
        # Rows with a positive weight may all be among the dropped ones.
        validation.weight_array("weights", values["weights"])
    reward_names = validation.reward_name_tuple(given.reward_names, values["rewards"].shape[1])
    return {
        **values,
        "number_of_observations": _count_states(values),
        "number_of_actions": count,
        "reward_names": reward_names,
        **{
            f"{name}_names": validation.feature_names(
                f"{name}_names", getattr(given, f"{name}_names"), values[f"{name}s"]
            )
            for name in ("observation", "action")
        },
        "action_labels": validation.label_tuple(given.action_labels, count),
        "probability_names": () if given.recorded is None else given.recorded.names,
        "number_of_source_rows": rows,
        "whole_episodes": transitions.episodes is not None,
        "warnings": tuple(warnings),
        "notes": notes,
    }


def _checked(given: Given) -> tuple[Transitions, Array | None, Array | None]:
    """Each field by itself; also the episodes' own ids, and the initial observations."""
    fields = _checked_fields(given)
    initial = fields.pop("initial_observations", None)
    rows = len(fields["observations"])
    numbers, labels = None, None
    if "episodes" in fields:
        numbers, labels = rules.number_episodes(fields.pop("episodes"))
    nowhere = np.zeros(rows, dtype=bool)
    transitions = Transitions(
        observations=fields.pop("observations"),
        next_observations=fields.pop("next_observations", None),
        next_missing=nowhere if given.next_missing is None else given.next_missing,
        terminations=fields.pop("terminations", nowhere),
        truncations=fields.pop("truncations", nowhere),
        episodes=numbers,
        steps=fields.pop("steps", None),
        probabilities=None if given.recorded is None else given.recorded.here,
        next_probabilities=None if given.recorded is None else given.recorded.following,
        source_rows=np.arange(rows),
        others=fields,
    )
    return transitions, labels, initial


def _checked_fields(given: Given) -> dict[str, Array]:
    """The fields that were given, each as its line of the schema wants it."""
    raw = dict(given.fields)
    context = Context(number_of_actions=_stated_count(given), known_finite=given.owned)
    checked: dict[str, Array] = {}
    for name, entry in FIELDS.items():
        needed = name in REQUIRED
        if entry.check is None or not (needed or raw.get(name) is not None):
            continue
        if not (given.faults.found and raw.get(name) is None):
            with given.faults.caught():
                checked[name] = entry.check(name, raw.get(name), context)
        if needed and name not in checked:
            shape = (given.rows,) if name == "actions" else (given.rows, 1)
            checked[name] = np.zeros(shape, dtype=np.int64 if name == "actions" else np.float64)
        context = replace(
            context, observations=checked.get("observations"), actions=checked.get("actions")
        )
    if raw.get("steps") is None and given.order is not None:
        with given.faults.caught():
            checked["steps"] = validation.order_array("steps", given.order)
    rows = len(checked["observations"])
    for name, array in checked.items():
        if FIELDS[name].kind is Kind.ROW:
            validation.require_rows(name, array, rows)
    if rows < rules.FEWEST_ROWS:
        raise DataError(
            f"the data has {rows} transition; expected at least {rules.FEWEST_ROWS},"
            " since one row says nothing about a distribution"
        )
    return checked


def _in_episodes(
    given: Given,
    transitions: Transitions,
    labels: Array | None,
    told: tuple[list[str], list[str]],
) -> Transitions:
    """Rows in order, with their ends settled.

    labels: the ids of episodes that were given. told: warnings, and notes, which grow.
    """
    warnings, notes = told
    ends = [given.fields.get(name) for name in FLAGS]
    # A time-dependent problem ends at its horizon, so there the flags may be absent.
    timeless = given.fields.get("steps") is None
    known = given.is_part or given.fields.get("truncations") is not None
    if timeless and not known and not transitions.terminations.any():
        warnings.append(ENDLESS)
    declared = not timeless
    transitions = rules.settle_flags(transitions, warnings)
    if labels is not None:
        transitions = rules.order_rows(transitions, warnings, notes)
    elif any(flags is not None for flags in ends):
        episodes = rules.derive_episodes(transitions, declared=declared)
        transitions = replace(transitions, episodes=episodes)
        labels = np.arange(len(transitions))
    if labels is not None:
        checks = rules.check_steps if declared else rules.check_order
        for check in (checks, rules.check_ends):
            with given.faults.caught():
                check(transitions, labels)
    transitions = rules.close_open_ends(transitions, warnings)
    with given.faults.caught():
        transitions = rules.settle_next_observations(transitions, warnings)
    given.faults.require_none()
    rules.announce_dropped(transitions, warnings)
    if given.unusable is not None:
        transitions = rules.cut_before(
            transitions, given.unusable[transitions.source_rows], warnings
        )
    return rules.follow_probabilities(transitions)


def _at_first_rows(transitions: Transitions) -> dict[str, Array]:
    """What episodes start from, as far as it is known."""
    rows = rules.first_rows(transitions)
    if rows is None:
        return {}
    initial = {"initial_observations": gather(transitions.observations, rows)}
    if transitions.probabilities is not None:
        initial["initial_probabilities"] = transitions.probabilities[rows]
    return initial


def remarks_on_episodes(number: int | None, rows: int, warnings: list[str]) -> tuple[str, ...]:
    """What is to be known of so many episodes, of so many rows in all; None if unknown."""
    if number == 1:
        warnings.append(
            "the data is one episode only: no interval can be given,"
            " because episodes are the independent pieces that intervals resample"
        )
    if number == rows:
        return ("every episode has length one: this is a bandit problem",)
    return ()


def remarks_on_actions(actions: Array, count: int | None) -> tuple[str, ...]:
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
    values = np.unique(actions[:FIRST_ROWS])
    for block in row_blocks(len(actions)):
        values = np.union1d(values, actions[block])
        if values.size > MOST_CODES:
            return False
    whole = bool((values == np.floor(values)).all())
    return whole and values[0] >= 0 and 1 < values.size <= MOST_CODES


def _stated_count(given: Given) -> int | None:
    """How many actions there are, as the user said, or as many as there are labels."""
    if given.number_of_actions is None and given.action_labels:
        return len(given.action_labels)
    return given.number_of_actions


def _count_actions(given: Given, fields: Mapping[str, Array]) -> int | None:
    stated = _stated_count(given)
    if stated is not None:
        return int(stated)
    actions, propensities = fields["actions"], fields.get("propensities")
    if propensities is not None and propensities.ndim == 2:
        return int(propensities.shape[1])
    return int(actions.max()) + 1 if actions.ndim == 1 else None


def _count_states(values: Mapping[str, Any]) -> int | None:
    if values["observations"].ndim > 1:
        return None
    names = ("observations", "next_observations", "initial_observations")
    return 1 + max(int(values[name].max()) for name in names if values[name] is not None)


def flatten_episodes(episodes: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Array], Array]:
    """Fields with one row per transition, and where their next observations are missing."""
    if isinstance(episodes, Mapping):
        raise DataError("episodes: expected a list of mappings, got one mapping; wrap it in [...]")
    parts = [_flatten_one(number, episode) for number, episode in enumerate(episodes)]
    if not parts:
        raise DataError("episodes is empty: expected at least one episode")
    names = dict.fromkeys(name for part in parts for name in part)
    fields = {name: _join(name, parts) for name in names}
    missing = fields.pop("next_missing")
    lengths = [len(part["actions"]) for part in parts]
    return {**fields, "episodes": np.repeat(np.arange(len(parts)), lengths)}, missing


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
    optional = {name: episode[name] for name in OPTIONAL if name in episode}
    for name, values in optional.items():
        optional[name] = numeric_array(f"{name} of episode {number}", values)
        if len(optional[name]) != length:
            raise DataError(
                f"episode {number} has {length} actions but {len(optional[name])} {name};"
                " expected one per action"
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
        **optional,
    }


def _check_keys(number: int, episode: Mapping[str, Any]) -> None:
    if not isinstance(episode, Mapping):
        raise DataError(
            f"episode {number}: expected a mapping with the keys {', '.join(REQUIRED)},"
            f" got {type(episode).__name__}"
        )
    unknown = [key for key in episode if key not in EPISODE_KEYS]
    if unknown:
        nearest = difflib.get_close_matches(str(unknown[0]), EPISODE_KEYS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise DataError(
            f"episode {number}: unknown key {unknown[0]!r}; {hint}expected only"
            f" {', '.join(EPISODE_KEYS)}"
        )
    absent = [key for key in REQUIRED if key not in episode]
    if absent:
        raise DataError(
            f"episode {number}: {absent[0]!r} is missing; expected {', '.join(REQUIRED)},"
            f" got {', '.join(map(str, episode)) or 'nothing'}"
        )


def _flags(number: int, episode: Mapping[str, Any], name: str, length: int) -> Array:
    """One flag per row, from an array or from a single answer about the last row."""
    scalar = FLAGS[name]
    if name in episode and scalar in episode:
        raise DataError(
            f"episode {number}: expected {name!r} or {scalar!r}, got both; leave one out"
        )
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
                f"episode {number}: {scalar!r}: expected True or False, got {episode[scalar]!r};"
                f" use {name!r} for one flag per row"
            )
        flags[-1] = bool(answer)
    return flags


def _join(name: str, parts: list[dict[str, Array]]) -> Array:
    present = [name in part for part in parts]
    if not all(present):
        raise DataError(
            f"{name} of episode {present.index(False)} are missing, but episode"
            f" {present.index(True)} has them; expected them in every episode, or in none"
        )
    first = parts[0][name]
    for number, part in enumerate(parts):
        if part[name].shape[1:] != first.shape[1:]:
            raise DataError(
                f"{name} of episode {number} have shape {part[name].shape[1:]} per row but those of"
                f" episode 0 have {first.shape[1:]}; expected the same in every episode"
            )
    return np.concatenate([part[name] for part in parts])
