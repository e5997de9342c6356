"""What a data set is, in words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fle.data.dataset import Dataset


def one_line(data: "Dataset") -> str:
    """The sizes and spaces of the data."""
    parts = [f"{len(data)} rows"]
    if data.episodes is not None:
        parts.append(f"{data.number_of_episodes} episodes")
    parts += [f"observations: {_observation_space(data)}", f"actions: {_action_space(data)}"]
    return f"Dataset({', '.join(parts)}, rewards: {', '.join(data.reward_names)})"


def summary(data: "Dataset") -> str:
    """The sizes, the spaces, the range of each reward, how rows end, and all reservations."""
    lines = [
        f"rows: {len(data)}",
        f"episodes: {'unknown' if data.episodes is None else data.number_of_episodes}",
        f"observations: {_observation_space(data)}",
        f"actions: {_action_space(data)}",
    ]
    for name, values in zip(data.reward_names, data.rewards.T, strict=True):
        lines.append(f"{name}: {values.min():g} to {values.max():g}, mean {values.mean():g}")
    lines.append(
        f"terminated: {data.terminations.mean():.2%} of rows,"
        f" truncated: {data.truncations.mean():.2%}"
    )
    if data.steps is not None:
        lines.append(f"steps: {data.steps.min()} to {data.steps.max()} (time-dependent)")
    lines += [f"note: {note}" for note in data.notes]
    lines += [f"warning: {warning}" for warning in data.warnings]
    return "\n".join(lines)


def _observation_space(data: "Dataset") -> str:
    if data.number_of_observations is not None:
        return f"{data.number_of_observations} discrete states"
    return f"{data.observations.shape[1]} features ({data.observations.dtype})"


def _action_space(data: "Dataset") -> str:
    if data.discrete_actions:
        return f"{data.number_of_actions} discrete"
    return f"{data.action_dim} continuous"
