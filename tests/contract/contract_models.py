"""The models of the contract, one line each, and the small problems they are tried on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from example_model import load_example
from scipy import stats

import fle
from fle.tasks import draw_categorical

# All problems have the same number of rows, states and actions: each model is compiled once.
ROWS = 4000
STATES, ACTIONS = 4, 2
SMALL = (32, 32)

MIXTURE_MEANS, MIXTURE_STD = (-1.0, 1.0), 0.3
LINEAR_STD = 0.3


class Query(NamedTuple):
    """Where to ask, and the return that must come."""

    observation: Any
    action: Any
    mean: float


class Problem(NamedTuple):
    """Logged data and a policy, with what is known of its return."""

    data: fle.Dataset
    policy: Any
    horizon: int | None
    returns: np.ndarray  # draws of the policy's return, or the observed returns
    queries: tuple[Query, ...] = ()


class Tabular:
    """Four states and two actions; rewards are mixtures of N(-1, 0.3²) and N(1, 0.3²)."""

    policy = np.full(ACTIONS, 1 / ACTIONS)

    def rewards(self, scale: float = 1.0, shift: float = 0.0, order_seed: int | None = None):
        """Independent rows whose reward law is known at each pair; to be read with gamma = 0."""
        generator = np.random.default_rng(0)
        chances = np.linspace(0.2, 0.8, STATES * ACTIONS).reshape(STATES, ACTIONS)
        states, actions = (np.arange(ROWS) % k for k in (STATES, 2 * STATES))
        actions = actions // STATES
        columns = {
            "observations": states,
            "actions": actions,
            "rewards": scale * _mixture(chances[states, actions], generator) + shift,
            "next_observations": generator.integers(STATES, size=ROWS),
            "terminations": np.zeros(ROWS, bool),
            "truncations": np.zeros(ROWS, bool),
        }
        returns = scale * _mixture(np.resize(chances, 100_000), np.random.default_rng(1)) + shift
        queries = tuple(
            Query(s, a, scale * (2 * chances[s, a] - 1) + shift)
            for s in range(STATES)
            for a in range(ACTIONS)
        )
        data = _dataset(columns, order_seed, np.arange(STATES))
        return Problem(data, self.policy, None, returns, queries)

    def chain(self) -> Problem:
        """States 0, 1, 2, 3, end, whatever the action; rewards 1, 2, 3, 4."""
        states = np.arange(ROWS) % STATES
        generator = np.random.default_rng(0)
        columns = {
            "observations": states,
            "actions": generator.integers(ACTIONS, size=ROWS),
            "rewards": states + 1.0,
            "next_observations": (states + 1) % STATES,
            "terminations": states == STATES - 1,
            "truncations": np.zeros(ROWS, bool),
        }
        togo = np.array([10.0, 9.0, 7.0, 4.0])
        queries = tuple(Query(s, a, togo[s]) for s in range(STATES) for a in range(ACTIONS))
        return Problem(
            _dataset(columns, None, np.arange(STATES)), self.policy, STATES, togo, queries
        )

    def survival(self, gamma: float) -> Problem:
        """Reward 1 until the end, whose chance depends on the pair.

        The share of rows that end is exact at every pair, and states and actions are equally likely
        at every step, so that an episode ends with the average chance of 0.16 at each.
        """
        row = np.arange(ROWS)
        states, actions, place = row % STATES, row // STATES % ACTIONS, row // (STATES * ACTIONS)
        chances = np.linspace(0.02, 0.3, STATES * ACTIONS).reshape(STATES, ACTIONS)
        columns = {
            "observations": states,
            "actions": actions,
            "rewards": np.ones(ROWS),
            "next_observations": np.random.default_rng(0).permutation(states),
            "terminations": place < np.round(chances[states, actions] * ROWS / chances.size),
            "truncations": np.zeros(ROWS, bool),
        }
        # The length at each level, as if 100,000 episodes had been exactly representative.
        levels = (np.arange(100_000) + 0.5) / 100_000
        lengths = np.ceil(np.log1p(-levels) / np.log1p(-0.16))
        returns = (1 - gamma**lengths) / (1 - gamma)
        return Problem(_dataset(columns, None, np.arange(STATES)), self.policy, None, returns)

    def episodes(self) -> Problem:
        """Rewards 0 or 1, terminating with probability 1/4, logged by the target policy."""
        generator = np.random.default_rng(2)
        rewarded = generator.random((STATES, ACTIONS))
        moves = generator.dirichlet(np.ones(STATES), (STATES, ACTIONS))

        def step(states, actions, last):
            rewards = (generator.random(len(states)) < rewarded[states, actions]) * 1.0
            ends = generator.random(len(states)) < 0.25
            return rewards, ends, draw_categorical(moves[states, actions], generator)

        return _logged(
            step,
            lambda n: generator.integers(STATES, size=n),
            lambda s: generator.integers(ACTIONS, size=len(s)),
            self.policy,
        )


class SparseTabular(Tabular):
    """The same rewards, but only where an episode ends."""

    def chain(self) -> Problem:
        """0 -> 1 or 2 by the action, then the end, at 1 with reward near -1, at 2 near 1."""
        generator = np.random.default_rng(0)
        states = np.arange(ROWS) % 3
        actions = generator.integers(ACTIONS, size=ROWS)
        columns = {
            "observations": states,
            "actions": actions,
            "rewards": np.where(
                states > 0, 2.0 * states - 3 + generator.normal(0, MIXTURE_STD, ROWS), 0
            ),
            "next_observations": np.where(states == 0, 1 + actions, 0),
            "terminations": states > 0,
            "truncations": np.zeros(ROWS, bool),
        }
        queries = (Query(0, 0, -1.0), Query(0, 1, 1.0))
        data = _dataset(columns, None, np.array([0, 0, 0]))
        return Problem(data, self.policy, 2, np.array([-1.0, 1.0]), queries)

    def episodes(self) -> Problem:
        """A random walk that terminates with a mixture reward that depends on the state."""
        generator = np.random.default_rng(2)
        moves = generator.dirichlet(np.ones(STATES), (STATES, ACTIONS))

        def step(states, actions, last):
            ends = (generator.random(len(states)) < 0.25) | last
            rewards = _mixture((0.1 + 0.25 * states), generator)
            following = draw_categorical(moves[states, actions], generator)
            return np.where(ends, rewards, 0.0), ends, following

        return _logged(
            step,
            lambda n: generator.integers(STATES, size=n),
            lambda s: generator.integers(ACTIONS, size=len(s)),
            self.policy,
        )


class Linear:
    """Observations (1, x), scalar actions; rewards quadratic in both plus N(0, 0.3²)."""

    def policy(self, observations):
        """a = x / 2."""
        return observations[:, 1:] / 2

    def rewards(self, scale: float = 1.0, shift: float = 0.0, order_seed: int | None = None):
        """Independent rows with reward scale (x a - x² + 1 + noise) + shift."""
        generator = np.random.default_rng(0)
        x, a = generator.uniform(-1, 1, (2, ROWS))
        noise = generator.normal(0, LINEAR_STD, ROWS)
        columns = {
            "observations": _with_one(x),
            "actions": a[:, None],
            "rewards": scale * (x * a - x**2 + 1 + noise) + shift,
            "next_observations": _with_one(x[::-1]),
            "terminations": np.zeros(ROWS, bool),
            "truncations": np.zeros(ROWS, bool),
        }
        starts = np.linspace(-1, 1, 101)
        # With a = x/2 the mean is 1 - x²/2.
        mean = np.resize(1 - starts**2 / 2, 100_000)
        noise = np.random.default_rng(1).normal(0, LINEAR_STD, mean.size)
        queries = tuple(
            Query((1.0, x), a, scale * (x * a - x**2 + 1) + shift)
            for x in (-0.5, 0.8)
            for a in (-0.3, 0.6)
        )
        data = _dataset(columns, order_seed, _with_one(starts))
        return Problem(data, self.policy, None, scale * (mean + noise) + shift, queries)

    def chain(self) -> Problem:
        """x' = x / 2, reward x, no noise: a return of 1.875 x over four steps."""
        generator = np.random.default_rng(0)
        x, a = generator.uniform(-1, 1, (2, ROWS))
        columns = {
            "observations": _with_one(x),
            "actions": a[:, None],
            "rewards": x,
            "next_observations": _with_one(x / 2),
            "terminations": np.zeros(ROWS, bool),
            "truncations": np.zeros(ROWS, bool),
        }
        queries = tuple(Query((1.0, x), 0.0, 1.875 * x) for x in (-1.0, 0.0, 0.5))
        data = _dataset(columns, None, _with_one(np.linspace(-1, 1, 101)))
        return Problem(data, self.policy, 4, 1.875 * np.linspace(-1, 1, 101), queries)

    def episodes(self) -> Problem:
        """x' = 0.8 x + 0.2 a from uniform starts, four steps, then cut off."""
        generator = np.random.default_rng(2)

        def step(observations, actions, last):
            x, a = observations[:, 1], actions[:, 0]
            rewards = x * a - x**2 + 1 + generator.normal(0, LINEAR_STD, len(x))
            return rewards, np.zeros(len(x), bool), _with_one(0.8 * x + 0.2 * a)

        return _logged(
            step, lambda n: _with_one(generator.uniform(-1, 1, n)), self.policy, self.policy
        )


