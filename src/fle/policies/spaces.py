"""What a policy answers, checked against the actions that exist."""

from dataclasses import dataclass

import numpy as np

from fle.errors import PolicyError, SettingsError
from fle.policies.action_table import normalised, require_finite_actions
from fle.policies.kinds import Array


@dataclass(frozen=True)
class Space:
    """The actions that exist: a number of codes, or the width of a vector."""

    number_of_actions: int | None
    action_dim: int | None

    def __post_init__(self) -> None:
        if (self.number_of_actions is None) == (self.action_dim is None):
            raise SettingsError(
                "give number_of_actions (discrete) or action_dim (continuous), and None for the"
                f" other; got {self.number_of_actions} and {self.action_dim}"
            )

    def require_discrete(self) -> int:
        """The number of actions, or a PolicyError where probabilities make no sense."""
        if self.number_of_actions is None:
            raise PolicyError(
                "probabilities were given but the actions are continuous, of width"
                f" {self.action_dim}; expected Deterministic or Stochastic, or, if the logged"
                " actions are codes that were stored as floats, number_of_actions when they are"
                " read (--number-of-actions)"
            )
        return self.number_of_actions


def checked_probabilities(answer: Array, space: Space, row_name: str) -> Array:
    """Rows (n, A) in float64 that sum to one."""
    count = space.require_discrete()
    if answer.ndim != 2 or answer.shape[1] != count:
        raise PolicyError(
            f"probabilities: expected shape (n, {count}) for {count} actions, got {answer.shape}"
        )
    return normalised(row_name, answer)


def checked_actions(answer: Array, space: Space) -> Array:
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
            f" (n, {space.number_of_actions}), got {answer.dtype} of shape {answer.shape}; {hint}."
            ' Of an ONNX file, say what the output is, as in output="logits=NAME"'
        )
    outside = (answer < 0) | (answer >= space.number_of_actions)
    if outside.any():
        row = int(np.argmax(outside))
        raise PolicyError(
            f"actions: row {row} is {answer[row]}; expected 0 to {space.number_of_actions - 1}"
        )
    return answer.astype(np.int64, copy=False)


def checked_normal(answer: Array, space: Space) -> tuple[Array, Array]:
    """Mean and standard deviation, (n, k) each, out of an answer (n, 2, k)."""
    if space.action_dim is None:
        raise PolicyError(
            f"the policy answers a mean and a std, but there are {space.number_of_actions} discrete"
            " actions; expected probabilities or logits"
        )
    if answer.shape[1:] != (2, space.action_dim):
        raise PolicyError(
            f"mean and std: expected shape (n, {space.action_dim}) for continuous actions of width"
            f" {space.action_dim}, got ({len(answer)}, {answer.shape[-1]})"
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
