"""How well the log covers where the target policy goes, and where it does so worst."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fle.data import Dataset
from fle.data.passes import Array
from fle.fitting.occupancy import Occupancy

# Standard deviations of the log by which visits are called elsewhere, and how often an action must
# be taken for one logged time.
ELSEWHERE, RARE = 0.3, 1.5
# Parts of the way that weigh less are not looked at for the fewest rows.
WEIGHS = 0.01
# States that are named, and their least share of the visits.
NAMED, OFTEN = 3, 0.05


@dataclass(frozen=True)
class StepRows:
    """What the log is worth at a step of the policy's way: how many rows, all alike."""

    step: int
    rows: float


@dataclass(frozen=True)
class Visits:
    """How well the log covers where the policy goes and what it does there, over its whole way.

    effective_rows: 1 / sum p², with p the policy's discounted visits of (observation, action) as a
        law over logged rows; out of `rows`.
    beyond: share of its way where hardly anything was logged.
    by_step: effective rows at each part of the way.
    where, actions: what is visited or done far more often than it was logged, in the names of the
        data; empty where nothing stands out.
    """

    effective_rows: float
    rows: int
    beyond: float
    by_step: tuple[StepRows, ...]
    where: str
    actions: str

    @classmethod
    def of(cls, data: Dataset, found: Occupancy) -> "Visits":
        """From an occupancy of the same data."""
        rows, chances, beyond, by_step = found.pairs
        scale = len(data) / max(len(rows), 1)
        effective = scale / max(float((chances**2).sum()), 1e-300) if chances.any() else 0.0
        total = sum(mass for _, _, mass in by_step)
        steps = tuple(StepRows(step, r) for step, r, mass in by_step if mass >= WEIGHS * total)
        return cls(
            float(min(effective, len(data))),
            len(data),
            float(beyond),
            steps,
            _observed(data, rows, chances),
            _done(data, rows, chances),
        )

    @property
    def fewest(self) -> StepRows:
        """The part of the way that the log shows least of."""
        return min(self.by_step, key=lambda one: one.rows, default=StepRows(0, 0.0))

    def in_words(self) -> str:
        """The figures in one line."""
        words = (
            f"where the policy goes, the {self.rows:,} rows are worth about"
            f" {self.effective_rows:,.0f}"
        )
        if self.beyond >= WEIGHS:
            words += f", and {self.beyond:.0%} of its way was hardly logged"
        return words

    def wanted(self) -> str:
        """What should be logged, in the names of the data; empty where nothing stands out."""
        return " and ".join(filter(None, (self.where, self.actions)))

    def as_plain(self) -> dict[str, Any]:
        """For files and machines."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Visits":
        """From the content of a file."""
        steps = tuple(StepRows(**one) for one in plain["by_step"])
        return cls(**{**plain, "by_step": steps})


def _observed(data: Dataset, rows: Array, chances: Array) -> str:
    """The observations that are visited more than logged."""
    observations = data.observations[rows]
    if observations.ndim == 1:
        return _codes("state", observations, chances, ())
    return _column(observations, chances, data.observation_names, "observation")


def _done(data: Dataset, rows: Array, chances: Array) -> str:
    """The actions that are taken more than logged."""
    actions = data.actions[rows]
    if actions.ndim == 1:
        return _codes("action", actions, chances, data.action_labels)
    return _column(actions, chances, data.action_names, "action")


def _codes(kind: str, codes: Array, chances: Array, labels: tuple[str, ...]) -> str:
    names, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    visited, logged = np.bincount(places, chances), counts / len(codes)
    known = np.flatnonzero((visited > OFTEN) & (visited > RARE * logged))
    worst = known[np.argsort(-visited[known] / logged[known])][:NAMED]
    return ", ".join(
        f"{kind} {labels[names[place]] if labels else names[place]} ({visited[place]:.0%} of its"
        f" visits, {logged[place]:.1%} of the rows)"
        for place in worst
    )


def _column(values: Array, chances: Array, names: tuple[str, ...], kind: str) -> str:
    """The column that is shifted most, as a half-line with half of the visits."""
    moved = (chances @ values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-300)
    column = int(np.argmax(np.abs(moved)))
    if not abs(moved[column]) > ELSEWHERE:
        return ""
    chosen = values[:, column]
    order = np.argsort(chosen)
    reached = np.cumsum(chances[order])
    middle = chosen[order][np.searchsorted(reached, 0.5 * reached[-1])]
    above = moved[column] > 0
    share = float(np.mean(chosen >= middle if above else chosen <= middle))
    name = names[column] if names else f"{kind} {column}"
    side = "from {:.4g} on" if above else "up to {:.4g}"
    return f"{name} {side.format(middle)} (half of its visits, {share:.1%} of the rows)"
