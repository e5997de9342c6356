"""Targets follow the log while it does what the policy might have done, then ask the fit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fle.data import Dataset
from fle.data.passes import aligned, row_blocks, shows_next, successors
from fle.policies import ActionTable

# Minus the logarithm of a chance that is zero, as far as float64 can add up millions of them.
NEVER = 1e3
# Rows that tell how far the log is followed on average, to 0.3% of a standard deviation.
MOST_ASKED = 100_000


class Lines(NamedTuple):
    """Uses of rows: what the log showed after each, and where the previous fit is asked.

    z = rewards + discounts * y, y ~ fit at (next observation of `ends`, a' ~ `probabilities` of the
    trail there).

    Arrays of NumPy where they are drawn, of JAX in compiled code.

    rows, ends: (k,) the row whose return is fitted, and the last row that was followed.
    rewards: (k, d) sum of gamma^t r_t from `rows` to `ends`, in the units of the encoder.
    discounts: (k,) of the return that follows; 0 where the episode or the horizon is over.
    fits: (k,) which of the fits is asked.
    """

    rows: Any
    ends: Any
    rewards: Any
    discounts: Any
    fits: Any


class Coupling(NamedTuple):
    """The maximal coupling of the target policy p and the policy mu that logged the data.

    The logged action is taken with probability min(1, p/mu); else one is drawn from what is left,
    p - min(p, mu). It has the law p, is the logged one as often as possible (Lindvall 1992, the
    rule of speculative sampling), and is exact where mu is.

    accepted: (n,) min(1, p/mu) of the action logged at the next row.
    shared: (n, candidates) min(1, mu/p) of the candidates.
    """

    accepted: np.ndarray
    shared: np.ndarray


@dataclass(frozen=True, eq=False)
class Trail:
    """How far each row's target may follow the log, drawn afresh each time.

    From a row the log is followed to the next with probability `chance`; where it is not, the
    policy's action at the next observation has the law `probabilities`. Together they give the
    action exactly the policy's law p, whatever was logged: the logged action a is followed with
    probability trace * p(a), and what is left, p - trace * p(a) 1_a, is normalised.

    chance: (n,) zero where there is no next row.
    probabilities: (n, candidates), normalised.
    rewards: (n, d) in the units of the encoder. terminations: (n,) flags.
    linked: (n,) whether there is a next row that could be followed.
    """

    chance: np.ndarray
    probabilities: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    linked: np.ndarray
    gamma: float

    @classmethod
    def of(
        cls,
        data: Dataset,
        table: ActionTable,
        rewards: np.ndarray,
        gamma: float,
        trace: float,
        coupling: "Coupling | None" = None,
    ) -> "Trail":
        """Of a policy's actions at the next observations of the data.

        trace: probability to go on where the log agrees with the policy; 0 never follows it.
        coupling: with the policy that logged the data; without it, both act independently.
        """
        linked = linked_rows(data) & (trace > 0)
        if not linked.any():
            chance = np.zeros(len(data))
            return cls(chance, table.probabilities, rewards, data.terminations, linked, gamma)
        following = successors(data.actions, overwrite=False)[:, None]
        chance = np.empty(len(data))
        probabilities = aligned(table.probabilities.shape)
        for block in row_blocks(len(data)):
            policy, going = table.probabilities[block], linked[block]
            if coupling is None:
                agrees = table.actions[block] == following[block]
                agrees = agrees if agrees.ndim == 2 else agrees.all(axis=2)
                followed = trace * np.where(agrees & going[:, None], policy, 0.0)
                chance[block] = followed.sum(axis=1)
            else:
                followed = trace * np.where(going[:, None], policy * coupling.shared[block], 0.0)
                chance[block] = trace * np.where(going, coupling.accepted[block], 0.0)
            left = policy - followed
            total = left.sum(axis=1)
            # What is always followed is never asked.
            asked = total > 1e-9
            left /= np.where(asked, total, 1.0)[:, None]
            probabilities[block] = np.where(asked[:, None], left, policy)
        return cls(chance, probabilities, rewards, data.terminations, linked, gamma)

    @cached_property
    def of_log(self) -> "Trail":
        """The log followed to its end, whatever the policy would have done."""
        return replace(self, chance=self.linked.astype(np.float32))

    def forget_log(self) -> None:
        """Let go of what `of_log` holds, which the first stage alone needs."""
        vars(self).pop("of_log", None)

    @cached_property
    def follows(self) -> bool:
        """Whether any row is ever followed."""
        return bool(self.chance.any())

    @cached_property
    def is_certain(self) -> bool:
        """Whether no draw of a target differs from another in how far it follows the log."""
        return bool(np.isin(self.chance, (0.0, 1.0)).all())

    @cached_property
    def _hazard(self) -> np.ndarray:
        """Sum over rows up to each of minus the logarithm of the chance to go on."""
        with np.errstate(divide="ignore"):
            return np.cumsum(np.minimum(-np.log(self.chance), NEVER), dtype=np.float64)

    @cached_property
    def _to_go(self) -> np.ndarray:
        """(n + 1, d) Discounted rewards from each row to where the log cannot be followed."""
        total = np.concatenate([self.rewards, np.zeros((1, self.rewards.shape[1]))])
        goes_on = self.chance > 0
        step, discount = 1, self.gamma
        # Sums over twice as many rows from sums over as many.
        while step < len(total) and goes_on.any():
            # Rows ahead lie in this block, or in one that was not yet changed.
            for block in row_blocks(len(total) - step):
                ahead = slice(block.start + step, block.stop + step)
                total[block] += (discount * goes_on[block])[:, None] * total[ahead]
            for block in row_blocks(len(goes_on) - step):
                goes_on[block] &= goes_on[block.start + step : block.stop + step]
            goes_on[max(len(goes_on) - step, 0) :] = False
            step, discount = 2 * step, discount**2
        return total

    def shrinkage(self, generator: np.random.Generator) -> tuple[float, float, float]:
        """Mean number of rows a target follows, this one included; the mean of gamma to that power
        where more follows, which is by how much an update shrinks what the previous fit has wrong;
        and the share of rows where more follows.
        """
        rows = np.arange(len(self.chance))
        if len(rows) > MOST_ASKED:
            rows = generator.integers(len(rows), size=MOST_ASKED)
        ends = self._ends(rows, generator)
        going, lengths = ~self.terminations[ends], ends - rows + 1
        factor = float(np.mean(self.gamma ** lengths[going])) if going.any() else 0.0
        return float(np.mean(lengths)), factor, float(going.mean())

    def _ends(self, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """The last row that is followed from each of these; drawn anew."""
        if not self.follows:
            return rows
        before = np.where(rows > 0, self._hazard[rows - 1], 0.0)
        levels = before + generator.standard_exponential(len(rows))
        ends = np.searchsorted(self._hazard, levels, side="right")
        return np.minimum(np.maximum(ends, rows), len(self.chance) - 1)

    def lines(
        self,
        rows: np.ndarray,
        generator: np.random.Generator,
        *,
        fit: int,
        left: int | None = None,
    ) -> Lines:
        """A draw for each of the rows.

        fit: the number of the last fit; -1 before the first, and then nothing follows.
        left: steps to go in a problem with a horizon, where every further step asks an earlier
            fit; None in a discounted problem, where all ask the last one.
        """
        ends = self._ends(rows, generator)
        if left is not None:
            ends = np.minimum(ends, rows + left - 1)
        steps = ends - rows + 1
        powers = self.gamma**steps
        beyond = np.where(self.chance[ends] > 0, powers, 0.0)
        rewards = self._to_go[rows] - beyond[:, None] * self._to_go[ends + 1]
        goes_on = ~self.terminations[ends] & (fit >= 0)
        fits = np.full(len(rows), max(fit, 0))
        if left is not None:
            goes_on &= steps < left
            fits = np.maximum(fit - steps + 1, 0)
        return Lines(
            rows.astype(np.int32),
            ends.astype(np.int32),
            rewards.astype(np.float32),
            np.where(goes_on, powers, 0.0).astype(np.float32),
            fits.astype(np.int32),
        )


def linked_rows(data: Dataset) -> np.ndarray:
    """(n,) Whether the row after each is what came next in its episode."""
    linked = np.zeros(len(data), bool)
    if data.episodes is None or len(data) < 2:
        return linked
    same = data.episodes[1:] == data.episodes[:-1]
    ended = data.terminations[:-1] | data.truncations[:-1]
    continued = shows_next(data.observations, data.next_observations)[:-1]
    if data.observations.ndim == 1 and not data.whole_episodes:
        # A code comes back too often to tell that no row is missing in between.
        if data.steps is None:
            return linked
        continued &= data.steps[1:] == data.steps[:-1] + 1
    linked[:-1] = same & ~ended & continued
    return linked


def discrete_coupling(data: Dataset, policy: np.ndarray, logging: np.ndarray) -> Coupling:
    """Of probabilities (n, A) of all actions at the next observations."""
    following = successors(data.actions, overwrite=False)[:, None]
    p, mu = (np.take_along_axis(values, following, axis=1)[:, 0] for values in (policy, logging))
    accepted = np.minimum(1.0, p / np.maximum(mu, 1e-30))
    del p, mu, following
    shared = np.maximum(policy, 1e-30)
    np.divide(logging, shared, out=shared)
    return Coupling(accepted, np.minimum(1.0, shared, out=shared))


def normal_coupling(
    data: Dataset, table: ActionTable, densities: Callable[[np.ndarray], np.ndarray]
) -> Coupling:
    """Of a normal policy, with densities (n, m) of actions (n, m, k) at the next observations."""
    following = successors(data.actions, overwrite=False)[:, None]
    everything = np.concatenate([following, table.actions], axis=1)
    with np.errstate(divide="ignore"):
        ratio = table.log_densities(everything) - np.log(densities(everything))
    return Coupling(np.exp(np.minimum(0.0, ratio[:, 0])), np.exp(np.minimum(0.0, -ratio[:, 1:])))


def by_fit(lines: Lines, size: int, fits: int) -> tuple[Lines, np.ndarray]:
    """The lines in blocks of `size` that ask one fit each, and where each line went.

    The number of blocks depends on the number of lines and fits alone.
    """
    blocks = -(-len(lines.rows) // size) + fits
    order = np.argsort(lines.fits, kind="stable")
    counts = np.bincount(lines.fits, minlength=fits)
    lengths = -(-counts // size) * size
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sorted_fits = lines.fits[order]
    places = np.empty(len(lines.rows), np.int64)
    places[order] = starts[sorted_fits] + np.arange(len(lines.rows)) - firsts[sorted_fits]
    # What only fills up repeats a line of the same fit.
    source = np.zeros(blocks * size, np.int64)
    for first, count, start, length in zip(firsts, counts, starts, lengths, strict=True):
        if count:
            source[start : start + length] = order[first + np.arange(length) % count]
    return Lines(*(column[source] for column in lines)), places
