"""A log that has grown by a fifth: an evaluation gone on from that of the shorter log, and anew.

Five states in a ring, two actions, noisy rewards, so that the mean is known exactly; 20,000 rows,
then 24,000. Of every log three fits: of the shorter one, of all of it anew, and of all of it from
the first one on. Errors of the mean are in standard deviations of the return, seconds are those
of the processor, compilation included in none (each fit is made twice, and the second one counts).
Writes `results/growth.json`, to which logs of other seeds are added.

    python benchmarks/growth.py --first 0 --seeds 8
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import fle
from fle.paper.environment import describe

RESULT = Path(__file__).parent / "results" / "growth.json"
STATES, LENGTH, BEFORE, NOW = 5, 50, 20_000, 24_000
# How often an action moves as it says, and what the policy does.
MOVES, POLICY = 0.8, (0.2, 0.8)
PROBLEMS: dict[str, dict[str, Any]] = {
    "discounted": {"gamma": 0.95},
    "horizon": {"horizon": 10},
}


def log(rows: int, seed: int) -> fle.Dataset:
    generator = np.random.default_rng(seed)
    actions, moved = generator.integers(0, 2, NOW), generator.random(NOW) < MOVES
    steps = np.where(actions, 1, -1) * moved
    states, following = np.empty(NOW, int), np.empty(NOW, int)
    for row in range(NOW):
        states[row] = following[row - 1] if row % LENGTH else generator.integers(STATES)
        following[row] = (states[row] + steps[row]) % STATES
    rewards = 0.2 * states + 0.3 * actions + 0.5 * generator.standard_normal(NOW)
    return fle.Dataset(
        observations=states[:rows],
        actions=actions[:rows],
        rewards=rewards[:rows],
        next_observations=following[:rows],
        terminations=np.zeros(rows, bool),
        truncations=np.arange(rows) % LENGTH == LENGTH - 1,
        episodes=np.arange(rows) // LENGTH,
        number_of_actions=2,
    )


def true_mean(data: fle.Dataset, gamma: float = 1.0, horizon: int | None = None) -> float:
    """From the initial states of the log, by the value equation."""
    moving = np.zeros((STATES, STATES))
    for state in range(STATES):
        for action, chance in enumerate(POLICY):
            to = (state + (1 if action else -1)) % STATES
            moving[state, to] += chance * MOVES
            moving[state, state] += chance * (1 - MOVES)
    rewards = 0.2 * np.arange(STATES) + 0.3 * POLICY[1]
    if horizon is None:
        values = np.linalg.solve(np.eye(STATES) - gamma * moving, rewards)
    else:
        values = np.zeros(STATES)
        for _ in range(horizon):
            values = rewards + gamma * moving @ values
    return float(values[data.require_initial_observations()].mean())


def fitted(data: fle.Dataset, seed: int, **settings: Any) -> tuple[fle.Evaluation, float]:
    """The evaluation, and its seconds of the processor once everything is compiled."""
    for _ in range(2):
        began = time.process_time()
        found = fle.evaluate(
            data, list(POLICY), seed=seed, second_opinions=False, anyway=True, **settings
        )
        seconds = time.process_time() - began
    return found, seconds


def measured(problem: dict[str, Any], seed: int) -> dict[str, Any]:
    whole, model = log(NOW, seed), fle.Gaussian(hidden=(16,))
    earlier, _ = fitted(log(BEFORE, seed), seed, model=model, **problem)
    anew, cold = fitted(whole, seed + 1000, model=model, **problem)
    on, warm = fitted(whole, seed + 1000, earlier=earlier)
    truth, unit = true_mean(whole, **problem), float(anew.returns.std())
    before = earlier.returns.mean() - true_mean(log(BEFORE, seed), **problem)
    return {
        "earlier": abs(before) / unit,
        "anew": abs(anew.returns.mean() - truth) / unit,
        "gone_on": abs(on.returns.mean() - truth) / unit,
        "stages": [len(anew.records), len(on.records)],
        "seconds": [cold, warm],
    }


def summary(runs: dict[str, Any]) -> dict[str, Any]:
    ratios = [one["seconds"][1] / one["seconds"][0] for one in runs.values()]
    errors = {
        which: [one[which] for one in runs.values()] for which in ("earlier", "anew", "gone_on")
    }
    return {
        "mean_error": {which: float(np.mean(values)) for which, values in errors.items()},
        "worst_error": {which: float(np.max(values)) for which, values in errors.items()},
        "seconds": float(np.median(ratios)),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    known = json.loads(options.out.read_text())["problems"] if options.out.exists() else {}
    tables: dict[str, Any] = {}
    for name, problem in PROBLEMS.items():
        runs = known.get(name, {}).get("runs", {})
        for seed in range(options.first, options.first + options.seeds):
            runs[str(seed)] = measured(problem, seed)
        tables[name] = summary(runs)
        print(name, {key: value for key, value in tables[name].items() if key != "runs"})
    result = {"environment": describe(), "rows": [BEFORE, NOW], "problems": tables}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
