"""The bundled examples with default settings: how far is each estimate from the truth?

Writes `benchmarks/results/bundled.json` and prints the table. The bar is 0.1 of the return's
standard deviation, in W1 for scalar and in sliced W1 for vector returns, each coordinate in its own
standard deviations.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np

import fle
from fle import examples
from fle.paper.environment import describe
from fle.returns import sampling_floor, sliced_wasserstein, wasserstein

DRAWS = 20_000
BAR = 0.1
CASES = (("cartpole", "auto"), ("reservoir", "auto"), ("reservoir", "gmm"))


def distance(dim):
    return wasserstein if dim == 1 else partial(sliced_wasserstein, projections=128)


def measure(name, model, seed):
    example = examples.load(name)
    data = fle.read(example.data_path)
    policy = fle.load_policy(example.policy_path)
    began = time.perf_counter()
    result = fle.evaluate(
        data,
        policy,
        gamma=example.gamma,
        horizon=example.horizon,
        model=model,
        seed=seed,
        anyway=True,
    )
    seconds = time.perf_counter() - began
    std = example.truth.std(axis=0)
    truth = example.truth / std
    estimate = result.returns.sample(DRAWS, seed=1).reshape(DRAWS, -1) / std
    between = distance(truth.shape[1])
    floor = sampling_floor(
        between, lambda g, n: truth[g.integers(len(truth), size=n)], (DRAWS, len(truth))
    )
    return {
        "example": name,
        "model": f"{model} ({result.model.name})" if model == "auto" else model,
        "seed": seed,
        "stages": len(result.records),
        "seconds": round(seconds, 1),
        "w1_over_std": between(estimate, truth),
        "floor_over_std": floor.mean,
        "coordinates": {
            label: wasserstein(estimate[:, i], truth[:, i])
            for i, label in enumerate(result.return_names)
        },
        "mean_error_over_std": (estimate.mean(axis=0) - truth.mean(axis=0)).tolist(),
        "correlation": _correlation(estimate),
        "true_correlation": _correlation(truth),
        "behaviour_w1_over_std": between(data.observed_returns(result.gamma)[0] / std, truth),
    }


def _correlation(rows):
    return None if rows.shape[1] == 1 else float(np.corrcoef(rows.T)[0, 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "bundled.json"
    )
    options = parser.parse_args()
    results = []
    print("example    model                  seed  W1/std  [floor]  bar  seconds")
    for name, model in CASES:
        for seed in options.seeds:
            r = measure(name, model, seed)
            results.append(r)
            met = "met" if r["w1_over_std"] <= BAR else "MISSED"
            print(
                f"{r['example']:10} {r['model']:22} {seed:4}  {r['w1_over_std']:.4f}  "
                f"[{r['floor_over_std']:.4f}]  {met}  {r['seconds']:.0f}",
                flush=True,
            )
    options.out.write_text(
        json.dumps({**describe(), "bar": BAR, "results": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
