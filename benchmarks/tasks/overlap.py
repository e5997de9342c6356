"""How far a target policy goes where the log did not: what `covered` of a task rests on.

    python benchmarks/tasks/overlap.py [FAMILY ...]

Prints for each task the share of the policy's discounted visits that lie farther from half of the
log (fifth neighbour, each column in its standard deviation) than 99% of the other half do.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree

HERE = Path(__file__).resolve().parent
# A script's own folder comes first; here it would hide packages named like a family.
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

from tasks.register import FAMILIES  # noqa: E402
from tasks.task import Task, position_in_episode  # noqa: E402

MOST_ROWS, VISITS, HELD_OUT, NEIGHBOUR = 100_000, 20_000, 5_000, 5


def share_beyond(task: Task) -> float:
    """0.01 where the policy goes where the log went."""
    source = task.source
    logged = _columns(source.log(min(task.rows, MOST_ROWS), 0)["observations"])
    # Visits after a discount of 0.05 hardly weigh.
    longest = source.horizon or int(np.ceil(np.log(0.05) / np.log(source.gamma)))
    acting = dataclasses.replace(source, behaviour=source.policy, longest=longest)
    played = acting.log(VISITS, 1)
    weights = source.gamma ** position_in_episode(played["episodes"])
    scale = logged.std(axis=0) + 1e-9
    order = np.random.default_rng(0).permutation(len(logged))
    half = len(logged) // 2
    tree = KDTree(logged[order[:half]] / scale)

    def distances(observations):
        return tree.query(observations / scale, k=NEIGHBOUR)[0][:, -1]

    usual = np.quantile(distances(logged[order[half:][:HELD_OUT]]), 0.99)
    beyond = distances(_columns(played["observations"])) > usual
    return float(weights @ beyond / weights.sum())


def _columns(observations) -> np.ndarray:
    return np.reshape(observations, (len(observations), -1)).astype(float)


def main() -> None:
    for family in FAMILIES:
        if family.missing or (sys.argv[1:] and family.name not in sys.argv[1:]):
            continue
        for task in family.tasks():
            words = "covered" if task.covered else "not covered"
            print(f"{task.name:32} {words:12} {share_beyond(task):.3f}", flush=True)


if __name__ == "__main__":
    main()
