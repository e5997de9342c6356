"""24 jobs on a Ray cluster of three nodes, one of which is killed in the middle: the same results?

All on this machine, by Ray's own cluster utility; each node has one core to give, and the three
share those that there are. Four policies with five replicates each make 4 fits and 20 fits to
resampled episodes, and four jobs that put them together. A node is killed, raylet and workers,
when a third of the jobs have ended, while it is at one. The same is then done by processes of this
machine, by an array of SLURM run by hand, one task after another, and in this process. Writes
`results/cluster.json`.

    python benchmarks/cluster.py
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import fle
from fle.executors import JobsWaitingError, Processes, Ray, Slurm
from fle.fitting import Silent
from fle.paper.environment import describe

RESULT = Path(__file__).parent / "results" / "cluster.json"
ROWS, POLICIES, REPLICATES, NODES = 20_000, 4, 5, 3
STORE = 80 * 2**20


def log() -> fle.Dataset:
    """Episodes of 8 and of 12 steps: a noisy walk that one action pushes up and the other down."""
    generator = np.random.default_rng(0)
    ends = np.isin(np.arange(ROWS) % 20, (7, 19))
    actions = generator.integers(0, 2, ROWS)
    pushed = np.where(actions, 0.3, -0.3) + generator.normal(size=ROWS)
    walk = np.concatenate([np.cumsum(part) for part in np.split(pushed, np.flatnonzero(ends) + 1)])
    before = np.where(np.roll(ends, 1), 0.0, np.roll(walk, 1))
    return fle.Dataset(
        observations=np.stack([before, np.abs(before)], axis=1),
        actions=actions,
        rewards=walk + generator.normal(size=ROWS),
        episodes=np.cumsum(ends) - ends,
        terminations=ends,
        number_of_actions=2,
    )


def plans() -> dict[str, fle.Plan]:
    data = log()
    return {
        f"up {share:.0%}": fle.plan(
            data,
            [1 - share, share],
            gamma=0.9,
            model=fle.GMM(hidden=(32, 32)),
            interval=fle.Interval(0.9, REPLICATES),
            second_opinions=False,
        )
        for share in np.linspace(0.2, 0.8, POLICIES)
    }


class Killing(Silent):
    """Kills a node when so many jobs have ended, and notes what it was at."""

    def __init__(self, cluster: Any, node: Any, after: int, folder: Path):
        self._cluster, self._node, self._after, self._folder = cluster, node, after, folder
        self.jobs, self.lost = 0, list[str]()

    def start(self, stages: int, title: str) -> None:
        self.jobs = stages

    def advance(self, stage: int, loss: float) -> None:
        if stage != self._after:
            return
        workers = _children_of(self._raylet())
        busy = {}
        for lock in self._folder.glob("*/.lock"):
            holder = lock.read_text().strip()
            if holder.isdecimal() and int(holder) in workers and _is_locked(lock):
                busy[lock.parent.name] = int(holder)
        self._cluster.remove_node(self._node, allow_graceful=False)
        self.lost = sorted(busy)

    def _raylet(self) -> int:
        return int(self._node.all_processes["raylet"][0].process.pid)


def _children_of(process: int) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        parts = entry.read_text().rpartition(")")[2].split()
        if int(parts[1]) == process:
            found.add(int(entry.parent.name))
    return found


def _is_locked(path: Path) -> bool:
    import fcntl

    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def on_ray(folder: Path) -> tuple[dict[str, fle.Evaluation], dict[str, Any]]:
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(NODES)]
    ray.init(address=cluster.address, log_to_driver=False)
    jobs = POLICIES * (REPLICATES + 1)
    progress = Killing(cluster, nodes[0], jobs // 3, folder)
    began = time.monotonic()
    try:
        executor = Ray(cluster.address, folder=folder)
        found = fle.carry_out(plans(), executor=executor, progress=progress)
        seconds = time.monotonic() - began
    finally:
        ray.shutdown()
        cluster.shutdown()
    return found, {
        "seconds": seconds,
        "jobs": progress.jobs,
        "killed_after": jobs // 3,
        "jobs_of_the_killed_node": progress.lost,
        "version": ray.__version__,
    }


def on_slurm(folder: Path) -> dict[str, fle.Evaluation]:
    """Every task of every array, as SLURM would start it."""
    script = folder / "jobs.sbatch"
    while True:
        try:
            return fle.carry_out(plans(), executor=Slurm(script, folder=folder))
        except JobsWaitingError:
            lines = script.read_text().splitlines()
            last = next(line for line in lines if "--array=" in line).rpartition("-")[2]
            for task in range(int(last) + 1):
                told = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
                subprocess.run(["bash", str(script)], env=told, check=True, capture_output=True)


def differences(found: dict[str, fle.Evaluation], other: dict[str, fle.Evaluation]) -> list[str]:
    """What is not the same to the last bit."""
    differ = []
    for name, ours in found.items():
        theirs = other[name]
        if not np.array_equal(ours.returns.samples, theirs.returns.samples):
            differ.append(f"{name}: returns")
        for measure in ("mean", "cvar:0.1"):
            if ours.interval(measure) != theirs.interval(measure):
                differ.append(f"{name}: interval of {measure}")
    return differ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    place = describe()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, facts = on_ray(folder / "ray")
        timed: dict[str, Any] = {"ray": facts}
        ways = {
            "processes": lambda: fle.carry_out(
                plans(), executor=Processes(2, folder=folder / "processes")
            ),
            "slurm": lambda: on_slurm(folder / "slurm"),
            "this process": lambda: fle.carry_out(plans()),
        }
        for way, carried_out in ways.items():
            began = time.monotonic()
            theirs = carried_out()
            seconds = time.monotonic() - began
            timed[way] = {"seconds": seconds, "differences": differences(ours, theirs)}
    result = {"environment": place, "rows": ROWS, "policies": POLICIES, "replicates": REPLICATES}
    options.out.write_text(json.dumps({**result, "nodes": NODES, "ways": timed}, indent=1) + "\n")
    print(json.dumps(timed, indent=1))


if __name__ == "__main__":
    main()
