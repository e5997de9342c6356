"""Likelihood, energy distance and the exact class on the tasks that peers chose.

python benchmarks/peers_own_tasks.py --seeds 100
python benchmarks/peers_own_tasks.py --seeds 20 --ways exact likelihood

A cycle of 30 states whose returns are Gaussian (as the chain of EBRM) and an LQR (as that of FDE),
both at gamma = .99. On the cycle each objective is also given targets that follow the log; rows of
the LQR are drawn one by one, so there is nothing to follow. Writes
`benchmarks/results/peers_own_tasks.json`; what is there is not run again. Figures are means over
states, or starts, of |error of the mean| and of |ratio of standard deviations - 1|, and W1 to the
truth, in standard deviations of the return at a state; and by how much the mean differs from that
of the exact class on the same log, which no log's noise is part of. `--fixed-points 1000` solves
for what exact classes say of 1,000 logs, by likelihood and by energy distance, without a fit.
"""

import argparse
import dataclasses
import json
import resource
import time
import warnings
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm, wasserstein_distance

import fle
from fle.paper.environment import describe
from fle.tasks import LQR

RESULTS = Path(__file__).parent / "results" / "peers_own_tasks.json"
GAMMA, STATES, NOISE = 0.99, 30, 1.0
DRAWS = 4_000


class Cycle:
    """x' = x + 1, or x + 3 for the other action; r ~ N(sin(2 pi x / 30), 1); the policy takes 0."""

    rows, length = 3_000, 30
    ways = ("exact", "likelihood", "energy", "likelihood, following", "energy, following")
    models: ClassVar = {
        "network": fle.Gaussian(),
        "exact": fle.Linear(lambda s, a: pairs(s, a)),
    }

    def data(self, seed):
        generator = np.random.default_rng([seed, 1])
        episodes = self.rows // self.length
        actions = generator.integers(2, size=(episodes, self.length))
        moves = np.cumsum(1 + 2 * actions, axis=1)
        after = (generator.integers(STATES, size=(episodes, 1)) + moves) % STATES
        states = ((after - 1 - 2 * actions) % STATES).ravel()
        rewards = np.sin(2 * np.pi * states / STATES) + generator.normal(0, NOISE, self.rows)
        cut = np.zeros((episodes, self.length), bool)
        cut[:, -1] = True
        return fle.Dataset(
            observations=states,
            actions=actions.ravel(),
            rewards=rewards,
            next_observations=after.ravel(),
            terminations=np.zeros(self.rows, bool),
            truncations=cut.ravel(),
            episodes=np.repeat(np.arange(episodes), self.length),
            number_of_actions=2,
            initial_observations=np.arange(STATES),
        )

    policy = np.array([1.0, 0.0])

    def fixed_points(self, seed):
        """Of the exact class, errors of the mean at every state, with targets of both kinds."""
        data = self.data(seed)
        states, actions = data.observations, data.actions
        agrees = np.append(actions[1:] == 0, False) & ~data.truncations
        asked, found = actions == 0, {}
        for name, follows in (("one step", agrees & False), ("following", agrees)):
            earned, discounts = data.rewards.ravel().astype(float), np.full(self.rows, GAMMA)
            ends = np.array(data.next_observations)
            for row in np.flatnonzero(follows)[::-1]:
                earned[row] += GAMMA * earned[row + 1]
                discounts[row] *= discounts[row + 1]
                ends[row] = ends[row + 1]
            here, there = np.eye(STATES)[states[asked]], np.eye(STATES)[ends[asked]]
            _, _, means, std = self.truth()
            for by, solve in SOLVED.items():
                values, variance = solve(here, there, discounts[asked], earned[asked])
                found[name + by] = (values - means) / std, np.sqrt(variance) / std
        return found

    def truth(self):
        """Where to ask, and the mean and standard deviation there."""
        steps = np.arange(3_000)
        waves = np.sin(2 * np.pi * (np.arange(STATES)[:, None] + steps) / STATES)
        means = waves @ GAMMA**steps
        return np.arange(STATES), np.zeros(STATES, int), means, NOISE / np.sqrt(1 - GAMMA**2)


