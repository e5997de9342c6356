"""What a task is: a log, a target policy, and draws of the return it truly has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.policies import Deterministic, Normal, Probabilities
from fle.tasks import draw_categorical

Array = NDArray[Any]
# Starts that are given with a log: where episodes begin is known, and not only from logged ones.
INITIAL_OBSERVATIONS = 10_000


class ActingPolicy(Protocol):
    """A policy that both acts in an environment and is given to `fle.evaluate`."""

    @property
    def target(self) -> Any:
        """The form in which `fle.evaluate` takes it."""

    def act(self, observations: Array, generator: np.random.Generator) -> Array:
        """Actions, one for each observation."""


@dataclass(frozen=True)
class DiscretePolicy:
    """observations (n, ...) -> probabilities (n, A)."""

    probabilities: Callable[[Array], Array]

    @property
    def target(self) -> Probabilities:
        return Probabilities(self.probabilities)

    def act(self, observations: Array, generator: np.random.Generator) -> Array:
        return draw_categorical(self.probabilities(observations), generator)


@dataclass(frozen=True)
class NormalPolicy:
    """Independent normal actions: observations (n, p) -> mean (n, k), with one std for all.

    Environments clip what they are given where they must; the logged action is the one drawn.
    """

    mean: Callable[[Array], Array]
    std: float

    @property
    def target(self) -> Normal:
        def mean_and_std(observations: Array) -> tuple[Array, Array]:
            mean = self.mean(observations)
            return mean, np.full(mean.shape[1], self.std)

        return Normal(mean_and_std)

    def act(self, observations: Array, generator: np.random.Generator) -> Array:
        mean = self.mean(observations)
        return mean + self.std * generator.standard_normal(mean.shape)


@dataclass(frozen=True)
class FixedPolicy:
    """One continuous action an observation: (n, p) -> (n, k)."""

    action: Callable[[Array], Array]

    @property
    def target(self) -> Deterministic:
        return Deterministic(self.action)

    def act(self, observations: Array, generator: np.random.Generator) -> Array:
        return self.action(observations)


def mostly(
    choose: Callable[[Array], Array], number_of_actions: int, noise: float
) -> DiscretePolicy:
    """Does what `choose` says, (n,) integers; with probability `noise` any action, all equal."""

    def probabilities(observations: Array) -> Array:
        answer = np.full((len(observations), number_of_actions), noise / number_of_actions)
        answer[np.arange(len(answer)), choose(observations)] += 1 - noise
        return answer

    return DiscretePolicy(probabilities)


@dataclass(frozen=True)
class Event:
    """Something that a return (n, d) shows: which of the n happened."""

    text: str
    happened: Callable[[Array], Array]


def below(threshold: float, text: str, coordinate: int = 0) -> Event:
    """A return under a threshold."""
    return Event(text, lambda returns: returns[:, coordinate] < threshold)


class Source(Protocol):
    """Where a task's data and truth come from: an environment, and who acts in it.

    policy: the target policy.
    gamma, horizon: the question, as `fle.evaluate` takes it; a discounted one has no horizon.
    """

    policy: ActingPolicy
    gamma: float
    horizon: int | None

    def log(self, rows: int, seed: int) -> dict[str, Any]:
        """Columns of `fle.Dataset`, logged by the behaviour policy."""

    def truth(self, n: int, seed: int) -> Array:
        """Returns (n, d) of the target policy."""


@dataclass(frozen=True)
class Task:
    """One question with a known answer.

    name: the family's, a dash, and what is special.
    rows: logged rows by default.
    covered: whether the log shows what the policy does, so that accuracy may be asked for.
    truth_size: how many returns are drawn for a table, at least 10,000.
    events: chances to be compared, the worst event first.
    exact_mean: the mean return (d,), where it is known.
    """

    name: str
    source: Source
    rows: int = 100_000
    covered: bool = True
    truth_size: int = 50_000
    events: tuple[Event, ...] = ()
    exact_mean: Callable[[], ArrayLike] | None = None
    notes: str = ""

    @property
    def family(self) -> str:
        """The name of its module."""
        return self.name.split("-")[0]


def steps_until_negligible(gamma: float, horizon: int | None) -> int:
    """How long a return must be played: to the horizon, or until 1e-5 of it is left."""
    return horizon if horizon is not None else int(np.ceil(np.log(1e-5) / np.log(gamma)))


def position_in_episode(episodes: Array) -> Array:
    """(n,) Steps since the episode began, of rows sorted by episode."""
    starts = np.flatnonzero(np.append(True, np.diff(episodes) != 0))
    lengths = np.diff(np.append(starts, len(episodes)))
    return np.arange(len(episodes)) - np.repeat(starts, lengths)


def logged_events(event: Event, columns: dict[str, Any], gamma: float) -> int:
    """In how many logged episodes the event happened, so far as they were logged."""
    episodes = columns["episodes"]
    position = position_in_episode(episodes)
    rewards = np.reshape(columns["rewards"], (len(episodes), -1))
    discounted = rewards * np.power(float(gamma), position)[:, None]
    returns = np.add.reduceat(discounted, np.flatnonzero(position == 0))
    return int(event.happened(returns).sum())