TABULAR = Tabular()


@dataclass(frozen=True)
class Case:
    """A model for rewards `scale * r + shift`, its world, and how much of a law it can tell.

    A bounded model has a range; its density is asked for only there, at `quadrature` points.
    """

    spec: Callable[[float, float], Any]
    world: Any = TABULAR
    knows: Literal["law", "moments", "mean"] = "law"
    density: bool = True
    bounded: bool = False
    quadrature: int = 40_000
    objective: Literal["own", "energy"] = "own"


def _always(spec: Any) -> Callable[[float, float], Any]:
    return lambda scale, shift: spec


@cache
def _known_laws(scale: float, shift: float) -> fle.RewardMixture:
    laws = [stats.norm(scale * mean + shift, scale * MIXTURE_STD) for mean in MIXTURE_MEANS]
    return fle.RewardMixture(tuple(laws))


CASES = {
    "gmm": Case(_always(fle.GMM(hidden=SMALL))),
    "autoregressive": Case(_always(fle.Autoregressive())),
    "flow": Case(_always(fle.Flow(hidden=32))),
    # As many steps as make the sampler's own error invisible to 10,000 draws.
    "diffusion": Case(_always(fle.Diffusion(hidden=SMALL, sampling_steps=32)), quadrature=2_000),
    "histogram": Case(_always(fle.Histogram(hidden=SMALL)), bounded=True),
    "gaussian": Case(_always(fle.Gaussian(hidden=SMALL)), knows="moments"),
    "gaussian-fixed": Case(_always(fle.Gaussian(std=1.0, hidden=SMALL)), knows="mean"),
    "categorical": Case(_always(fle.Categorical(hidden=SMALL)), density=False),
    "quantile": Case(_always(fle.Quantile(quantiles=30, hidden=SMALL)), density=False),
    "reward-mixture": Case(_known_laws, world=SparseTabular()),
    # It has one peak, so it is tried where rewards have one.
    "laplace": Case(_always(load_example().Laplace(hidden=SMALL)), world=Linear(), knows="mean"),
    "gaussian-energy": Case(
        _always(fle.Gaussian(hidden=SMALL)), knows="moments", objective="energy", world=Linear()
    ),
    "linear": Case(_always(fle.Linear(lambda x, a: _products(x, a))), world=Linear()),
    "linear-quadratic": Case(lambda c, b: fle.LinearQuadratic(c * LINEAR_STD), world=Linear()),
}