class Cart:
    """The LQR of `fle.tasks`, 1,000 rows drawn as in its own logs."""

    rows = 1_000
    ways = ("exact", "likelihood", "energy")
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

    def fixed_points(self, seed):
        """Of the quadratic class, errors of the mean at every start; also with a constant."""
        data, found = self.data(seed), {}
        starts, first, means, std = self.truth()
        after = data.next_observations
        places = (data.observations, data.actions), (after, after @ self.problem.K.T)
        for name, power in (("quadratic", 0), ("quadratic and a constant", 1)):

            def phi(x, a, power=power):
                return np.hstack([quadratic(x, a), np.ones((len(x), power))])

            here, there = (phi(*place) for place in places)
            for by, solve in SOLVED.items():
                theta, variance = solve(
                    here, there, np.full(self.rows, GAMMA), data.rewards.ravel()
                )
                found[name + by] = (
                    (phi(starts, first) @ theta - means) / std,
                    np.sqrt(variance) / std,
                )
        return found

    def truth(self):
        starts = np.random.default_rng(0).uniform(-1, 1, (STATES, 2))
        actions = starts @ self.problem.K.T
        x, a, means = starts, actions, np.zeros(STATES)
        for step in range(3_000):
            means += GAMMA**step * self.problem.expected_reward(x, a)
            x = self.problem.next_observations(x, a)
            a = x @ self.problem.K.T
        return starts, actions, means, 0.2 / np.sqrt(1 - GAMMA**2)


def by_likelihood(here, there, discounts, rewards):
    """theta and v of the fixed point of N(theta phi, v): here theta = rewards + after theta."""
    away = here - discounts[:, None] * there
    theta = np.linalg.solve(here.T @ away, here.T @ rewards)
    return theta, np.mean((away @ theta - rewards) ** 2) / np.mean(1 - discounts**2)


def by_energy(here, there, discounts, rewards):
    """The same where targets are fitted by energy distance, without a draw.

    With d = theta phi - target, whose variance is s^2 = v + g^2 v, the distance of a row is
    2 E|N(d, s^2)| - E|N(0, 2 v)|. Its derivatives vanish where sum phi (2 Phi(d/s) - 1) = 0 and
    sum exp(-d^2 / 2 s^2) / s = n / sqrt(2 v).
    """
    away = here - discounts[:, None] * there
    theta, variance = by_likelihood(here, there, discounts, rewards)
    scales = np.sqrt(1 + discounts**2)
    for _ in range(100):
        spread = np.sqrt(variance) * scales
        errors = away @ theta - rewards
        slopes = 2 * norm.pdf(errors / spread) / spread
        matrix = (slopes[:, None] * here).T @ away
        step = np.linalg.solve(matrix, here.T @ (2 * norm.cdf(errors / spread) - 1))
        theta = theta - step
        errors = away @ theta - rewards

        def too_narrow(v, errors=errors):
            return np.mean(np.exp(-((errors / scales) ** 2) / (2 * v)) / scales) - np.sqrt(0.5)

        before, variance = variance, brentq(too_narrow, 1e-3 * variance, 1e3 * variance)
        if abs(variance / before - 1) < 1e-9 and np.abs(step).max() < 1e-9:
            break
    return theta, variance


SOLVED = {"": by_likelihood, ", energy": by_energy}


def pairs(states, actions):
    """Which pair it is."""
    return _library(states).eye(2 * STATES)[states * 2 + actions]


def quadratic(x, a):
    """All products of two coordinates."""
    z = _library(x).hstack([x, a])
    i, j = np.triu_indices(z.shape[1])
    return z[:, i] * z[:, j]


def _library(values):
    """That of the values: what JAX can trace is not called back."""
    return jnp if isinstance(values, jax.Array) else np


