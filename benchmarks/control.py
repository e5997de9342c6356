"""Pendulum and CartPole at two discounts: how far is the estimate from 10,000 rollouts?

A hand-written noisy controller is evaluated from data that a much noisier one logged. Writes
`benchmarks/results/control.json` and prints the table.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import gymnasium
import numpy as np

import fle
from fle.paper.environment import describe
from fle.returns import sampling_floor, wasserstein
from fle.tasks import collect, monte_carlo_returns

ROWS = 100_000
EPISODES = 10_000


def pendulum_action(observations, generator, noise):
    """Swing up by pumping energy, then balance; torque noise of the given size."""
    cosine, sine, speed = observations.T
    angle = np.arctan2(sine, cosine)
    energy = 0.5 * speed**2 + 15 * (cosine - 1)
    pump = -2 * np.sign(speed) * np.sign(energy)
    balance = -(20 * angle + 4 * speed)
    torque = np.where(cosine > 0.85, balance, pump) + generator.normal(0, noise, len(cosine))
    return np.clip(torque, -2, 2).astype(np.float32)[:, None]


def cartpole_push_right(observations, exploration):
    """Probability of pushing right: a linear controller that errs with some probability."""
    position, velocity, angle, spin = observations.T
    right = (angle + 0.5 * spin + 0.02 * position + 0.05 * velocity) > 0
    return np.where(right, 1 - exploration / 2, exploration / 2)


def cartpole_probabilities(observations, exploration=0.5):
    right = cartpole_push_right(observations, exploration)
    return np.stack([1 - right, right], axis=1)


def cartpole_sampler(exploration):
    def act(observations, generator):
        right = cartpole_push_right(observations, exploration)
        return (generator.random(len(right)) < right).astype(np.int64)

    return act


class Task:
    """One environment with its behaviour and target policies."""

    def __init__(self, name, make, make_endless, behaviour, target_sampler, target_policy):
        self.name = name
        self.make, self.make_endless = make, make_endless
        self.behaviour = behaviour
        self.target_sampler, self.target_policy = target_sampler, target_policy


def tasks():
    def pendulum(noise):
        return lambda observations, generator: pendulum_action(observations, generator, noise)

    def endless_cartpole():
        return gymnasium.make_vec(
            "CartPole-v1", 500, vectorization_mode="vector_entry_point", max_episode_steps=100_000
        )

    def endless_pendulum():
        return gymnasium.make("Pendulum-v1", max_episode_steps=100_000)

    return [
        Task(
            "Pendulum",
            lambda: gymnasium.make("Pendulum-v1"),
            endless_pendulum,
            pendulum(2.0),
            pendulum(0.5),
            pendulum(0.5),
        ),
        Task(
            "CartPole",
            lambda: gymnasium.make("CartPole-v1"),
            endless_cartpole,
            cartpole_sampler(0.8),
            cartpole_sampler(0.5),
            cartpole_probabilities,
        ),
    ]


def truth(task, gamma, cache):
    """Returns of 10,000 episodes, played until what is left is negligible."""
    horizon = int(np.ceil(np.log(1e-3) / np.log(gamma)))
    file = cache / f"{task.name}-{gamma}-{EPISODES}.npy"
    if file.exists():
        return np.load(file)
    returns = monte_carlo_returns(
        task.make_endless,
        task.target_sampler,
        episodes=EPISODES,
        gamma=gamma,
        horizon=horizon,
        seed=12345,
        environments=500,
    )
    cache.mkdir(parents=True, exist_ok=True)
    np.save(file, returns)
    return returns


def logged_data(task, seed):
    """1e5 rows; where episodes start is known, and not only from the few hundred logged ones."""
    arrays = collect(task.make, task.behaviour, rows=ROWS, seed=seed)
    environment = task.make()
    starts = [environment.reset(seed=1_000_000 + i)[0] for i in range(EPISODES)]
    return fle.Dataset(**{**arrays, "initial_observations": np.stack(starts)})


def measure(task, gamma, seed, cache, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fle.FLEWarning)
        data = logged_data(task, seed)
        began = time.perf_counter()
        result = fle.evaluate(
            data, task.target_policy, gamma=gamma, model=model, seed=seed, anyway=True
        )
    seconds = time.perf_counter() - began
    returns = truth(task, gamma, cache)
    std = returns.std()
    estimate = result.returns.sample(EPISODES, seed=1)
    floor = sampling_floor(
        wasserstein, lambda g, n: g.choice(returns, n), EPISODES, repetitions=5, seed=0
    )
    true_cvar = fle.ReturnDistribution.from_samples(returns).cvar(0.1)
    return {
        "task": task.name,
        "gamma": gamma,
        "seed": seed,
        "stages": len(result.records),
        "seconds": round(seconds, 1),
        "true_mean": float(returns.mean()),
        "true_std": float(std),
        "mean": float(result.returns.mean()),
        "std": float(result.returns.std()),
        "w1_over_std": float(wasserstein(estimate, returns) / std),
        "floor_over_std": float(floor.mean / std),
        "cvar_error_over_std": float((result.returns.cvar(0.1) - true_cvar) / std),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--task", default="")
    parser.add_argument("--gammas", type=float, nargs="*", default=[0.95, 0.99])
    parser.add_argument("--model", default="auto")
    parser.add_argument("--cache", type=Path, default=Path("runs/control"))
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "control.json"
    )
    options = parser.parse_args()
    results = []
    print(f"{'task':9} gamma seed  W1/std  [floor]  CVaR error/std  stages  seconds")
    for task in tasks():
        for gamma in options.gammas:
            for seed in range(options.seeds):
                if options.task not in task.name:
                    continue
                r = measure(task, gamma, seed, options.cache, options.model)
                results.append(r)
                print(
                    f"{r['task']:9} {r['gamma']:5} {r['seed']:4}  {r['w1_over_std']:.4f}  "
                    f"[{r['floor_over_std']:.4f}]  {r['cvar_error_over_std']:+14.3f}  "
                    f"{r['stages']:6}  {r['seconds']:7}  mean {r['mean']:.2f} "
                    f"({r['true_mean']:.2f}) std {r['std']:.2f} ({r['true_std']:.2f})",
                    flush=True,
                )
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps({**describe(), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
