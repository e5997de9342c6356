"""Logged data and Monte Carlo returns from Gymnasium environments, many stepped together."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import FLEError, PolicyError, SettingsError, install
from fle.tasks.tabular import FloatArray, require_count

Array = NDArray[Any]
Mask = NDArray[np.bool_]
# (observations (n, ...), generator) -> actions (n, ...)
ActingPolicy = Callable[[Array, np.random.Generator], ArrayLike]


def collect(
    make_environment: Callable[[], Any],
    policy: ActingPolicy,
    *,
    rows: int,
    seed: int,
    environments: int = 64,
) -> dict[str, Any]:
    """Exactly `rows` transitions of a policy, as arrays for `fle.Dataset(**data)`.

    Rows are sorted by episode. A time limit truncates, which is not termination, and such a row
    keeps the observation it led to. The last rows of episodes that were under way when the log
    ended are truncated as well. `initial_observations` are all that a reset gave.

    Args:
        make_environment: makes a single environment, or one that is vectorised already (such as
            `gymnasium.make_vec("CartPole-v1", 64, "vector_entry_point")`, many times faster).
        policy: batches of observations -> batches of actions.
        rows: number of transitions.
        seed: seed of environments and policy.
        environments: how many single environments run side by side.
    """
    require_count("rows", rows)
    environment_seed, generator = _seeds(seed)
    batch = open_environments(make_environment, environments)
    try:
        pieces, initial = _logged(batch, policy, rows, environment_seed, generator)
    finally:
        batch.close()
    data: dict[str, Any] = {
        name: np.concatenate([piece[name] for piece in pieces])[:rows] for name in pieces[0]
    }
    order = np.argsort(data["episodes"], kind="stable")
    data = {name: column[order] for name, column in data.items()}
    last = np.append(np.diff(data["episodes"]) != 0, True)
    data["truncations"] |= last & ~data["terminations"]
    data["initial_observations"] = np.concatenate(initial)
    data["number_of_actions"] = number_of_actions(batch.action_space)
    return data


def _logged(
    batch: "EnvironmentBatch",
    policy: ActingPolicy,
    rows: int,
    seed: int,
    generator: np.random.Generator,
) -> tuple[list[dict[str, Array]], list[Array]]:
    """Columns of at least `rows` transitions, in the order they happened, and all first states."""
    observations = batch.reset(seed)
    initial, episodes, count = [observations], np.arange(batch.size), 0
    everywhere = np.ones(batch.size, dtype=bool)
    pieces: list[dict[str, Array]] = []
    number_of_episodes = batch.size
    while count < rows:
        actions = _acted(policy, observations, generator, batch)
        outcome = batch.step(actions, everywhere)
        columns = {
            "observations": observations,
            "actions": actions,
            "rewards": outcome.rewards,
            "next_observations": outcome.next_observations,
            "terminations": outcome.terminations,
            # A row is one or the other; what ended for good needs no time limit.
            "truncations": outcome.truncations & ~outcome.terminations,
            "episodes": episodes,
        }
        pieces.append({name: column[outcome.valid] for name, column in columns.items()})
        count += int(outcome.valid.sum())
        new = int(outcome.started.sum())
        episodes[outcome.started] = number_of_episodes + np.arange(new)
        number_of_episodes += new
        observations = outcome.observations
        initial.append(observations[outcome.started])
    return pieces, initial


def monte_carlo_returns(
    make_environment: Callable[[], Any],
    policy: ActingPolicy,
    *,
    episodes: int,
    gamma: float,
    horizon: int,
    seed: int,
    environments: int = 64,
) -> FloatArray:
    """Discounted returns of independent complete episodes: (episodes,), or (episodes, d).

    Every episode runs until it terminates or reaches `horizon` steps. With gamma < 1 the part cut
    off is at most gamma^horizon times the largest return from there on. An environment that
    truncates earlier is refused, since its returns would lack their end.

    Args:
        make_environment: as in `collect`; without a time limit shorter than the horizon, e.g.
            `gymnasium.make(name, max_episode_steps=-1)`.
        policy: batches of observations -> batches of actions.
        episodes: number of returns.
        gamma: discount, at most 1.
        horizon: number of steps after which a return is complete.
        seed: seed of environments and policy.
        environments: how many single environments run side by side.
    """
    require_count("episodes", episodes)
    require_count("horizon", horizon)
    if not 0 <= gamma <= 1:
        raise SettingsError(f"gamma: expected a number in [0, 1], got {gamma}")
    environment_seed, generator = _seeds(seed)
    batch = open_environments(make_environment, min(environments, episodes))
    discounts = [gamma**elapsed for elapsed in range(horizon)]
    rounds = []
    try:
        # Rounds rather than "the first so many to finish", which would favour short episodes.
        for begun in range(0, episodes, batch.size):
            observations = batch.reset(environment_seed if begun == 0 else None)
            playing = np.arange(batch.size) < episodes - begun
            returns = _played(batch, policy, observations, playing, discounts, generator)
            rounds.append(returns[playing])
    finally:
        batch.close()
    return np.concatenate(rounds)


def _played(
    batch: "EnvironmentBatch",
    policy: ActingPolicy,
    observations: Array,
    playing: Mask,
    discounts: Sequence[float],
    generator: np.random.Generator,
) -> FloatArray:
    """Returns of one episode in each environment that plays; the others get 0."""
    returns: Any = 0.0
    for elapsed, discount in enumerate(discounts, start=1):
        outcome = batch.step(_acted(policy, observations, generator, batch), playing)
        counted = playing.reshape(-1, *(1 for _ in outcome.rewards.shape[1:]))
        returns = returns + discount * np.where(counted, outcome.rewards, 0.0)
        cut = playing & outcome.truncations & ~outcome.terminations
        if cut.any() and elapsed < len(discounts):
            raise SettingsError(
                f"an episode was truncated after {elapsed} steps: expected whole returns up to the"
                f" horizon of {len(discounts)}; make the environment without a time limit"
                " (max_episode_steps=-1, or a large one), or lower horizon"
            )
        playing = playing & ~(outcome.terminations | outcome.truncations)
        if not playing.any():
            break
        observations = outcome.observations
    return np.asarray(returns)


def _seeds(seed: int) -> tuple[int, np.random.Generator]:
    """A seed for the environments and a generator for the policy, independent of each other."""
    for_environments, for_policy = np.random.SeedSequence(seed).spawn(2)
    return int(for_environments.generate_state(1)[0]), np.random.default_rng(for_policy)


def _acted(
    policy: ActingPolicy,
    observations: Array,
    generator: np.random.Generator,
    batch: "EnvironmentBatch",
) -> Array:
    """The policy's actions (n, ...) in the dtype of the space, one for each environment."""
    array, space = np.asarray(policy(observations, generator)), batch.action_space
    if array.shape != (batch.size, *space.shape):
        raise PolicyError(
            f"actions: expected shape {(batch.size, *space.shape)}, one for each observation, got"
            f" {array.shape}"
        )
    count = number_of_actions(space)
    whole = array.dtype.kind in "iu"
    if count is not None and not (whole and np.all((array >= 0) & (array < count))):
        raise PolicyError(f"actions: expected integers from 0 to {count - 1}, got {array}")
    if not np.all(np.isfinite(array)):
        raise PolicyError(f"actions: expected finite numbers, got {array[~np.isfinite(array)][0]}")
    return array.astype(space.dtype, copy=False)


