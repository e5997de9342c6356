"""The questions that all estimators are asked: a task, and policies between it and the uniform one.

Imported in the peers' environments too, so it needs NumPy alone beside what a family needs.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tasks.register import FAMILIES
from tasks.task import Array, DiscretePolicy, Task, position_in_episode


@dataclass(frozen=True)
class Question:
    """One log and one target policy.

    task: name of a task.
    mixed: share of a uniform policy in the target policy; 0 is the task's own.
    """

    task: str
    seed: int
    rows: int
    mixed: float = 0.0

    @property
    def name(self) -> str:
        """Of files."""
        share = f"-mixed{self.mixed:g}" if self.mixed else ""
        return f"{self.task}{share}-{self.rows}-seed{self.seed}"


def task_of(question: Question) -> Task:
    """The task with the question's policy."""
    family = next(f for f in FAMILIES if f.name == question.task.split("-")[0])
    task = next(task for task in family.tasks() if task.name == question.task)
    if not question.mixed:
        return task
    source: Any = task.source
    own, share = source.policy.probabilities, question.mixed

    def probabilities(observations: Array) -> Array:
        answer = own(observations)
        return (1 - share) * answer + share / answer.shape[1]

    policy = DiscretePolicy(probabilities)
    name = f"{task.name}_mixed{share:g}"
    return replace(task, name=name, source=replace(source, policy=policy), events=())


def is_discrete(task: Task) -> bool:
    """Whether its policies are probabilities of discrete actions."""
    return isinstance(task.source.policy, DiscretePolicy)


@dataclass(frozen=True, eq=False)
class PeerLog:
    """A log as peers take it: flat arrays of two dimensions, episodes one after the other.

    Numbers of states become one column each, as peers know no states. With a horizon, the step is
    one more observation and the last step ends an episode, since peers know no horizon; the policy
    is asked without it.
    """

    observations: Array
    actions: Array
    rewards: Array
    terminals: Array
    timeouts: Array
    starts: Array
    positions: Array
    horizon: int | None
    states: bool = False

    @classmethod
    def of(cls, task: Task, question: Question) -> "PeerLog":
        """Of the log that every estimator is given."""
        columns = task.source.log(question.rows, question.seed)
        horizon = task.source.horizon
        positions = position_in_episode(columns["episodes"])
        kept = np.ones(len(positions), bool) if horizon is None else positions < horizon
        seen, states = np.asarray(columns["observations"]), columns["observations"].ndim == 1
        starts = columns.get("initial_observations")
        starts = seen[positions == 0] if starts is None else np.asarray(starts)
        if states:
            every = np.concatenate([seen, starts, np.asarray(columns["next_observations"])])
            seen, starts = (np.eye(int(every.max()) + 1)[numbers] for numbers in (seen, starts))
        observations = np.reshape(seen, (len(seen), -1))[kept]
        starts = np.reshape(starts, (len(starts), -1))
        positions, terminals = positions[kept], np.asarray(columns["terminations"], bool)[kept]
        ends = np.append(positions[1:] == 0, True)
        if horizon is not None:
            terminals = terminals | (positions == horizon - 1)
            observations = np.column_stack([observations, positions / horizon])
            starts = np.column_stack([starts, np.zeros(len(starts))])
        return cls(
            observations.astype(np.float32),
            np.asarray(columns["actions"])[kept],
            np.asarray(columns["rewards"], float)[kept],
            terminals,
            ends & ~terminals,
            starts.astype(np.float32),
            positions,
            horizon,
            states,
        )

    def plain(self, observations: Array) -> Array:
        """Observations as the task's policies know them."""
        plain = observations if self.horizon is None else observations[:, :-1]
        return plain.argmax(axis=1) if self.states else plain


def padded(log: PeerLog, columns: dict[str, tuple[np.ndarray, Any]]) -> tuple[int, dict[str, Any]]:
    """Every column with episodes of one length, filled up with what it says."""
    episode = np.cumsum(log.positions == 0) - 1
    longest = int(log.positions.max()) + 1
    places = episode * longest + log.positions
    total = (int(episode[-1]) + 1) * longest
    filled = {}
    for name, (column, filling) in columns.items():
        whole = np.empty((total, *column.shape[1:]), column.dtype)
        whole[:] = filling
        whole[places] = column
        filled[name] = whole
    return longest, filled