WAYS = {
    "exact": ("exact", {}),
    "likelihood": ("network", {"trace": 0}),
    "energy": ("network", {"objective": "energy", "trace": 0}),
    "likelihood, following": ("network", {}),
    "energy, following": ("network", {"objective": "energy"}),
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
    errors, ratios, distances, found = [], [], [], []
    for x, a, mean in zip(observations, actions, means, strict=True):
        drawn = result.at(x, a).sample(DRAWS, seed=0).reshape(-1)
        errors.append(abs(drawn.mean() - mean) / std)
        found.append(drawn.mean() / std)
        ratios.append(abs(drawn.std() / std - 1))
        distances.append(wasserstein_distance(drawn, mean + ideal) / std)
    return {
        "mean": float(np.mean(errors)),
        "std": float(np.mean(ratios)),
        "w1": float(np.mean(distances)),
        "seconds": seconds,
        "stages": len(result.records),
        "means": [round(float(value), 4) for value in found],
    }


def summary(runs):
    """A line a task and way: medians and worst over seeds."""
    table = [
        "| task | fitted by | seeds | mean: median, worst | std | W1: median, worst "
        "| mean, from the exact class's | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, task in TASKS.items():
        exact = dict(_of(runs, name, "exact"))
        for way in task.ways:
            found = _of(runs, name, way)
            if not found:
                continue
            mean, std, w1, seconds = (
                np.array([run[figure] for _, run in found])
                for figure in ("mean", "std", "w1", "seconds")
            )
            apart = [
                np.mean(np.abs(np.subtract(run["means"], exact[seed]["means"])))
                for seed, run in found
                if seed in exact
            ]
            cells = [
                name,
                way,
                str(len(found)),
                f"{np.median(mean):.3f}, {mean.max():.2f}",
                f"{np.median(std):.3f}",
                f"{np.median(w1):.3f}, {w1.max():.2f}",
                f"{np.median(apart):.3f}, {np.max(apart):.2f}" if apart and way != "exact" else "",
                f"{np.median(seconds):.0f}",
            ]
            table.append("| " + " | ".join(cells) + " |")
    return table


def spread(found, beside):
    """Of errors of the mean (logs, states): their mean and scatter, and how far off they are.

    Also the median ratio of standard deviations, how far the means are from those of another way on
    the same log, and in how many logs they are nearer to the truth.
    """
    (errors, ratios), (others, _) = (zip(*each, strict=True) for each in (found, beside))
    apart = np.mean(np.abs(np.subtract(errors, others)), axis=1)
    nearer = np.mean(np.abs(errors), axis=1) < np.mean(np.abs(others), axis=1)
    by_log, away = np.mean(errors, axis=1), np.mean(np.abs(errors), axis=1)
    return {
        "logs": len(by_log),
        "mean": float(by_log.mean()),
        "standard_error": float(by_log.std(ddof=1) / np.sqrt(len(by_log))),
        "std": float(by_log.std(ddof=1)),
        "off": float(np.median(away)),
        "worst": float(away.max()),
        "std_ratio": float(np.median(ratios)),
        "apart": float(np.median(apart)),
        "nearer": int(nearer.sum()),
    }


def _of(runs, name, way):
    parts = [(key.split("/"), run) for key, run in runs.items()]
    return [(seed, run) for (task, by, seed), run in parts if (task, by) == (name, way)]


def _quantiles():
    from scipy.special import erfinv

    return erfinv(2 * (np.arange(DRAWS) + 0.5) / DRAWS - 1)


TASKS = {"chain": Cycle(), "lqr": Cart()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--ways", nargs="*", choices=tuple(WAYS), default=tuple(WAYS))
    parser.add_argument("--fixed-points", type=int, help="logs solved without a fit")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after so many")
    parser.add_argument("--tasks", nargs="*", choices=tuple(TASKS), default=tuple(TASKS))
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    environment, until = describe(), time.monotonic() + 60 * options.minutes
    for seed in range(options.seeds):
        for name in options.tasks:
            for way in TASKS[name].ways:
                key = f"{name}/{way}/{seed}"
                fresh = way in options.ways and key not in known["runs"]
                if fresh and time.monotonic() < until:
                    run = measured(TASKS[name], way, seed) | {"commit": environment["commit"]}
                    known = known | {"environment": environment}
                    known["runs"][key] = run
                    RESULTS.write_text(json.dumps(known) + "\n")
                    print(key, known["runs"][key]["w1"], flush=True)
    print("\n".join(summary(known["runs"])))
    for name in options.tasks if options.fixed_points else ():
        said = [TASKS[name].fixed_points(seed) for seed in range(options.fixed_points)]
        first = next(iter(said[0]))
        for way in said[0]:
            beside = way.removesuffix(", energy") if way.endswith(", energy") else first
            found = spread([one[way] for one in said], [one[beside] for one in said])
            key = f"{name}, {way}, {options.fixed_points} logs"
            known.setdefault("fixed_points", {})[key] = found
            print(name, way, found)
        RESULTS.write_text(json.dumps(known) + "\n")


if __name__ == "__main__":
    main()
