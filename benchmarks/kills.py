"""Runs killed at random moments, each resumed until it ends: is the result the same?

Killed are a command that fits, a call that fits and makes replicates for intervals, a comparison of
two policies, the preparation of shards, and the drawing of a report; half at a random time of a
life, half at a random point inside the writing of a file. `tests/fitting/test_resume_after_kill.py`
does it twenty times. Writes `results/kills.json`, anew after every run, so that a long run may be
stopped.

    python benchmarks/kills.py --kills 1000
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fle.paper.environment import describe

HERE = Path(__file__).parent
# Kills of one directory. What always begins anew, as a report does, might never come to its end.
A_DIRECTORY = 10
sys.path.insert(0, str(HERE.parent / "tests" / "fitting"))


def summary(victims: list[Any], differences: list[str]) -> dict[str, Any]:
    problems = {
        victim.problem: {"kills": victim.kills, "finished": victim.runs, "seconds": victim.life}
        for victim in victims
    }
    return {
        "kills": sum(victim.kills for victim in victims),
        "problems": problems,
        "differences": differences,
    }


def main() -> None:
    from killed_runs import PROBLEMS, RunServer
    from test_resume_after_kill import Victim, write_log

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--problem", nargs="+", choices=tuple(PROBLEMS), default=tuple(PROBLEMS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kills.json")
    options = parser.parse_args()
    began, place = time.monotonic(), describe()
    differences: list[str] = []
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log.parquet")
        server = RunServer(folder / "compiled")
        victims = [Victim(server, problem, folder, options.seed) for problem in options.problem]
        while (left := options.kills - sum(victim.kills for victim in victims)) > 0:
            victim = min(victims, key=lambda one: one.kills)
            try:
                victim.kill(min(left, A_DIRECTORY))
            except AssertionError as error:
                differences.append(f"{victim.problem}, run {victim.runs}: {str(error)[:500]}")
                break
            result = {"asked": options.kills, "seed": options.seed, **summary(victims, differences)}
            result["wall_seconds"] = time.monotonic() - began
            options.out.write_text(json.dumps({**result, **place}, indent=1) + "\n")
        server.close()
    print(json.dumps({**result, "differences": differences}, indent=1))
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
