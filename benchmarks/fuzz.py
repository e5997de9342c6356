"""Hostile structure by the thousand: every input gives an FLEError or a right answer.

Each case is written by `hostile_files.py` from its own seed, and read within 20 seconds and a limit
of memory. Counted are what was refused, what was read, and faults: any other exception, a case that
took too long, a number that changed between file and result, or a process that died (its last case
is in the file beside the result). Writes `results/fuzz.json`.

    python benchmarks/fuzz.py --cases 200000
"""

import argparse
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hostile_files
from fle.errors import FLEError
from fle.paper.environment import describe

HERE = Path(__file__).parent
KINDS = (
    *("parquet", "hdf5", "npz", "onnx", "toml", "run_directory", "prepared"),
    *("jobs", "minari", "answers", "policy_table", "csv"),
)
SECONDS = 20
# Beside what the packages take.
MEMORY = 4 * 2**30
# Cases after which the result is written, so that a long run may be stopped.
REPORTED = 5_000


class TooSlow(BaseException):
    """Not an Exception, which a reader would take for damage."""


def stop(*_: Any) -> None:
    raise TooSlow


def outcome(kind: str, seed: int, folder: Path, finished: Path) -> tuple[str, str]:
    """What became of one case, and where a fault was."""
    generator = np.random.default_rng([KINDS.index(kind), seed])
    write: Any = getattr(hostile_files, kind)
    given = (finished / kind,) if kind in hostile_files.FINISHED else ()
    case = write(generator, folder, *given)
    signal.alarm(SECONDS)
    try:
        case()
    except FLEError:
        return "refused", ""
    except TooSlow:
        return "fault", f"{kind} {seed}: longer than {SECONDS} s"
    except BaseException as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(line.filename).name}:{line.lineno}"
        return "fault", f"{kind} {seed}: {type(error).__name__} {str(error)[:200]} at {place}"
    finally:
        signal.alarm(0)
    return "read", ""


def memory_in_use(line: str) -> int | None:
    """Bytes of this process by a line of its status; None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    found = next(text for text in status.read_text().splitlines() if text.startswith(line))
    return 1024 * int(found.split()[1])


def fuzz(cases: int, first: int, last_case: Path) -> Iterator[dict[str, Any]]:
    """Run all cases, in turn over the kinds; what is found so far, now and then and at the end."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    faults, slowest, began_at = [], (0.0, ""), memory_in_use("VmHWM")
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        finished = top / "finished"
        finished.mkdir()
        for make in hostile_files.FINISHED.values():
            make(finished)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        for number in range(cases):
            kind, seed = KINDS[number % len(KINDS)], first + number // len(KINDS)
            # Should the process die, this tells of what.
            last_case.write_text(f"{kind} {seed}")
            folder = top / "case"
            folder.mkdir()
            began = time.monotonic()
            found, fault = outcome(kind, seed, folder, finished)
            slowest = max(slowest, (time.monotonic() - began, f"{kind} {seed}"))
            counts[kind][found] += 1
            faults += [fault] if fault else []
            shutil.rmtree(folder, ignore_errors=True)
            if (number + 1) % REPORTED and number + 1 < cases:
                continue
            yield {
                "cases": number + 1,
                "first_seed": first,
                "by_kind": {kind: dict(count) for kind, count in counts.items()},
                "slowest_seconds": slowest[0],
                "slowest_case": slowest[1],
                "memory_before": began_at,
                "most_memory": memory_in_use("VmHWM"),
                "memory_limit": MEMORY,
                "faults": faults,
            }
    last_case.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case of each kind")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "fuzz.json")
    options = parser.parse_args()
    began = time.monotonic()
    place, found = describe(), {}
    for found in fuzz(options.cases, options.seed, options.out.with_suffix(".last")):
        found["seconds"] = time.monotonic() - began
        options.out.write_text(json.dumps({**found, **place}, indent=1) + "\n")
    print(json.dumps({**found, "faults": found["faults"][:20]}, indent=1))
    sys.exit(1 if found["faults"] else 0)


if __name__ == "__main__":
    main()
