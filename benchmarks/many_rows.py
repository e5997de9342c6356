"""Five million rows from a file to an estimate: where time and memory go, and what was estimated.

A log of ten observations (float32), two actions and episodes of 100 to 200 rows is written, then
read, planned and fitted with few steps in a process of its own. Memory is the peak resident size of
that process (VmHWM) beyond its size after the imports, as a multiple of the arrays of the data set
as a user sees them, and beside it of the memory in which these lie: next observations are rows of
the observations. It is held against what was estimated before anything was allocated. Time is that
of the processor, since others may use it too, outside the training of the networks themselves;
how long one pass over the observations takes is said beside it.
Writes `results/many_rows.json`.

    python benchmarks/many_rows.py --rows 5000000
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
WIDTH = 10
# What must hold at five million rows.
MOST_MEMORY, MOST_SECONDS = 2.5, 20.0


def write_log(path: Path, rows: int, seed: int = 0) -> None:
    """Some rows at a time: an autoregressive process that the action pushes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(seed)
    lengths = generator.integers(100, 201, rows // 100)
    ends = np.zeros(rows, bool)
    ends[np.minimum(np.cumsum(lengths), rows) - 1] = True
    ends[-1] = True
    writer = None
    for start in range(0, rows, 500_000):
        number = min(500_000, rows - start)
        observations = generator.standard_normal((number, WIDTH), dtype=np.float32)
        observations[1:] = 0.5 * observations[1:] + 0.5 * observations[:-1]
        right = 1 / (1 + np.exp(-observations[:, 0]))
        actions = (generator.random(number) < right).astype(np.int8)
        rewards = (observations[:, 1] * (2 * actions - 1)).astype(np.float32)
        table = pa.table(
            {
                **{f"observation.{i}": observations[:, i] for i in range(WIDTH)},
                "action": actions,
                "reward": rewards,
                "terminated": ends[start : start + number],
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def policy(observations: np.ndarray) -> np.ndarray:
    """More to the right than the log."""
    right = 1 / (1 + np.exp(-observations[:, :1] - 0.5))
    return np.concatenate([1 - right, right], axis=1)


def peak() -> int:
    """Bytes; of this program alone, where getrusage counts the one that started it too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def memory_of(data: Any) -> tuple[int, int]:
    """Bytes of the arrays, and of the memory in which they lie."""
    from fle.data.schema import OTHER_ARRAYS, ROW_FIELDS

    named = {name: getattr(data, name) for name in (*ROW_FIELDS, *OTHER_ARRAYS)}
    sizes = {name: array.nbytes for name, array in named.items() if array is not None}
    shared = np.shares_memory(data.observations[:2, 0], data.next_observations[:1, 0])
    whole = sum(sizes.values())
    return whole, whole - (sizes["next_observations"] if shared else 0)


def measure(path: Path) -> dict[str, Any]:
    """In the process of its own."""
    import jax
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
    import scipy.sparse  # noqa: F401

    import fle
    from fle.fitting import cross_fitting, loop
    from fle.paper.environment import describe
    from fle.screen import Silent

    warnings.simplefilter("ignore")
    jax.block_until_ready(jax.numpy.zeros(3) + 1)
    phases: dict[str, dict[str, float]] = {}
    training, estimates = timed(cross_fitting, "_training"), recorded()
    fitting = timed(loop, "stage_training")
    first = peak()

    def note(name: str, began: tuple[float, float]) -> None:
        phases[name] = {
            "seconds": time.monotonic() - began[0],
            "cpu_seconds": time.process_time() - began[1],
            "peak": peak() - first,
        }

    began = time.monotonic(), time.process_time()
    data = fle.read(path)
    note("read", began)
    began = time.monotonic(), time.process_time()
    recipe = fle.Recipe(steps=200, batch_size=256, weight_decay=0.01)
    # Second opinions use at most 60,000 of the rows, and take up to 1.5 GB whatever there are.
    plan = fle.plan(
        data,
        policy,
        gamma=0.95,
        stages=2,
        model=fle.Gaussian(hidden=()),
        recipe=recipe,
        second_opinions=False,
    )
    note("plan", began)
    began = time.monotonic(), time.process_time()
    result = plan.carry_out(progress=Silent(), anyway=True)
    note("fit", began)
    began = time.monotonic(), time.process_time()
    mean = float(result.returns.mean())
    note("ask", began)
    total = sum(phase["cpu_seconds"] for phase in phases.values())
    spent = training["seconds"] + fitting["seconds"]
    grown = max(phase["peak"] for phase in phases.values())
    arrays, lying = memory_of(data)
    return {
        "rows": len(data),
        "phases": phases,
        "seconds": sum(phase["seconds"] for phase in phases.values()),
        "cpu_seconds": total,
        "cpu_seconds_of_training": spent,
        "cpu_seconds_outside_training": total - spent,
        "cpu_seconds_of_one_pass": one_pass(data),
        "bytes_of_arrays": arrays,
        "bytes_in_which_they_lie": lying,
        "peak": grown,
        "estimated": max(estimates) - first,
        "estimates": [size - first for size in estimates],
        "times_the_arrays": grown / arrays,
        "times_their_memory": grown / lying,
        "mean": mean,
        "imports": first,
        **describe(),
    }


def one_pass(data: Any) -> float:
    """CPU seconds to standardise the observations once, by which machines and days differ."""
    from fle.data.passes import centre_and_scale, standardised

    units, spent = centre_and_scale(data.observations), []
    for _ in range(5):
        began = time.process_time()
        standardised([data.observations], *units)
        spent.append(time.process_time() - began)
    return sorted(spent)[2]


def timed(module: Any, name: str) -> dict[str, float]:
    """Counts the processor's time in the compiled function that one of the module gives."""
    given, spent = getattr(module, name), {"seconds": 0.0}

    def giving(*arguments: Any) -> Any:
        function = given(*arguments)

        def call(*values: Any) -> Any:
            import jax

            began = time.process_time()
            answer = jax.block_until_ready(function(*values))
            spent["seconds"] += time.process_time() - began
            return answer

        return call

    setattr(module, name, giving)
    return spent


def recorded() -> list[float]:
    """What the process would grow to by each estimate that is made from now on."""
    from fle.data import passes
    from fle.data.readers import arrays, arrow_tables, reading
    from fle.fitting import decisions, plans
    from fle.policies import answers

    estimates: list[float] = []

    def record(needed: float, what: str, rows: int) -> None:
        estimates.append(passes._size_of_process() + needed)

    for module in (arrays, arrow_tables, reading, plans, decisions, answers):
        module.require_memory = record  # type: ignore[attr-defined]
    return estimates


def run(rows: int, folder: Path) -> dict[str, Any]:
    """Write the log and measure it."""
    path = folder / "log.parquet"
    write_log(path, rows)
    command = [sys.executable, __file__, "--measure", str(path)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "many_rows.json")
    parser.add_argument("--measure", type=Path)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = run(options.rows, Path(folder))
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    held = found["peak"] <= found["estimated"] and found["times_the_arrays"] <= MOST_MEMORY
    sys.exit(0 if held and found["cpu_seconds_outside_training"] <= MOST_SECONDS else 1)


if __name__ == "__main__":
    main()
