"""What `fle.read` costs on a Parquet file, against pyarrow reading the same file.

One million transitions of 20 columns. Everything counts: column selection, conversion, checks,
episodes and next observations. In `terminated` every episode terminates; in `truncated`
every episode is cut off, so that its last row is dropped and all others move. Both readers run in
turn on the same file, already in the disk cache; the ratio is of the best times of all repetitions.
Writes `results/read_speed.json`.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fle.data import read
from fle.paper.environment import describe

HERE = Path(__file__).parent
EPISODE_LENGTH = 100
FEATURES = 14
MOST_TIMES_PYARROW = 3.0


def log(rows: int, end: str, dtype: type) -> pa.Table:
    """A log of 20 columns whose episodes all end in the same way."""
    generator = np.random.default_rng(0)
    steps = np.arange(rows) % EPISODE_LENGTH
    ends, nowhere = steps == EPISODE_LENGTH - 1, np.zeros(rows, dtype=bool)
    columns = {"episode": np.arange(rows) // EPISODE_LENGTH, "step": steps}
    for number in range(FEATURES):
        columns[f"observation.{number}"] = generator.standard_normal(rows).astype(dtype)
    columns["action"] = generator.integers(0, 4, rows)
    columns["reward"] = generator.standard_normal(rows)
    columns["terminated"] = ends if end == "terminated" else nowhere
    columns["truncated"] = ends if end == "truncated" else nowhere
    return pa.table(columns)


def measure(path: Path, repetitions: int) -> dict[str, object]:
    """Times of both readers, in turn, in seconds."""
    alone, whole = [], []
    for _ in range(repetitions):
        alone.append(_seconds(lambda: pq.read_table(path)))
        whole.append(_seconds(lambda: read(path)))
    (alone_best, alone_processor), (whole_best, whole_processor) = (
        np.min(times, axis=0).tolist() for times in (alone, whole)
    )
    return {
        "pyarrow_seconds": alone_best,
        "read_seconds": whole_best,
        "times_pyarrow": whole_best / alone_best,
        "times_pyarrow_by_processor": whole_processor / alone_processor,
        "repetitions": {"pyarrow": alone, "read": whole},
    }


def _seconds(run: Callable[[], object]) -> tuple[float, float]:
    """By the clock and of the processor, which other work on the machine disturbs less."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; writes no file")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    facts, began, results = describe(), os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as folder:
        for end in ("terminated", "truncated"):
            for dtype in (np.float64, np.float32):
                path = Path(folder) / f"{end}_{dtype.__name__}.parquet"
                pq.write_table(log(1_000_000, end, dtype), path)
                result = measure(path, 3 if quick else 15)
                results.append({"end": end, "features": dtype.__name__, **result})
                print(
                    f"{end}, {dtype.__name__}: pyarrow {result['pyarrow_seconds']:.3f} s, read"
                    f" {result['read_seconds']:.3f} s, ratio {result['times_pyarrow']:.2f}"
                    f" (by processor time {result['times_pyarrow_by_processor']:.2f})"
                )
    worst = max(result["times_pyarrow"] for result in results)
    verdict = "met" if worst <= MOST_TIMES_PYARROW else "NOT met"
    print(f"at most {MOST_TIMES_PYARROW:g} × pyarrow: {verdict} (worst {worst:.2f})")
    facts["versions"] = {**facts["versions"], "pyarrow": version("pyarrow")}
    facts["load"] = [began, os.getloadavg()[0]]
    if not quick:
        text = json.dumps({**facts, "seed": 0, "results": results}, indent=1)
        (HERE / "results" / "read_speed.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
