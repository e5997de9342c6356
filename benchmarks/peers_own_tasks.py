"""Likelihood, energy distance and the exact class on the tasks that peers chose.

python benchmarks/peers_own_tasks.py --seeds 100

A cycle of 30 states whose returns are Gaussian (as the chain of EBRM) and an LQR (as that of FDE),
both at gamma = .99. Writes `benchmarks/results/peers_own_tasks.json`; what is there is not run
again. Figures are means over states, or starts, of |error of the mean| and of |ratio of standard
deviations - 1|, and W1 to the truth, in standard deviations of the return at a state.
"""

import argparse
import dataclasses
import json
import resource
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy.stats import wasserstein_distance

import fle
from fle.paper.environment import describe
from fle.tasks import LQR

RESULTS = Path(__file__).parent / "results" / "peers_own_tasks.json"
GAMMA, STATES, NOISE = 0.99, 30, 1.0
DRAWS = 4_000


class Cycle:
    """x' = x + 1, or x + 3 for the other action; r ~ N(sin(2 pi x / 30), 1); the policy takes 0."""

    rows = 3_000
    models: ClassVar = {
        "network": fle.Gaussian(hidden=()),
        "exact": fle.Linear(lambda s, a: pairs(s, a)),
    }

    def data(self, seed):
        generator = np.random.default_rng([seed, 1])
        states = generator.integers(STATES, size=self.rows)
        actions = generator.integers(2, size=self.rows)
        rewards = np.sin(2 * np.pi * states / STATES) + generator.normal(0, NOISE, self.rows)
        flags = np.zeros(self.rows, bool)
        return fle.Dataset(
            observations=states,
            actions=actions,
            rewards=rewards,
            next_observations=(states + 1 + 2 * actions) % STATES,
            terminations=flags,
            truncations=flags,
            number_of_actions=2,
            initial_observations=np.arange(STATES),
        )

    policy = np.array([1.0, 0.0])

    def truth(self):
        """Where to ask, and the mean and standard deviation there."""
        steps = np.arange(3_000)
        waves = np.sin(2 * np.pi * (np.arange(STATES)[:, None] + steps) / STATES)
        means = waves @ GAMMA**steps
        return np.arange(STATES), np.zeros(STATES, int), means, NOISE / np.sqrt(1 - GAMMA**2)


class Cart:
    """The LQR of `fle.tasks`, 1,000 rows drawn as in its own logs."""

    rows = 1_000
    problem = dataclasses.replace(LQR.example(), noise_std=0.2)
    models: ClassVar = {
        "network": fle.Gaussian(),
        "exact": fle.Linear(lambda x, a: quadratic(x, a), intercept=False),
    }

    def data(self, seed):
        generator, cart = np.random.default_rng([seed, 2]), self.problem
        x = generator.uniform(-1.5, 1.5, (self.rows, 2))
        a = x @ cart.K.T + 0.5 * generator.standard_normal((self.rows, 1))
        flags = np.zeros(self.rows, bool)
        return fle.Dataset(
            observations=x,
            actions=a,
            rewards=cart.expected_reward(x, a) + generator.normal(0, 0.2, self.rows),
            next_observations=cart.next_observations(x, a),
            terminations=flags,
            truncations=flags,
            initial_observations=generator.uniform(-1, 1, (1_000, 2)),
        )

    @property
    def policy(self):
        return self.problem.target_policy

    def truth(self):
        starts = np.random.default_rng(0).uniform(-1, 1, (STATES, 2))
        actions = starts @ self.problem.K.T
        x, a, means = starts, actions, np.zeros(STATES)
        for step in range(3_000):
            means += GAMMA**step * self.problem.expected_reward(x, a)
            x = self.problem.next_observations(x, a)
            a = x @ self.problem.K.T
        return starts, actions, means, 0.2 / np.sqrt(1 - GAMMA**2)


def pairs(states, actions):
    """Which pair it is."""
    return np.eye(2 * STATES)[np.asarray(states) * 2 + np.asarray(actions)]


def quadratic(x, a):
    """All products of two coordinates."""
    z = np.hstack([x, a])
    i, j = np.triu_indices(z.shape[1])
    return z[:, i] * z[:, j]


WAYS = {
    "likelihood": ("network", {}),
    "energy": ("network", {"objective": "energy"}),
    "exact": ("exact", {}),
}


def measured(task, way, seed):
    model, recipe = WAYS[way]
    began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fle.FLEWarning)
        result = fle.evaluate(
            task.data(seed),
            task.policy,
            gamma=GAMMA,
            model=task.models[model],
            recipe=recipe,
            seed=seed,
            second_opinions=False,
            anyway=True,
        )
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
    observations, actions, means, std = task.truth()
    ideal = std * np.sqrt(2) * _quantiles()
    errors, ratios, distances = [], [], []
    for x, a, mean in zip(observations, actions, means, strict=True):
        drawn = result.at(x, a).sample(DRAWS, seed=0).reshape(-1)
        errors.append(abs(drawn.mean() - mean) / std)
        ratios.append(abs(drawn.std() / std - 1))
        distances.append(wasserstein_distance(drawn, mean + ideal) / std)
    return {
        "mean": float(np.mean(errors)),
        "std": float(np.mean(ratios)),
        "w1": float(np.mean(distances)),
        "seconds": seconds,
    }


def _quantiles():
    from scipy.special import erfinv

    return erfinv(2 * (np.arange(DRAWS) + 0.5) / DRAWS - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    for seed in range(options.seeds):
        for name, task in (("chain", Cycle()), ("lqr", Cart())):
            for way in WAYS:
                key = f"{name}/{way}/{seed}"
                if key not in known["runs"]:
                    known["runs"][key] = measured(task, way, seed)
                    known["environment"] = describe()
                    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
                    print(key, known["runs"][key], flush=True)


if __name__ == "__main__":
    main()
