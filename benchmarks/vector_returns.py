"""Vector returns whose law is known: the two-dimensional lock, and a fork with five rewards.

Writes `benchmarks/results/vector_returns.json` and prints the tables. Results of earlier runs are
kept: a (model, seed) that is already in the file is not run again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import fle
from fle.paper.environment import describe
from fle.returns import sampling_floor, sliced_wasserstein, total_variation_from_samples
from fle.tasks import CombinationLock, Fork

RESULTS = Path(__file__).parent / "results" / "vector_returns.json"
MODELS = {
    "autoregressive": fle.Autoregressive(),
    "flow": fle.Flow(),
    "diffusion": fle.Diffusion(),
    "gmm": fle.GMM(),
}
SAMPLES, MANY = 20_000, 1_000_000
FORK_ROWS, FORK_SAMPLES = 40_000, 10_000


def tv(a, b):
    """The paper's statistic: 50 x 50 bins on [-5, 5]^2."""
    return total_variation_from_samples(a, b, bins=50, low=-5, high=5)


def measure_lock(name, seed):
    """TV at every h between the fit at (good state, right action) and the truth."""
    lock = CombinationLock.paper_2d()
    data = fle.Dataset(**lock.offline_data(10_000, seed))
    began = time.perf_counter()
    result = fle.evaluate(
        data, lock.target_policy, horizon=lock.horizon, model=MODELS[name], seed=seed, anyway=True
    )
    seconds = time.perf_counter() - began
    generator = np.random.default_rng([seed, 99])
    few, many = [], []
    for step in range(lock.horizon):
        observations = lock.observe(np.zeros(4_000, int), np.full(4_000, step), generator)
        law = result.mixture(observations, np.zeros(4_000, int), step=step)
        ours = law.sample(MANY, seed=0)
        truth = lock.sample_true_returns(step, MANY, generator)
        # Several pairs of samples, as one pair is itself noisy.
        starts = range(0, 5 * SAMPLES, SAMPLES)
        few.append(float(np.mean([tv(ours[i:][:SAMPLES], truth[i:][:SAMPLES]) for i in starts])))
        many.append(tv(ours, truth))
    return {"tv": few, "tv_million": many, "seconds": seconds}


def lock_floor(samples, repetitions):
    lock = CombinationLock.paper_2d()
    return [
        sampling_floor(
            tv, lambda g, n, step=step: lock.sample_true_returns(step, n, g), samples, repetitions
        ).mean
        for step in range(lock.horizon)
    ]


def measure_fork(name, seed):
    """Sliced W1 between estimate and truth, five rewards, and its sampling floor."""
    fork = Fork.example()
    data = fle.Dataset(**fork.offline_data(FORK_ROWS, seed))
    began = time.perf_counter()
    result = fle.evaluate(
        data, fork.target_policy, horizon=fork.horizon, model=MODELS[name], seed=seed, anyway=True
    )
    seconds = time.perf_counter() - began
    generator = np.random.default_rng([seed, 99])
    pairs, floors = [], []
    for i in range(5):
        truth, other = (fork.sample_returns(FORK_SAMPLES, generator) for _ in range(2))
        pairs.append(sliced_wasserstein(result.returns.sample(FORK_SAMPLES, seed=i), truth))
        floors.append(sliced_wasserstein(other, truth))
    return {
        "sliced_w1": float(np.mean(pairs)),
        "floor": float(np.mean(floors)),
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tasks", nargs="+", choices=["lock", "fork"], default=["lock", "fork"])
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "floor" not in results:
        results["floor"] = {"tv": lock_floor(SAMPLES, 20), "tv_million": lock_floor(MANY, 2)}
    measure = {"lock": measure_lock, "fork": measure_fork}
    for task in options.tasks:
        for name in options.models:
            runs = results.setdefault(task, {}).setdefault(name, {})
            for seed in range(options.seeds):
                if str(seed) not in runs:
                    runs[str(seed)] = {**measure[task](name, seed), **describe()}
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            show(task, name, runs, results["floor"])


def show(task, name, runs, floor):
    seconds = ", ".join(f"{run['seconds']:.0f}" for run in runs.values())
    if task == "fork":
        ratios = ", ".join(f"{run['sliced_w1'] / run['floor']:.2f}" for run in runs.values())
        print(f"fork, {name}: sliced W1 over its floor {ratios}; {seconds} s", flush=True)
        return
    mean = np.mean([run["tv"] for run in runs.values()], axis=0)
    million = np.mean([run["tv_million"] for run in runs.values()], axis=0)
    print(f"lock, {name}, {len(runs)} seeds, {seconds} s")
    print("  TV              ", np.round(mean, 3))
    print("  over its floor  ", np.round(mean / floor["tv"], 2))
    print("  a million draws ", np.round(million, 3), "floor", round(floor["tv_million"][0], 3))


if __name__ == "__main__":
    main()
