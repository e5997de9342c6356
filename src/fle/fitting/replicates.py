"""Replicates of an evaluation: the same plan, fitted to resampled episodes from its fits on."""

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Event
from typing import Protocol

import numpy as np

from fle.data import Dataset
from fle.data.episodes import starts_episode
from fle.fitting.encoding import Fitted
from fle.fitting.loop import Loop, LoopState
from fle.fitting.problem import Stage
from fle.fitting.targets import Purpose, Randomness
from fle.recipe import REFIT_LEFT, REFIT_SHARE, REFIT_STEPS
from fle.returns.intervals import Interval
from fle.screen import Progress

# Replicates that are trained side by side: a fit has one thread, and each needs memory of its own.
SIDE_BY_SIDE = 2
# Below this many episodes an interval is rough itself.
FEW_EPISODES = 20


@dataclass(frozen=True, eq=False)
class Resampling:
    """What is drawn anew for a replicate: whole episodes, or rows where nothing joins them.

    owners: (n,) the unit of every row. number: how many units there are.
    starts: (m,) the unit of every initial observation, where they are those of the episodes.
    """

    owners: np.ndarray
    number: int
    starts: np.ndarray | None
    words: str

    @classmethod
    def of(cls, data: Dataset) -> "Resampling":
        """Of these data; initial observations that no episode began with stay as they are."""
        if data.episodes is None:
            words = "resampled rows, as the log has no episodes, from the initial states as given"
            return cls(np.arange(len(data)), len(data), None, words)
        starts = data.initial_observations
        firsts = np.flatnonzero(starts_episode(data.episodes))
        units = data.episodes[firsts]
        if (
            starts is not None
            and units.max() < len(starts)
            and np.array_equal(data.observations[firsts], starts[units])
        ):
            own = np.arange(len(starts))
            return cls(data.episodes, len(starts), own, "resampled episodes with their starts")
        numbers = np.searchsorted(units, data.episodes)
        words = "resampled episodes, from the initial states as given"
        return cls(numbers, len(units), None, words)

    @property
    def impossible(self) -> str | None:
        """Why there can be no interval, in words; None where there can."""
        if self.number > 1:
            return None
        return (
            "no intervals: the log is one episode, and episodes are what is resampled; log more of "
            "them, or cut it where one part of it does not depend on the others"
        )

    def notes(self) -> tuple[str, ...]:
        """What is to be known about these intervals."""
        if self.number >= FEW_EPISODES:
            return ()
        return (f"intervals of {self.number} episodes are rough: they need more to resample",)

    def counts(self, seed: int, replicate: int, stages: tuple[Stage, ...]) -> np.ndarray:
        """(number,) How often a replicate has each unit; the same whatever the policy is.

        A stage that would be left without rows, as of a step that few episodes reach, gets a unit.
        """
        generator = Randomness(seed, Purpose.RESAMPLE, replicate).generator
        drawn = generator.integers(self.number, size=self.number)
        counts = np.bincount(drawn, minlength=self.number)
        for rows in {id(stage.rows): stage.rows for stage in stages}.values():
            if not counts[self.owners[rows]].any():
                counts[generator.choice(self.owners[rows])] = 1
        return counts

    def row_weights(self, counts: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """(n,) How much every row counts in a replicate."""
        own = counts[self.owners].astype(float)
        return own if weights is None else own * weights


@dataclass(frozen=True, eq=False)
class Refits:
    """What is kept of the replicates of an evaluation.

    fits: by replicate, those that `Evaluation.fits` has. counts: (replicates, units).
    starts: (k,) the unit of every initial input of the evaluation; None where all stay as given.
    """

    level: float
    resampled: str
    fits: tuple[tuple[Fitted, ...], ...]
    counts: np.ndarray
    starts: np.ndarray | None

    def starting_from(self, resampling: Resampling, inputs: np.ndarray) -> "Refits":
        """With initial inputs that belong to these initial observations."""
        starts = resampling.starts
        return replace(self, starts=None if starts is None else starts[inputs])

    def start_weights(self, replicate: int, weights: np.ndarray) -> np.ndarray:
        """(k,) Of the initial inputs of a replicate."""
        if self.starts is None:
            return weights
        resampled: np.ndarray = weights * self.counts[replicate][self.starts]
        return resampled / resampled.sum()


class RefitKeeper(Protocol):
    """Keeps what finished replicates gave, for a run that is stopped."""

    def restore_refit(self, replicate: int, like: tuple[Fitted, ...]) -> tuple[Fitted, ...] | None:
        """The fits of a replicate that was finished before; `like` has the same shapes."""

    def keep_refit(self, replicate: int, fits: tuple[Fitted, ...]) -> None:
        """A replicate is finished."""


class NoRefitKept:
    """Replicates that are not written anywhere."""

    def restore_refit(self, replicate: int, like: tuple[Fitted, ...]) -> tuple[Fitted, ...] | None:
        """Nothing."""
        return None

    def keep_refit(self, replicate: int, fits: tuple[Fitted, ...]) -> None:
        """Nothing."""


class _StoppedError(Exception):
    """Somebody stopped the replicates."""


def replicates(
    loop: Loop,
    state: LoopState,
    resampling: Resampling,
    interval: Interval,
    keeper: RefitKeeper,
    progress: Progress,
    known: Refits | None = None,
) -> Refits:
    """Fits to resampled episodes, from the fits that the loop ended with.

    known: those of another policy that are this one's too.
    """
    number, words = interval.replicates, resampling.words
    counts = np.array([resampling.counts(loop.seed, b, loop.stages) for b in range(number)])
    if known is not None:
        return Refits(interval.level, words, known.fits, counts, None)
    found = {b: fits for b in range(number) if (fits := keeper.restore_refit(b, state.fits))}
    left = [b for b in range(number) if b not in found]
    warm = warm_loop(loop, state)
    compiled, stopped = Event(), Event()

    def going_on() -> None:
        compiled.set()
        if stopped.is_set():
            raise _StoppedError

    def one(replicate: int) -> tuple[Fitted, ...]:
        # The first compiles for all.
        if replicate != left[0]:
            compiled.wait()
        try:
            return refit(loop, warm, resampling, replicate, going_on)
        finally:
            compiled.set()

    progress.start(number, f"{loop.spec.name}, replicates")
    try:
        for replicate, fits in _as_finished(one, left, stopped):
            keeper.keep_refit(replicate, fits)
            found[replicate] = fits
            progress.advance(len(found), math.nan)
    finally:
        progress.finish()
    return Refits(interval.level, words, tuple(found[b] for b in range(number)), counts, None)


def refit(
    loop: Loop,
    warm: Loop,
    resampling: Resampling,
    replicate: int,
    going_on: Callable[[], None],
) -> tuple[Fitted, ...]:
    """The fits of one replicate, whoever asks for it.

    loop: of the evaluation. warm: that of its replicates. going_on: as of `Loop.refit`.
    """
    counts = resampling.counts(loop.seed, replicate, loop.stages)
    weights = resampling.row_weights(counts, loop.weights)
    seed = Randomness(loop.seed, Purpose.REFIT, replicate).generator.integers(2**31)
    return replace(warm, weights=weights, seed=int(seed)).refit(going_on)


def _as_finished(
    work: Callable[[int], tuple[Fitted, ...]], items: list[int], stopped: Event
) -> Iterator[tuple[int, tuple[Fitted, ...]]]:
    """Results as they come, of a few items at a time; what is under way is stopped on an error."""
    with ThreadPoolExecutor(min(SIDE_BY_SIDE, os.cpu_count() or 1)) as pool:
        waiting: dict[Future[tuple[Fitted, ...]], int] = {pool.submit(work, i): i for i in items}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def warm_loop(loop: Loop, state: LoopState) -> Loop:
    """The loop of a replicate: fewer stages where one update is repeated, else fewer steps.

    A replicate begins where the evaluation ended, not far from where it must go: the way shrinks by
    a factor a stage, and what may be left of it is REFIT_LEFT.
    """
    stages, recipe = loop.stages, loop.recipe
    if not loop.finite:
        _, factor, _ = loop.trail.shrinkage(np.random.default_rng(0))
        needed = 1 if factor == 0 else math.ceil(math.log(REFIT_LEFT) / math.log(factor))
        stages = stages[-min(needed, len(stages)) :]
    if loop.finite or len(stages) > REFIT_SHARE * len(loop.stages):
        recipe = replace(recipe, steps=max(1, round(REFIT_STEPS * recipe.steps)))
    stages = tuple(replace(stage, decays=()) for stage in stages)
    recipe = replace(recipe, weight_decay=state.weight_decay)
    # What is resampled are the episodes of the plan.
    return replace(loop, stages=stages, recipe=recipe, warm=state.fits, feeding=None)
