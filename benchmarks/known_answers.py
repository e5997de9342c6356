"""Combination lock and LQR, whose answers are known: accuracy and wall time of the default GMM.

Writes `benchmarks/results/known_answers.json` and prints the tables.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import fle
from fle.paper.environment import describe
from fle.returns import sampling_floor, total_variation_from_samples
from fle.tasks import LQR, CombinationLock

SAMPLES = 20_000


def tv(a, b):
    """The paper's statistic: 50 bins on [-2, 2]."""
    return total_variation_from_samples(a, b, bins=50, low=-2, high=2)


def measure_lock(seed):
    """TV at every h between the fit at (good state, right action) and the truth."""
    lock = CombinationLock.paper_1d()
    data = fle.Dataset(**lock.offline_data(10_000, seed))
    began = time.perf_counter()
    result = fle.evaluate(data, lock.target_policy, horizon=lock.horizon, seed=seed, anyway=True)
    seconds = time.perf_counter() - began
    generator = np.random.default_rng([seed, 99])
    distances = []
    for step in range(lock.horizon):
        observations = lock.observe(np.zeros(2_000, int), np.full(2_000, step), generator)
        law = result.mixture(observations, np.zeros(2_000, int), step=step)
        # Several pairs of samples, as one pair is itself noisy by a tenth of the floor.
        pairs = [
            tv(law.sample(SAMPLES, seed=i), lock.sample_true_returns(step, SAMPLES, generator))
            for i in range(5)
        ]
        distances.append(float(np.mean(pairs)))
    return distances, seconds


def lock_floor():
    lock = CombinationLock.paper_1d()
    return [
        sampling_floor(
            tv, lambda g, n, step=step: lock.sample_true_returns(step, n, g), SAMPLES, 40
        ).mean
        for step in range(lock.horizon)
    ]


def measure_lqr(seed):
    """Conditional mean and variance at 20 held-out (x, a), H = 15, 20,000 rows."""
    task = LQR.example(horizon=15)
    data = fle.Dataset(**task.offline_data(20_000, seed))
    began = time.perf_counter()
    result = fle.evaluate(data, task.target_policy, horizon=15, seed=seed, anyway=True)
    seconds = time.perf_counter() - began
    generator = np.random.default_rng([seed, 7])
    std = task.sample_returns(20_000, generator).std()
    observations = task.initial_observations(20, generator)
    actions = task.target_policy(observations)
    means = np.ravel(task.true_mean(observations, actions, 0))
    laws = [result.at(x, a) for x, a in zip(observations, actions, strict=True)]
    errors = [(law.mean() - mean) / std for law, mean in zip(laws, means, strict=True)]
    ratios = [law.variance() / task.true_variance(0) for law in laws]
    return {
        "seed": seed,
        "largest_mean_error_over_std": float(np.abs(errors).max()),
        "smallest_variance_ratio": float(min(ratios)),
        "largest_variance_ratio": float(max(ratios)),
        "seconds": round(seconds, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "known_answers.json"
    )
    options = parser.parse_args()

    runs = [measure_lock(seed) for seed in range(options.seeds)]
    floor = np.array(lock_floor())
    distances = np.array([run[0] for run in runs])
    ratio = distances.mean(axis=0) / floor
    seconds = [round(run[1], 1) for run in runs]
    print(f"1-d combination lock, {options.seeds} seeds, seconds {seconds}")
    print(" h      TV   floor  ratio")
    for h, (value, least, times) in enumerate(
        zip(distances.mean(axis=0), floor, ratio, strict=True), start=1
    ):
        print(f"{h:2}  {value:.4f}  {least:.4f}   {times:.2f}")
    print(f"largest ratio {ratio.max():.2f}\n")

    print("LQR, H = 15, 20,000 rows\nseed  mean error/std  variance ratio  seconds")
    lqr = [measure_lqr(seed) for seed in range(options.seeds)]
    for r in lqr:
        print(
            f"{r['seed']:4}  {r['largest_mean_error_over_std']:14.3f}  "
            f"{r['smallest_variance_ratio']:.3f} to {r['largest_variance_ratio']:.3f}  "
            f"{r['seconds']:7}"
        )
    results = {
        "lock": {
            "tv": distances.tolist(),
            "floor": floor.tolist(),
            "mean_ratio": ratio.tolist(),
            "seconds": seconds,
        },
        "lqr": lqr,
    }
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps({**describe(), **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
