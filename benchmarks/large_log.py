"""A log of 100 million transitions and 10 columns: prepared, opened and evaluated with few steps.

A linear system that the action pushes, with a known mean return, is written as Parquet shards in
which episodes cross from one to the next. What is measured, each in a process of its own:

- the time in which Arrow alone reads the shards, in which it also finds the range of each column,
  and in which `fle.prepare` does its work; as they come from the page cache, in turn, the median of
  three ratios where there is time for it;
- the peak of anonymous memory (RssAnon, read every 20 ms), which leaves out pages of files, for
  preparing, and for opening and evaluating;
- the time of a training step, against the same evaluation of one million rows in memory;
- the estimated mean, against the truth.

Writes `results/large_log.json`. Needs about 110 bytes of disk a row, which are removed afterwards.

    python benchmarks/large_log.py --rows 100000000 --folder /somewhere/large
"""

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SHARD = 1_000_000
GAMMA, STOP, CHANCE = 0.9, 0.05, 0.7
FIT: dict[str, Any] = {"gamma": GAMMA, "stages": 8, "model": "gaussian", "second_opinions": False}
RECIPE = {"steps": 2000, "batch_size": 256}
MOST_MEMORY, MOST_STEP, MOST_PREPARE = 3 * 10**9, 1.3, 2.0


def truth() -> float:
    """Of x' = 0.8 x + 0.6 (a - 0.5) + noise from x = 0 on average, r = x + 0.5 a, a = 1 with 0.7.

    E[x_t] = 0.6 (1 - 0.8^t), and the episode goes on with 0.95 after every step.
    """
    factor = GAMMA * (1 - STOP)
    return (0.6 + 0.5 * CHANCE) / (1 - factor) - 0.6 / (1 - 0.8 * factor)


def policy(observations: np.ndarray) -> np.ndarray:
    """To the right with the same chance everywhere."""
    return np.tile([1 - CHANCE, CHANCE], (len(observations), 1))


