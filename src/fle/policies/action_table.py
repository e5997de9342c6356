"""What every policy becomes before training: candidate actions and probabilities, checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fle.data import Dataset
from fle.data.validation import SUM_TOLERANCE
from fle.errors import PolicyError, SettingsError

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class ActionTable:
    """For each of n rows, m candidate actions and how probable each is.

    `actions` is (n, m) integers if discrete, (n, m, k) floats if continuous; `probabilities` is
    (n, m), and its rows sum to one. `normal`, where the candidates are draws of independent normal
    actions, has their means and standard deviations, (n, k) each.

    >>> table = ActionTable([[0, 1], [0, 1]], [[0.5, 0.5], [0.9, 0.1]])
    >>> len(table), table.candidates
    (2, 2)
    """

    actions: Array
    probabilities: Array
    normal: tuple[Array, Array] | None = None

    def __post_init__(self) -> None:
        actions, probabilities = np.asarray(self.actions), np.asarray(self.probabilities)
        discrete = actions.dtype.kind in "iu" and actions.ndim == 2
        if not discrete and not (actions.dtype.kind == "f" and actions.ndim == 3):
            raise PolicyError(
                "actions: expected integers of shape (n, m) or floats of shape (n, m, k),"
                f" got {actions.dtype} of shape {actions.shape}"
            )
        if actions.shape[:2] != probabilities.shape:
            raise PolicyError(
                f"probabilities: expected shape {actions.shape[:2]} to match the actions,"
                f" got {probabilities.shape}"
            )
        if actions.size == 0:
            raise PolicyError(
                f"actions: expected at least one row and candidate, got {actions.shape}"
            )
        if discrete and actions.min() < 0:
            row = int(np.argwhere(actions < 0)[0, 0])
            raise PolicyError(f"actions: row {row} has a negative action; expected 0 or more")
        if not discrete:
            require_finite_actions(actions)
        if discrete:
            actions = actions.astype(np.int64, copy=False)
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "probabilities", normalised("row", probabilities))

    @classmethod
    def of_probabilities(cls, probabilities: Array) -> "ActionTable":
        """From (n, A): every action is a candidate; the codes are stored once for all rows."""
        actions = np.broadcast_to(np.arange(probabilities.shape[1]), probabilities.shape)
        return cls(actions, probabilities)

    @classmethod
    def of_single_actions(cls, actions: Array) -> "ActionTable":
        """From (n,) or (n, k): one certain candidate a row."""
        return cls.of_draws(actions[:, None])

    @classmethod
    def of_draws(cls, actions: Array, normal: tuple[Array, Array] | None = None) -> "ActionTable":
        """From (n, m) or (n, m, k): m equally probable candidates a row."""
        return cls(actions, np.full(actions.shape[:2], 1 / actions.shape[1]), normal)

    def at(self, rows: Array) -> "ActionTable":
        """These rows of the table."""
        normal = self.normal
        return ActionTable(
            self.actions[rows],
            self.probabilities[rows],
            None if normal is None else (normal[0][rows], normal[1][rows]),
        )

    def log_densities(self, actions: Array) -> Array:
        """(n, m) of actions (n, m, k), where the policy is normal."""
        if self.normal is None:
            raise PolicyError(
                "densities: the policy is known by actions alone; expected Normal(function), which"
                " gives their mean and standard deviation"
            )
        mean, std = (part[:, None] for part in self.normal)
        squares = ((actions - mean) / std) ** 2 + np.log(2 * np.pi * std**2)
        return -0.5 * squares.sum(axis=2)

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def listed(self) -> Array:
        """(n, m, ...) The candidates; (1, m, ...) where they were stored once for all rows."""
        return self.actions[:1] if self.actions.strides[0] == 0 else self.actions

    def lists_all(self, actions: int) -> bool:
        """Whether the candidates of every row are all actions, in order."""
        return bool(self.candidates == actions and (self.listed == np.arange(actions)).all())

    @property
    def candidates(self) -> int:
        """How many candidate actions each row has."""
        return int(self.actions.shape[1])


@dataclass(frozen=True)
class ActionSpace:
    """The actions that exist, a number of codes or the width of a vector, and what fits them.

    labels: what the codes 0, 1, ... are called, where the data says so.
    """

    number_of_actions: int | None
    action_dim: int | None
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.number_of_actions is None) == (self.action_dim is None):
            raise SettingsError(
                "expected number_of_actions (discrete) or action_dim (continuous), and None for the"
                f" other; got {self.number_of_actions} and {self.action_dim}"
            )

    @classmethod
    def of(cls, data: Dataset) -> "ActionSpace":
        """The actions of logged data."""
        return cls(data.number_of_actions, data.action_dim, data.action_labels)

    def require_discrete(self) -> int:
        """The number of actions, or a PolicyError where probabilities make no sense."""
        if self.number_of_actions is None:
            raise PolicyError(
                "probabilities were given but the actions are continuous, of width"
                f" {self.action_dim}; expected Deterministic or Stochastic, or, if the logged"
                " actions are codes that were stored as floats, `number_of_actions` when they are"
                " read"
            )
        return self.number_of_actions

    def codes_of(self, classes: Sequence[Any]) -> Array:
        """The code of each of a policy's classes, matched by name, or a PolicyError.

        Where the data has labels, the classes must be among them. Where it has none, they must be
        codes: the position of a class says nothing about its action.
        """
        count = self.require_discrete()
        if self.labels:
            places = {label: code for code, label in enumerate(self.labels)}
            known = [places.get(str(name)) for name in classes]
        else:
            known = [_as_code(name, count) for name in classes]
        unknown = [name for name, code in zip(classes, known, strict=True) if code is None]
        if unknown or len(set(known)) < len(known):
            data = ", ".join(map(repr, self.labels)) if self.labels else f"0 to {count - 1}"
            wrong = unknown[0] if unknown else "one twice"
            raise PolicyError(
                f"the policy's classes are {', '.join(repr(name) for name in classes[:10])}, but"
                f" the actions of the data are {data}; expected the same names, got {wrong!r}:"
                " train the policy on these names, or name the actions of the data with"
                " action_labels=[...]"
            )
        return np.asarray(known, dtype=np.int64)

    def by_class(self, answer: Array, classes: Sequence[Any]) -> Array:
        """(n, A) of a policy that answers by its classes, (n, K); others have probability 0."""
        if answer.ndim != 2 or answer.shape[1] != len(classes):
            raise PolicyError(
                f"probabilities: expected shape (n, {len(classes)}) for the policy's"
                f" {len(classes)} classes, got {answer.shape}"
            )
        codes = self.codes_of(classes)
        by_action = np.zeros((len(answer), self.require_discrete()), dtype=np.float64)
        by_action[:, codes] = answer
        return by_action

    def probabilities(self, answer: Array, row_name: str = "row") -> Array:
        """Rows (n, A) in float64 that sum to one."""
        count = self.require_discrete()
        if answer.ndim != 2 or answer.shape[1] != count:
            raise PolicyError(
                f"probabilities: expected shape (n, {count}) for {count} actions, got"
                f" {answer.shape}; actions that were never logged count too: say so when reading,"
                " with number_of_actions=... or action_labels=[...]"
            )
        return normalised(row_name, answer)

    def actions(self, answer: Array) -> Array:
        """(n,) integers or (n, k) floats that exist."""
        if self.number_of_actions is None:
            return self._continuous(answer)
        if answer.dtype.kind == "U" and answer.ndim == 1:
            names, places = np.unique(answer, return_inverse=True)
            return self.codes_of(names.tolist())[places.reshape(-1)]
        if answer.ndim != 1 or answer.dtype.kind == "f":
            hint = (
                "convert actions with .astype(int)"
                if answer.ndim == 1
                else "use .ravel() for (n, 1)"
            )
            raise PolicyError(
                "discrete actions: expected integers of shape (n,), or float probabilities of shape"
                f" (n, {self.number_of_actions}), got {answer.dtype} of shape {answer.shape};"
                f' {hint}. Of an ONNX file, say what the output is, as in output="logits=NAME"'
            )
        outside = (answer < 0) | (answer >= self.number_of_actions)
        if outside.any():
            row = int(np.argmax(outside))
            raise PolicyError(
                f"actions: row {row} is {answer[row]}; expected 0 to {self.number_of_actions - 1}"
            )
        return answer.astype(np.int64, copy=False)

    def _continuous(self, answer: Array) -> Array:
        if answer.dtype.kind == "U":
            raise PolicyError(
                f"the policy answers text, such as {str(answer.flat[0])!r}, but the actions are"
                f" continuous, of width {self.action_dim}; expected numbers"
            )
        actions = answer[:, None] if answer.ndim == 1 and self.action_dim == 1 else answer
        if actions.ndim != 2 or actions.shape[1] != self.action_dim:
            raise PolicyError(
                f"actions: expected shape (n, {self.action_dim}) for continuous actions of width"
                f" {self.action_dim}, got {answer.shape}"
            )
        actions = actions if actions.dtype.kind == "f" else actions.astype(np.float64)
        require_finite_actions(actions)
        return actions

    def mean_and_std(self, answer: Array) -> tuple[Array, Array]:
        """Mean and standard deviation, (n, k) each, out of an answer (n, 2, k)."""
        if self.action_dim is None:
            raise PolicyError(
                f"the policy answers a mean and a std, but there are {self.number_of_actions}"
                " discrete actions; expected probabilities or logits"
            )
        if answer.shape[1:] != (2, self.action_dim):
            raise PolicyError(
                f"mean and std: expected shape (n, {self.action_dim}) for continuous actions of"
                f" width {self.action_dim}, got ({len(answer)}, {answer.shape[-1]})"
            )
        mean, std = answer[:, 0].astype(np.float64), answer[:, 1].astype(np.float64)
        require_finite_actions(mean)
        # Written so that NaN fails it too.
        wrong = ~((std > 0) & (std < np.inf))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise PolicyError(
                f"std: row {row}, column {column} is {std[row, column]}; expected a positive number"
                " (map the output to log_std if it is a logarithm)"
            )
        return mean, std


def _as_code(name: Any, count: int) -> int | None:
    """The code that a class is, if it is one: an integer, a whole float or a flag."""
    number = isinstance(name, bool | int | float | np.bool_ | np.integer | np.floating)
    if not number or name != int(name) or not 0 <= name < count:
        return None
    return int(name)


def normalised(row_name: str, probabilities: Array) -> Array:
    """Rows of probabilities in float64 that sum to one exactly, or a PolicyError."""
    if probabilities.dtype.kind not in "biuf":
        raise PolicyError(f"probabilities: expected numbers, got dtype {probabilities.dtype}")
    exact = probabilities.astype(np.float64, copy=False)
    # Written so that NaN fails it too.
    wrong = ~(exact >= 0)
    if wrong.any():
        row, action = np.argwhere(wrong)[0]
        raise PolicyError(
            f"probabilities: {row_name} {row}, action {action} is {exact[row, action]};"
            " expected a number from 0 to 1; of scores (logits), take the softmax first"
        )
    sums = exact.sum(axis=1)
    off = ~(np.abs(sums - 1) <= SUM_TOLERANCE)
    if off.any():
        row = int(np.argmax(off))
        raise PolicyError(
            f"probabilities: {row_name} {row} sums to {sums[row]:.6g}; expected 1 within"
            f" {SUM_TOLERANCE:g} ({int(off.sum())} such rows). If these are scores (logits),"
            " apply a softmax"
        )
    return exact / sums[:, None]


def require_finite_actions(actions: Array) -> None:
    """Refuse an action that is NaN or infinite."""
    finite = np.isfinite(actions)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0])
        raise PolicyError(f"actions: row {place[0]} is {actions[place]}; expected a finite action")
