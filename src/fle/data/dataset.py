"""The logged transitions that an evaluation starts from, checked when they are put together."""

import warnings as python_warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fle.data.assembly import Given, assemble, flatten_episodes
from fle.data.episodes import (
    ends_episode,
    first_rows_in_blocks,
    position_in_episode,
    starts_episode,
)
from fle.data.passes import Array
from fle.data.schema import ROW_FIELDS, Record, fingerprint
from fle.data.validation import numeric_array, require_rows, weight_array
from fle.errors import DataError, FLEWarning, SettingsError
from fle.screen import Tabular, html_lines

# Labels of actions that are shown in a line.
MOST_LABELS = 10


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Dataset(Record, Tabular):
    """Logged transitions, one row each, as read-only NumPy arrays.

    >>> data = Dataset(observations=[[0.0], [1.0]], actions=[0, 1], rewards=[1.0, 2.0],
    ...                terminations=[False, True])

    All checks run here; a `DataError` names the field and the row. Reservations are emitted as
    `FLEWarning` and kept in `warnings`. Arrays are not copied unless rows move or types change.

    Arguments, for n rows:

    - `observations`: (n, p) floats, or (n,) integers for discrete states; images are flattened.
    - `actions`: (n,) integers if discrete, (n, k) floats if continuous. With `number_of_actions`,
      whole floats count as discrete.
    - `rewards`: (n,) or (n, d), with `reward_names` for the d columns.
    - `next_observations`: as `observations`. If left out, they come from the following row of the
      episode; a truncated row then has none and is dropped. That of a terminated row is never used.
    - `terminations`, `truncations`: (n,) flags. A truncated row was cut off, and its return goes
      on; a terminated one ends. If neither appears, and no `steps`, a warning says so; all-False
      `truncations` state that the problem never ends.
    - `episodes`: (n,) ids, integers or strings. If left out, they are read off the flags, provided
      that consecutive rows follow each other.
    - `steps`: (n,) integers from 0. Giving them declares a time-dependent problem, where each row
      is used only at its own step. Without `episodes`, rows are independent transitions.
    - `weights`: (n,) non-negative row weights.
    - `propensities`: of the policy that logged the data, (n,) probabilities of the logged actions,
      or densities if actions are continuous; or (n, A), the probabilities of all actions.
    - `observation_names`, `action_names`: of the columns of vectors. A policy with names, and later
      questions with names, must have the same in the same order.
    - `action_labels`: what the action codes 0, 1, ... are called. Policies may answer with these,
      and those that know their own are matched by name.
    - `initial_observations`: (m, p) or (m,). If left out, the episode starts, or rows at step 0.

    Afterwards `episodes` are numbered by first appearance, and `source_rows` says which of the
    `number_of_source_rows` given rows each row was. `whole_episodes` is False once `subset` has
    taken episodes apart. Policies whose probabilities `fle.read` found in the data are named in
    `probability_names`; `recorded_probabilities` gives them.
    """

    def __init__(
        self,
        *,
        observations: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_observations: npt.ArrayLike | None = None,
        terminations: npt.ArrayLike | None = None,
        truncations: npt.ArrayLike | None = None,
        episodes: npt.ArrayLike | None = None,
        steps: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        propensities: npt.ArrayLike | None = None,
        initial_observations: npt.ArrayLike | None = None,
        number_of_actions: int | None = None,
        reward_names: Sequence[str] | None = None,
        observation_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        action_labels: Sequence[str] | None = None,
    ) -> None:
        fields = {
            "observations": observations,
            "actions": actions,
            "rewards": rewards,
            "next_observations": next_observations,
            "terminations": terminations,
            "truncations": truncations,
            "episodes": episodes,
            "steps": steps,
            "weights": weights,
            "propensities": propensities,
            "initial_observations": initial_observations,
        }
        given = Given(
            fields=fields,
            number_of_actions=number_of_actions,
            reward_names=reward_names,
            observation_names=observation_names,
            action_names=action_names,
            action_labels=action_labels,
        )
        super().__init__(**assemble(given))
        emit_warnings(self, stacklevel=2)

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Mapping[str, Any]],
        *,
        number_of_actions: int | None = None,
        reward_names: Sequence[str] | None = None,
    ) -> "Dataset":
        """Episodes of any lengths T, each a mapping.

        Keys: `observations` (T + 1 rows with the final one, or T), `actions` (T), `rewards` (T or
        T x d), and for the end either flags per row, `terminations` and `truncations`, or one
        answer, `terminated` and `truncated`. `propensities` (T or T x A) may be given by all
        episodes, or by none. Other keys are refused.

        >>> episode = {"observations": [[0.0], [1.0], [2.0]], "actions": [0, 1]}
        >>> data = Dataset.from_episodes([{**episode, "rewards": [1.0, 2.0], "terminated": True}])
        """
        fields, next_missing = flatten_episodes(episodes)
        given = Given(
            fields=fields,
            next_missing=next_missing,
            number_of_actions=number_of_actions,
            reward_names=reward_names,
        )
        data = restored(assemble(given))
        emit_warnings(data, stacklevel=2)
        return data

    def __len__(self) -> int:
        return len(self.observations)

    @property
    def discrete_actions(self) -> bool:
        """Whether actions are codes rather than vectors."""
        return self.number_of_actions is not None

    @property
    def action_dim(self) -> int | None:
        """The width of a continuous action; None if actions are discrete."""
        return None if self.discrete_actions else int(self.actions.shape[1])

    @property
    def return_dim(self) -> int:
        """How many rewards each row carries, hence the dimension of the return."""
        return int(self.rewards.shape[1])

    @property
    def number_of_episodes(self) -> int | None:
        """How many episodes have rows here; None if episodes are unknown."""
        if self.episodes is None:
            return None
        if self.prepared:
            return len(first_rows_in_blocks(self.episodes))
        return len(np.unique(self.episodes))

    def label(self, action: int) -> str:
        """What an action code is called: its label, or the code itself."""
        return self.action_labels[action] if self.action_labels else str(action)

    def require_initial_observations(self) -> Array:
        """The initial observations, or a DataError that says how to give them."""
        if self.initial_observations is None:
            raise DataError(
                "no initial observations: the rows are separate transitions, so nothing says where"
                " an episode starts; give initial_observations, or episodes, or steps with rows at"
                " step 0"
            )
        return self.initial_observations

    def recorded_probabilities(self, name: str = "probability") -> tuple[Array, Array]:
        """A recorded policy as `RowProbabilities` takes it: next and initial probabilities.

        The first has one row per given row, `number_of_source_rows` of them; rows that are not
        here any more are uniform, and never used.
        """
        if name not in self.probability_names:
            found = ", ".join(self.probability_names) or "none"
            raise DataError(
                f"no probability columns named {name!r} were read (found: {found}); expected"
                " columns such as probability.0, probability.1, or read(..., probability=...)"
            )
        if self.next_probabilities is None or self.initial_probabilities is None:
            raise DataError(
                f"{name}: the probabilities at the initial observations are unknown; give episodes,"
                " and no initial_observations, so that the rows that start an episode tell them"
            )
        number = self.probability_names.index(name)
        here = self.next_probabilities[:, number]
        given = np.full((self.number_of_source_rows, here.shape[1]), 1 / here.shape[1])
        given[self.source_rows] = here
        return given, self.initial_probabilities[:, number].astype(np.float64)

    def subset(self, rows: npt.ArrayLike) -> "Dataset":
        """The given rows (indices, with repeats allowed, or a mask); initial observations stay."""
        chosen = _row_indices(rows, len(self))
        changes: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[chosen]
            for name in ROW_FIELDS
        }
        if self.episodes is not None:
            kept = np.bincount(changes["episodes"], minlength=self.episodes.max() + 1)
            complete = (kept == 0) | (kept == np.bincount(self.episodes))
            in_order = bool((np.diff(chosen) > 0).all())
            changes["whole_episodes"] = self.whole_episodes and in_order and bool(complete.all())
        return self._with(changes)

    def with_weights(self, weights: npt.ArrayLike) -> "Dataset":
        """The same rows under other weights."""
        checked = weight_array("weights", weights)
        require_rows("weights", checked, len(self))
        return self._with({"weights": checked})

    def with_steps(self) -> "Dataset":
        """The same rows, declared time-dependent: a row's step is its position in its episode."""
        return self._with({"steps": position_in_episode(self._require_whole_episodes())})

    def observed_returns(self, gamma: float, horizon: int | None = None) -> tuple[Array, Array]:
        """What the behaviour policy earned: (E, d) returns, and which are complete, (E,).

        An episode with rewards r_0, ..., r_{T-1} has the return sum of gamma^t r_t over t < T, and
        over t < horizon if one is given. It is complete if the episode terminated or reached the
        horizon; any other lacks what would have come after the cut.

        >>> returns, complete = data.observed_returns(0.99)
        >>> mean = returns[complete].mean(axis=0)
        """
        if not 0 <= gamma <= 1:
            raise SettingsError(f"gamma: expected a number from 0 to 1, got {gamma}")
        if horizon is not None and horizon < 1:
            raise SettingsError(f"horizon: expected a positive number of steps, got {horizon}")
        episodes = self._require_whole_episodes()
        steps, lasts = position_in_episode(episodes), ends_episode(episodes)
        discounts, complete = np.power(float(gamma), steps), self.terminations[lasts]
        if horizon is not None:
            discounts[steps >= horizon] = 0.0
            complete = complete | (steps[lasts] + 1 >= horizon)
        starts = np.flatnonzero(starts_episode(episodes))
        return np.add.reduceat(self.rewards * discounts[:, None], starts), complete

    def _with(self, changes: Mapping[str, Any]) -> "Dataset":
        """The same with other values, which were checked; no warning is emitted again."""
        return restored({**vars(self), "prepared": (), **changes})

    def _require_whole_episodes(self) -> Array:
        if self.episodes is None:
            raise DataError(
                "episodes are unknown: the rows are separate transitions; give episodes, or flags"
                " with the rows in order"
            )
        if not self.whole_episodes:
            raise DataError(
                "episodes are incomplete: subset took some of their rows, or changed the order;"
                " use the full data, or a subset of whole episodes"
            )
        return self.episodes

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal: of the content, anew each time; of a prepared log, of the
        checksums of its files.
        """
        return self.prepared[1] if self.prepared else fingerprint(self)

    def __repr__(self) -> str:
        parts = [f"{len(self)} rows"]
        if self.episodes is not None:
            parts.append(f"{self.number_of_episodes} episodes")
        parts += [f"{name}: {space}" for name, space in self._spaces().items()]
        return f"Dataset({', '.join(parts)}, rewards: {', '.join(self.reward_names)})"

    def summary(self) -> str:
        """The sizes, the spaces, the range of each reward, how rows end, and all reservations."""
        lines = [
            f"rows: {len(self)}",
            f"episodes: {'unknown' if self.episodes is None else self.number_of_episodes}",
        ]
        lines += [f"{name}: {space}" for name, space in self._spaces().items()]
        for name, values in zip(self.reward_names, self.rewards.T, strict=True):
            lines.append(f"{name}: {values.min():g} to {values.max():g}, mean {values.mean():g}")
        lines.append(
            f"terminated: {self.terminations.mean():.2%} of rows,"
            f" truncated: {self.truncations.mean():.2%}"
        )
        if self.propensities is not None:
            lines.append(f"propensities: {self.propensities_in_words()}")
        if self.steps is not None:
            lines.append(f"steps: {self.steps.min()} to {self.steps.max()} (time-dependent)")
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def columns(self) -> dict[str, Array]:
        """The rows as they are used: actions by their labels, features and rewards by name."""
        table: dict[str, Array] = {}
        if self.episodes is not None:
            table["episode"] = self.episodes
        for role, values in (("observation", self.observations), ("action", self.actions)):
            if values.ndim == 1:
                labels = np.asarray(self.action_labels) if role == "action" else ()
                table[role] = labels[values] if len(labels) else values
                continue
            names = getattr(self, f"{role}_names") or range(values.shape[1])
            table |= {f"{role}.{name}": values[:, i] for i, name in enumerate(names)}
        alone = self.reward_names == ("reward",)
        for name, values in zip(self.reward_names, self.rewards.T, strict=True):
            table["reward" if alone else f"reward.{name}"] = values
        return table | {"terminated": self.terminations, "truncated": self.truncations}

    def _repr_html_(self) -> str:
        lines = [line.partition(": ")[::2] for line in self.summary().splitlines()]
        return html_lines("Logged data", lines)

    def propensities_in_words(self) -> str:
        """What is logged about the policy that logged the data."""
        if self.propensities is None:
            return "not logged"
        if self.propensities.ndim == 2:
            return "logged, of every action"
        low, high = self.propensities.min(), self.propensities.max()
        kind = "probabilities" if self.discrete_actions else "densities"
        return f"logged, {kind} from {low:.3g} to {high:.3g}"

    def _spaces(self) -> dict[str, str]:
        if self.number_of_observations is None:
            observed = f"{self.observations.shape[1]} features ({self.observations.dtype})"
        else:
            observed = f"{self.number_of_observations} discrete states"
        more = ", ..." if len(self.action_labels) > MOST_LABELS else ""
        shown = ", ".join(self.action_labels[:MOST_LABELS]) + more
        labels = f" ({shown})" if shown else ""
        acted = (
            f"{self.number_of_actions} discrete{labels}"
            if self.discrete_actions
            else f"{self.action_dim} continuous"
        )
        return {"observations": observed, "actions": acted}


def restored(values: Mapping[str, Any]) -> Dataset:
    """A data set of values for all fields that were checked before; nothing is emitted."""
    data = Dataset.__new__(Dataset)
    Record.__init__(data, **values)
    return data


def emit_warnings(data: Dataset, stacklevel: int) -> None:
    """Emit the reservations; `stacklevel` counts from the caller of this function."""
    for message in data.warnings:
        python_warnings.warn(message, FLEWarning, stacklevel=stacklevel + 1)


def _row_indices(rows: npt.ArrayLike, length: int) -> Array:
    chosen = numeric_array("rows", rows)
    if chosen.dtype == bool:
        require_rows("the mask", chosen, length)
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise DataError(f"rows: expected 1-d integers or a mask, got {chosen.dtype} {chosen.shape}")
    if len(chosen) == 0:
        raise DataError("rows: expected at least one row, got none; choose some")
    outside = (chosen < 0) | (chosen >= length)
    if outside.any():
        raise DataError(
            f"rows: expected indices from 0 to {length - 1}, got {chosen[np.argmax(outside)]}"
        )
    return chosen.astype(np.int64)