def episodes(rows: int, first: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Whole episodes of at least so many rows, by columns."""
    lengths = generator.geometric(STOP, 2 * int(rows * STOP) + 100)
    lengths = lengths[: 1 + int(np.searchsorted(np.cumsum(lengths), rows))]
    starts = np.cumsum(lengths) - lengths
    number = int(lengths.sum())
    states = generator.standard_normal((4, number), dtype=np.float32)
    actions, rewards = np.empty(number, np.int8), np.empty(number, np.float32)
    going, state = np.arange(len(lengths)), generator.standard_normal(len(lengths))
    for step in range(int(lengths.max())):
        going = going[lengths[going] > step]
        place, now = starts[going] + step, state[going]
        taken = generator.random(len(going)) < 1 / (1 + np.exp(-now))
        states[0, place], actions[place] = now, taken
        rewards[place] = now + 0.5 * taken + 0.1 * generator.standard_normal(len(going))
        noise = 0.3 * generator.standard_normal(len(going))
        state[going] = 0.8 * now + 0.6 * (taken - 0.5) + noise
    ends = np.zeros(number, bool)
    ends[starts + lengths - 1] = True
    return {
        "episode": np.repeat(np.arange(first, first + len(lengths)), lengths),
        "step": (np.arange(number) - np.repeat(starts, lengths)).astype(np.int32),
        **{f"observation.{name}": states[i] for i, name in enumerate("xyzw")},
        "action": actions,
        "reward": rewards,
        "terminated": ends,
        "truncated": np.zeros(number, bool),
    }


def write_log(folder: Path, rows: int) -> None:
    """Shards of a million rows; the last rows of each go to the next."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    left, first = None, 0
    for number in range(-(-rows // SHARD)):
        found = episodes(SHARD, first, np.random.default_rng([0, number]))
        first = int(found["episode"][-1]) + 1
        table = pa.table(found)
        table = table if left is None else pa.concat_tables([left, table])
        last = number == -(-rows // SHARD) - 1
        cut = len(table) if last else min(SHARD, len(table) - 3)
        pq.write_table(table.slice(0, cut), folder / f"{number:05}.parquet")
        left = table.slice(cut).combine_chunks()


class Memory:
    """The peak of anonymous memory from its beginning on."""

    def __init__(self) -> None:
        self.peak, self._done = 0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            line = next(line for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, 1024 * int(line.split()[1]))


def measured(what: str, source: Path, out: Path) -> dict[str, Any]:
    """In a process of its own."""
    warnings.simplefilter("ignore")
    memory = Memory()
    began, cpu = time.monotonic(), time.process_time()
    found: dict[str, Any] = {}
    if what in ("arrow", "touched"):
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        began, cpu = time.monotonic(), time.process_time()
        for path in sorted(source.glob("*.parquet")):
            table = pq.read_table(path)
            for column in table.columns if what == "touched" else ():
                pc.min_max(column)
    elif what == "prepare":
        import fle

        fle.prepare  # noqa: B018
        began, cpu = time.monotonic(), time.process_time()
        data = fle.prepare(source, out)
        found = {"rows": len(data), "episodes": data.number_of_episodes}
    else:
        found = evaluated(what, source, out)
    spent = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
    return {**spent, "peak": memory.peak, **found}


def evaluated(what: str, source: Path, out: Path) -> dict[str, Any]:
    """Of the prepared log, or of its first shard in memory."""
    import fle
    from fle.paper.environment import describe
    from fle.screen import Silent

    began = time.monotonic()
    data = fle.open(out) if what == "large" else fle.read(sorted(source.glob("*.parquet"))[0])
    opened = time.monotonic() - began
    planned = fle.plan(data, policy, recipe=RECIPE, **FIT)
    found = planned.carry_out(progress=Silent())
    # The first stage compiles, and fits what the log earned.
    stages = [record.seconds for record in found.records[1:]]
    return {
        "rows": len(data),
        "seconds_to_open": opened,
        "step": float(np.median(stages)) / RECIPE["steps"],
        "steps": [seconds / RECIPE["steps"] for seconds in stages],
        "mean": found.returns.mean(),
        "std": found.returns.std(),
        "notes": list(found.notes),
        **describe(),
    }


def apart(what: str, source: Path, out: Path) -> dict[str, Any]:
    """The figures of a process."""
    command = [sys.executable, __file__, "--measure", what, "--folder", str(source.parent)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    print(what, {k: v for k, v in found.items() if k not in ("notes", "packages")}, flush=True)
    return found


def over(pairs: list[tuple[dict[str, Any], dict[str, Any]]], what: str) -> float:
    """The second's figure as a multiple of the first's, the median of pairs."""
    return float(np.median([second[what] / first[what] for first, second in pairs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure")
    options = parser.parse_args()
    source, out = options.folder / "shards", options.folder / "prepared"
    if options.measure:
        print(json.dumps(measured(options.measure, source, out)))
        return
    write_log(source, options.rows)
    try:
        pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        touched: list[dict[str, Any]] = []
        for _ in range(options.repeats):
            shutil.rmtree(out, ignore_errors=True)
            pairs.append((apart("arrow", source, out), apart("prepare", source, out)))
            touched.append(apart("touched", source, out))
        small, large = apart("small", source, out), apart("large", source, out)
        again = apart("large", source, out)
        size = sum(path.stat().st_size for path in source.iterdir())
        written = sum(path.stat().st_blocks * 512 for path in out.iterdir() if path.is_file())
    finally:
        shutil.rmtree(options.folder)
    ratio = over(pairs, "seconds")
    peak = max(large["peak"], again["peak"], *(second["peak"] for _, second in pairs))
    result = {
        "rows": options.rows,
        "bytes_of_parquet": size,
        "bytes_prepared": written,
        "truth": truth(),
        "prepare_over_arrow": ratio,
        "prepare_over_arrow_cpu": over(pairs, "cpu_seconds"),
        "step_over_small": large["step"] / small["step"],
        "peak": peak,
        "met": {
            "prepare": ratio <= MOST_PREPARE,
            "step": large["step"] <= MOST_STEP * small["step"],
            "memory": peak <= MOST_MEMORY,
        },
        "arrow": [first for first, _ in pairs],
        "touched": touched,
        "prepare": [second for _, second in pairs],
        "small": small,
        "large": large,
        "large_again": again,
    }
    path = HERE / "results" / "large_log.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print({key: result[key] for key in ("prepare_over_arrow", "step_over_small", "peak", "met")})


if __name__ == "__main__":
    main()
