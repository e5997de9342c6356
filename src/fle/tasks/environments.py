"""Many Gymnasium environments stepped together, with resets that lose no observation."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fle.errors import FLEError, PolicyError, SettingsError

Array = NDArray[Any]
Mask = NDArray[np.bool_]


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
                "A vector environment must reset itself and say how: expected "
                'metadata["autoreset_mode"] NEXT_STEP or SAME_STEP, '
                f"but {mode!r} came. Or give a factory of single environments."
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
        raise FLEError("Rollouts need Gymnasium: install fle[gym].") from error
    if count < 1:
        raise SettingsError(f"environments must be at least 1; {count} came.")
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
            f"Discrete actions must count from 0; this space starts at {action_space.start}. "
            "Wrap the environment with gymnasium.wrappers.TransformAction."
        )
    return int(action_space.n)


def checked_actions(actions: Any, size: int, action_space: Any) -> Array:
    """Actions (n, ...) in the dtype of the space, one for each environment."""
    array = np.asarray(actions)
    if array.shape != (size, *action_space.shape):
        raise PolicyError(
            f"The policy must give one action an observation, shape {(size, *action_space.shape)}; "
            f"{array.shape} came."
        )
    count = number_of_actions(action_space)
    whole = array.dtype.kind in "iu"
    if count is not None and not (whole and np.all((array >= 0) & (array < count))):
        raise PolicyError(f"The policy must give integers from 0 to {count - 1}; {array} came.")
    if not np.all(np.isfinite(array)):
        raise PolicyError("The policy gave an action that is not finite.")
    return array.astype(action_space.dtype, copy=False)


def _stacked(observations: Any) -> Array:
    array = np.array(observations)
    if array.dtype.kind not in "biuf":
        raise SettingsError(
            "Observations must be arrays of numbers; dictionaries and tuples need "
            "gymnasium.wrappers.FlattenObservation around the environment."
        )
    return array
