"""The combination lock as a Gymnasium environment; the only module here that needs gymnasium."""

from typing import Any

import gymnasium
import numpy as np

from fle.tasks.combination_lock import GOOD, NUMBER_OF_ACTIONS, CombinationLock


class CombinationLockEnv(gymnasium.Env):
    """One lock, terminated after `horizon` steps.

    The reward is a float for one-dimensional rewards and a (2,) array for two-dimensional ones
    (as in MO-Gymnasium; Gymnasium's own checker and SyncVectorEnv know only scalars).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's interface)

    def __init__(self, lock: CombinationLock | None = None) -> None:
        self.lock = CombinationLock.paper_1d() if lock is None else lock
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, np.inf, (self.lock.observation_dim,), np.float32
        )
        self.action_space = gymnasium.spaces.Discrete(NUMBER_OF_ACTIONS)
        self._latent = np.array([GOOD])
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new lock in the good state at step 0."""
        super().reset(seed=seed)
        self._latent, self._step = np.array([GOOD]), 0
        return self.lock.observe(self._latent, 0, self.np_random)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One turn of the lock; the reward comes with the last."""
        self._latent = self.lock.transition(self._latent, np.array([action]))
        self._step += 1
        terminated = self._step == self.lock.horizon
        reward = np.zeros(self.lock.reward_dim)
        if terminated:
            reward[:] = self.lock.final_reward(self._latent, self.np_random)[0]
        observation = self.lock.observe(self._latent, self._step, self.np_random)[0]
        return observation, self._reward(reward), terminated, False, {}

    def _reward(self, reward: np.ndarray) -> float | np.ndarray:
        return float(reward[0]) if self.lock.reward_dim == 1 else reward
