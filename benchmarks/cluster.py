"""24 jobs on a Ray cluster of three nodes, one of which is killed in the middle: the same results?

All on this machine, by Ray's own cluster utility; each node has one core to give, and the three
share those that there are. Four policies with five replicates each make 4 fits and 20 fits to
resampled episodes, and four jobs that put them together. A node is killed, raylet and workers,
when a third of the jobs have ended, while it is at one. Then the same is done by processes of this
machine, by arrays of SLURM run by hand (two tasks a round, which share its jobs), and in this
process. The fits are tiny: it is about bits, and not about speed. Writes `results/cluster.json`,
of every way as it is asked for.

    python benchmarks/cluster.py ray processes slurm here
"""

import argparse
import hashlib
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
from fle import executors
from fle.executors import JobsWaitingError, Processes, Ray, Slurm
from fle.fitting import Silent
from fle.paper.environment import describe

RESULT = Path(__file__).parent / "results" / "cluster.json"
ROWS, POLICIES, REPLICATES, NODES = 20_000, 4, 5, 3
STORE = 80 * 2**20
# A node that has just ended a job soon begins another.
SECONDS_TO_BEGIN = 20.0


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
            stages=4,
            model=fle.GMM(hidden=(8,)),
            recipe={"steps": 200},
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
        until = time.monotonic() + SECONDS_TO_BEGIN
        while not self.lost and time.monotonic() < until:
            self.lost = self._busy()
        self._cluster.remove_node(self._node, allow_graceful=False)

    def _busy(self) -> list[str]:
        """The jobs that the node is at."""
        workers = _children_of(self._raylet())
        holders = {lock: lock.read_text().strip() for lock in self._folder.glob("*/.lock")}
        return sorted(
            lock.parent.name
            for lock, holder in holders.items()
            if holder.isdecimal() and int(holder) in workers and _is_locked(lock)
        )

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
    try:
        executor = Ray(cluster.address, folder=folder)
        found = fle.carry_out(plans(), executor=executor, progress=progress)
    finally:
        ray.shutdown()
        cluster.shutdown()
    return found, {
        "jobs": progress.jobs,
        "killed_after": jobs // 3,
        "jobs_of_the_killed_node": progress.lost,
        "version": ray.__version__,
    }


def on_slurm(folder: Path) -> dict[str, fle.Evaluation]:
    """Every task of every array, as SLURM would start it."""
    executors.MOST_TASKS = 2
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


def digests(found: dict[str, fle.Evaluation]) -> dict[str, str]:
    """Of all draws of the returns and both ends of two intervals, by policy, to the last bit."""
    shown = {}
    for name, one in found.items():
        digest = hashlib.sha256(one.returns.samples.tobytes())
        for measure in ("mean", "cvar:0.1"):
            digest.update(repr(one.interval(measure).ends).encode())
        shown[name] = digest.hexdigest()
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="+", choices=("ray", "processes", "slurm", "here"))
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {"rows": ROWS, "policies": POLICIES, "replicates": REPLICATES, "nodes": NODES}
    for way in options.ways:
        facts: dict[str, Any] = {}
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if way == "ray":
                found, facts = on_ray(folder)
            elif way == "processes":
                found = fle.carry_out(plans(), executor=Processes(2, folder=folder))
            else:
                found = on_slurm(folder) if way == "slurm" else fle.carry_out(plans())
            facts |= {"seconds": time.monotonic() - began, "digests": digests(found)}
        result.setdefault("ways", {})[way] = {"environment": describe(), **facts}
        ways = result["ways"].values()
        result["equal"] = all(one["digests"] == facts["digests"] for one in ways)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print({name: one["digests"] for name, one in result["ways"].items()}, result["equal"])


if __name__ == "__main__":
    main()