class StepOutcome(NamedTuple):
    """What one step of n environments gave.

    Attributes:
        next_observations: (n, ...) that the actions led to, never those of a following reset.
        rewards: (n,) or (n, d).
        terminations: (n,).
        truncations: (n,).
        valid: (n,) False where no action was taken: a pure reset step, or not active.
        observations: (n, ...) to act on next.
        started: (n,) True where `observations` opens a new episode.
    """

    next_observations: Array
    rewards: Array
    terminations: Mask
    truncations: Mask
    valid: Mask
    observations: Array
    started: Mask


class EnvironmentBatch(Protocol):
    """n environments behind one interface."""

    size: int
    action_space: Any

    def reset(self, seed: int | None) -> Array:
        """First observations (n, ...) of new episodes everywhere."""

    def step(self, actions: Array, active: Mask) -> StepOutcome:
        """Act in the active environments; those that ended are reset."""

    def close(self) -> None:
        """Release the environments."""


class LoopedEnvironments:
    """Single environments stepped in a Python loop.

    SyncVectorEnv loops just the same, but stores rewards as (n,): this serves vector rewards too.
    """

    def __init__(self, environments: list[Any]) -> None:
        self._environments = environments
        self.size = len(environments)
        self.action_space = environments[0].action_space

    def reset(self, seed: int | None) -> Array:
        """First observations of new episodes everywhere."""
        seeds: list[int | None] = [None] * self.size
        if seed is not None:
            seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(self.size)]
        firsts = [
            env.reset(seed=own_seed)[0]
            for env, own_seed in zip(self._environments, seeds, strict=True)
        ]
        self._observations = _stacked(firsts)
        return self._observations.copy()

    def step(self, actions: Array, active: Mask) -> StepOutcome:
        """Act in the active environments only."""
        next_observations = self._observations.copy()
        rewards: dict[int, Array] = {}
        flags = np.zeros((3, self.size), dtype=bool)
        terminations, truncations, started = flags
        for i in np.flatnonzero(active).tolist():
            environment = self._environments[i]
            observation, reward, terminations[i], truncations[i], _ = environment.step(actions[i])
            next_observations[i] = self._observations[i] = observation
            rewards[i] = np.asarray(reward, dtype=float)
            if terminations[i] or truncations[i]:
                self._observations[i] = environment.reset()[0]
                started[i] = True
        reward_array = np.zeros((self.size, *next(iter(rewards.values())).shape))
        reward_array[list(rewards)] = np.stack(list(rewards.values()))
        return StepOutcome(
            next_observations=next_observations,
            rewards=reward_array,
            terminations=terminations,
            truncations=truncations,
            valid=active.copy(),
            observations=self._observations.copy(),
            started=started,
        )

    def close(self) -> None:
        """Close every environment."""
        for environment in self._environments:
            environment.close()


