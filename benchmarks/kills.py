"""Runs killed at random moments, each resumed until it ends: is the result the same?

Half of the kills hit a command, half a call; half at a random time of a run's life, half at a
random point inside the writing of a file. It is what `tests/fitting/test_resume_after_kill.py` does
twenty times. Writes `results/kills.json`.

    python benchmarks/kills.py --kills 1000
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from fle.paper.environment import describe

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "fitting"))


def main() -> None:
    from test_resume_after_kill import PROBLEMS, kill_and_compare

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kills.json")
    options = parser.parse_args()
    began, found = time.monotonic(), {}
    for problem in PROBLEMS:
        with tempfile.TemporaryDirectory() as folder:
            each = -(-options.kills // len(PROBLEMS))
            try:
                found[problem] = {"kills": kill_and_compare(problem, Path(folder) / "runs", each)}
            except AssertionError as error:
                found[problem] = {"kills": None, "difference": str(error)[:500]}
    different = [name for name, entry in found.items() if "difference" in entry]
    result = {"asked": options.kills, "problems": found, "all_the_same": not different}
    result["seconds"] = time.monotonic() - began
    options.out.write_text(json.dumps({**result, **describe()}, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