def _products(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    z = np.concatenate([x[:, 1:], a], axis=1)
    return np.stack([z[:, 0], z[:, 1], z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2], axis=1)


def _with_one(x: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(x), x], axis=1)


def _mixture(chance_of_one: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    low, high = MIXTURE_MEANS
    means = np.where(generator.random(len(chance_of_one)) < chance_of_one, high, low)
    return generator.normal(means, MIXTURE_STD)


def _dataset(columns: dict[str, Any], order_seed: int | None, initial: Any) -> fle.Dataset:
    order = np.arange(ROWS)
    if order_seed is not None:
        order = np.random.default_rng(order_seed).permutation(ROWS)
    discrete = columns["actions"].ndim == 1
    return fle.Dataset(
        **{name: values[order] for name, values in columns.items()},
        initial_observations=initial,
        number_of_actions=ACTIONS if discrete else None,
    )


def _logged(step: Any, start: Any, act: Any, policy: Any, horizon: int = 4) -> Problem:
    """Episodes of at most `horizon` steps, cut off there, until there are ROWS rows.

    `returns` are those of the logged episodes.
    """
    many = ROWS
    observations = start(many)
    running, parts = np.arange(many), []
    for time in range(horizon):
        actions = act(observations)
        rewards, ends, following = step(observations, actions, time == horizon - 1)
        parts.append((running, np.full(len(running), time), observations, actions, rewards))
        parts[-1] += (following, ends, ~ends & (time == horizon - 1))
        running, observations = running[~ends], following[~ends]
    columns = [np.concatenate(values) for values in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))[:ROWS]
    episode, time, observation, action, reward, following, ended, cut = (c[order] for c in columns)
    if not (ended[-1] or cut[-1]):
        cut[-1] = True
    data = fle.Dataset(
        observations=observation,
        actions=action,
        rewards=reward,
        next_observations=following,
        terminations=ended,
        truncations=cut,
        episodes=episode,
        number_of_actions=ACTIONS if action.ndim == 1 else None,
    )
    return Problem(data, policy, horizon, data.observed_returns(1.0)[0][:-1, 0])