class VectorEnvironments:
    """An environment that is vectorised already; it always steps all its copies."""

    def __init__(self, environment: Any) -> None:
        mode = environment.metadata.get("autoreset_mode")
        # Gymnasium itself accepts the enum and its value.
        self._mode = getattr(mode, "value", mode)
        if self._mode not in ("NextStep", "SameStep"):
            raise SettingsError(
                "expected a vector environment that resets itself, with"
                f' metadata["autoreset_mode"] NEXT_STEP or SAME_STEP, got {mode!r}; set it, or give'
                " a factory of single environments"
            )
        self._environment = environment
        self.size = int(environment.num_envs)
        self.action_space = environment.single_action_space

    def reset(self, seed: int | None) -> Array:
        """First observations of new episodes everywhere."""
        self._ended = np.zeros(self.size, dtype=bool)
        observations, _ = self._environment.reset(seed=seed)
        return _stacked(observations)

    def step(self, actions: Array, active: Mask) -> StepOutcome:
        """Act everywhere; only the active copies count as valid."""
        answer = self._environment.step(actions)
        observations, info = _stacked(answer[0]), answer[4]
        rewards, terminations, truncations = (np.array(part) for part in answer[1:4])
        ended = terminations | truncations
        next_observations = observations.copy()
        if self._mode == "NextStep":
            # This step only reset the copies that had ended in the step before.
            valid, started = active & ~self._ended, self._ended
        else:
            valid, started = active.copy(), ended
            for i in np.flatnonzero(ended):
                next_observations[i] = info["final_obs"][i]
        self._ended = ended
        return StepOutcome(
            next_observations=next_observations,
            rewards=rewards.astype(float),
            terminations=terminations,
            truncations=truncations,
            valid=valid,
            observations=observations,
            started=started,
        )

    def close(self) -> None:
        """Close the vector environment."""
        self._environment.close()


def open_environments(make_environment: Callable[[], Any], count: int) -> EnvironmentBatch:
    """`count` copies of a single environment, or the vector environment that the factory makes."""
    try:
        from gymnasium.vector import VectorEnv
    except ImportError as error:
        raise FLEError(f"rollouts need Gymnasium: {install('gym')}") from error
    require_count("environments", count)
    first = make_environment()
    if isinstance(first, VectorEnv):
        return VectorEnvironments(first)
    return LoopedEnvironments([first, *(make_environment() for _ in range(count - 1))])


def number_of_actions(action_space: Any) -> int | None:
    """The number of discrete actions, None for continuous ones."""
    from gymnasium.spaces import Discrete

    if not isinstance(action_space, Discrete):
        return None
    if action_space.start != 0:
        raise SettingsError(
            f"discrete actions: expected a space that starts at 0, got {action_space.start}; wrap"
            " the environment with gymnasium.wrappers.TransformAction"
        )
    return int(action_space.n)


def _stacked(observations: Any) -> Array:
    array = np.array(observations)
    if array.dtype.kind not in "biuf":
        raise SettingsError(
            f"observations: expected arrays of numbers, got {array.dtype}; put"
            " gymnasium.wrappers.FlattenObservation around dictionaries and tuples"
        )
    return array
