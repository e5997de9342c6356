"""The combination lock of the paper's simulations, whose return distribution is known."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fle.errors import SettingsError
from fle.tasks.tabular import FloatArray, require_count, require_step

GOOD, BAD = 0, 1
OPTIMAL_ACTION = 0
NUMBER_OF_ACTIONS = 2

REWARD_STD_1D = 0.1
REWARD_VARIANCE_2D = 0.05
RING_RADIUS = 2.0


@dataclass(frozen=True)
class CombinationLock:
    """Two latent states, two actions; only action 0 at every step keeps the good state.

    The single reward is drawn from the latent state after the last transition. In one dimension
    r+ ~ N(1, 0.1²) and r- ~ N(-1, 0.1²); in two, r+ = x + 2x/|x| with x ~ N(0, 0.05 I), a ring,
    and r- ~ N(0, 0.05 I). The target policy acts at random with probability epsilon.

    Steps count from 0: the paper's h is step + 1.

    Args:
        horizon: number of steps.
        reward_dim: 1 or 2.
        observation_dim: 2 latent bits, `horizon` step bits, the rest noise.
        epsilon: share of random actions of the target policy.
        noise: standard deviation of the noise coordinates.
    """

    horizon: int = 20
    reward_dim: int = 1
    observation_dim: int = 30
    epsilon: float = 1 / 7
    noise: float = 0.1

    def __post_init__(self) -> None:
        require_count("horizon", self.horizon)
        if self.reward_dim not in (1, 2):
            raise SettingsError(f"reward_dim: expected 1 or 2, got {self.reward_dim}")
        if self.observation_dim < 2 + self.horizon:
            raise SettingsError(
                f"observation_dim: expected at least {2 + self.horizon}, for 2 latent and"
                f" {self.horizon} step bits, got {self.observation_dim}"
            )
        if not 0 <= self.epsilon <= 1:
            raise SettingsError(f"epsilon: expected a number in [0, 1], got {self.epsilon}")

    @classmethod
    def paper_1d(cls) -> "CombinationLock":
        """The setting of the paper's Table 1."""
        return cls(horizon=20, reward_dim=1)

    @classmethod
    def paper_2d(cls) -> "CombinationLock":
        """The setting of the paper's Table 2."""
        return cls(horizon=10, reward_dim=2)

    # Dynamics, one row an independent copy of the lock.

    def observe(
        self, latent: ArrayLike, step: ArrayLike, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Observations (n, observation_dim) of latent states (n,) at one step or steps (n,).

        `step == horizon`, after the last transition, has no step bit.
        """
        latents, steps = np.broadcast_arrays(np.atleast_1d(latent), np.atleast_1d(step))
        if np.any((steps < 0) | (steps > self.horizon)):
            raise SettingsError(f"step: expected one of 0..{self.horizon}, got {step!r}")
        rows = np.arange(len(latents))
        observations = np.zeros((len(latents), self.observation_dim), dtype=np.float32)
        observations[rows, latents] = 1.0
        before_end = steps < self.horizon
        observations[rows[before_end], 2 + steps[before_end]] = 1.0
        first_noise = 2 + self.horizon
        observations[:, first_noise:] = generator.normal(
            0.0, self.noise, (len(latents), self.observation_dim - first_noise)
        )
        return observations

    def transition(self, latent: ArrayLike, action: ArrayLike) -> NDArray[np.int64]:
        """The next latent states: good only from good by the optimal action."""
        stays = (np.asarray(latent) == GOOD) & (np.asarray(action) == OPTIMAL_ACTION)
        return np.where(stays, GOOD, BAD)

    def final_reward(self, latent: ArrayLike, generator: np.random.Generator) -> FloatArray:
        """Rewards for the latent states (n,) after the last transition: (n,) or (n, 2)."""
        good = np.atleast_1d(latent) == GOOD
        if self.reward_dim == 1:
            return generator.normal(np.where(good, 1.0, -1.0), REWARD_STD_1D)
        centred = generator.normal(0.0, np.sqrt(REWARD_VARIANCE_2D), (len(good), 2))
        radii = np.linalg.norm(centred, axis=1, keepdims=True)
        return np.where(good[:, None], centred * (1 + RING_RADIUS / radii), centred)

    def initial_observations(self, n: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """n observations of the good state at step 0."""
        return self.observe(np.full(n, GOOD), 0, generator)

    def offline_data(
        self, rows_per_step_and_latent: int, seed: int, initial: int = 1000
    ) -> dict[str, Any]:
        """Logged transitions for `fle.Dataset(**data)`: every step and latent, uniform actions."""
        generator = np.random.default_rng(seed)
        steps = np.repeat(np.arange(self.horizon), 2 * rows_per_step_and_latent)
        latents = np.tile(np.repeat([GOOD, BAD], rows_per_step_and_latent), self.horizon)
        actions = generator.integers(NUMBER_OF_ACTIONS, size=len(steps))
        next_latents = self.transition(latents, actions)
        last = steps == self.horizon - 1
        rewards = np.zeros((len(steps), self.reward_dim))
        rewards[last] = self.final_reward(next_latents[last], generator).reshape(last.sum(), -1)
        return {
            "observations": self.observe(latents, steps, generator),
            "actions": actions,
            "rewards": rewards[:, 0] if self.reward_dim == 1 else rewards,
            "next_observations": self.observe(next_latents, steps + 1, generator),
            "terminations": last,
            "truncations": np.zeros(len(steps), dtype=bool),
            "steps": steps,
            "initial_observations": self.initial_observations(initial, generator),
            "number_of_actions": NUMBER_OF_ACTIONS,
        }

    def target_policy(self, observations: ArrayLike) -> FloatArray:
        """Action probabilities (n, 2): the wrong action with probability epsilon / 2."""
        wrong = self.epsilon / NUMBER_OF_ACTIONS
        return np.tile([1 - wrong, wrong], (len(np.asarray(observations)), 1))

    # The known answer.

    def good_probability(self, step: int) -> float:
        """P(return is r+ | good state, step, action 0) = (1 - epsilon/2)^(horizon - 1 - step)."""
        require_step(step, self.horizon)
        return (1 - self.epsilon / NUMBER_OF_ACTIONS) ** (self.horizon - 1 - step)

    @property
    def policy_good_probability(self) -> float:
        """P(return is r+) under the target policy from the start: its first action errs too."""
        return (1 - self.epsilon / NUMBER_OF_ACTIONS) ** self.horizon

    def sample_true_returns(self, step: int, n: int, generator: np.random.Generator) -> FloatArray:
        """n returns from (good state, step, action 0): (n,) or (n, 2)."""
        return self._sample_mixture(self.good_probability(step), n, generator)

    def sample_policy_returns(self, n: int, generator: np.random.Generator) -> FloatArray:
        """n returns of the target policy from the start: (n,) or (n, 2)."""
        return self._sample_mixture(self.policy_good_probability, n, generator)

    def true_log_density(self, z: ArrayLike, step: int) -> FloatArray:
        """Log density (n,) of the return from (good state, step, action 0), z (n,) or (n, 2)."""
        return self._mixture_log_density(z, self.good_probability(step))

    def policy_log_density(self, z: ArrayLike) -> FloatArray:
        """Log density (n,) of the target policy's return from the start."""
        return self._mixture_log_density(z, self.policy_good_probability)

    def true_mean(self, step: int) -> float | FloatArray:
        """Mean return from (good state, step, action 0): a float, or (2,)."""
        if self.reward_dim == 1:
            return 2 * self.good_probability(step) - 1
        return np.zeros(2)

    def _sample_mixture(
        self, good_probability: float, n: int, generator: np.random.Generator
    ) -> FloatArray:
        latent = np.where(generator.random(n) < good_probability, GOOD, BAD)
        return self.final_reward(latent, generator)

    def _mixture_log_density(self, z: ArrayLike, good_probability: float) -> FloatArray:
        points = np.asarray(z, dtype=float)
        if self.reward_dim == 1:
            points = points.reshape(-1)
            good = stats.norm.logpdf(points, 1.0, REWARD_STD_1D)
            bad = stats.norm.logpdf(points, -1.0, REWARD_STD_1D)
        else:
            points = points.reshape(-1, 2)
            good = ring_log_density(points)
            bad = stats.norm.logpdf(points, 0.0, np.sqrt(REWARD_VARIANCE_2D)).sum(axis=1)
        # log 0 = -inf is what a certain outcome means here.
        with np.errstate(divide="ignore"):
            weights = np.log(good_probability), np.log1p(-good_probability)
        return np.logaddexp(weights[0] + good, weights[1] + bad)


def ring_log_density(points: FloatArray) -> FloatArray:
    """Log density (n,) of x + 2x/|x|, x ~ N(0, v I), at points (n, 2).

    The direction is uniform and the radius is ρ = |x| + 2 with |x| Rayleigh, so the density in the
    plane is f_Rayleigh(ρ - 2) / (2πρ) for ρ > 2 and zero inside the ring.
    """
    radii = np.linalg.norm(points, axis=1)
    outside = radii > RING_RADIUS
    result = np.full(len(points), -np.inf)
    excess = radii[outside] - RING_RADIUS
    rayleigh = np.log(excess / REWARD_VARIANCE_2D) - excess**2 / (2 * REWARD_VARIANCE_2D)
    result[outside] = rayleigh - np.log(2 * np.pi * radii[outside])
    return result
