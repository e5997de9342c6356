"""The way of a Parquet row to a number on the page: which modules run, in which order.

Traces a real run, `fle.read`, `fle.evaluate` and `.report`, and prints every module of fle in the
order in which a function of it first runs, with the changes of top folder on the way; and the same
figures without second opinions. Code that runs while a module is imported does not count.
"""

import sys
import tempfile
import threading
import warnings
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fle

ROOT = Path(fle.__file__).parent
EPISODES, LENGTH = 80, 5


def write_log(path: Path) -> None:
    """A small log with two observations, two actions and ends."""
    generator = np.random.default_rng(0)
    rows = EPISODES * LENGTH
    columns = {
        "episode": np.repeat(np.arange(EPISODES), LENGTH),
        "observation.0": generator.standard_normal(rows),
        "observation.1": generator.standard_normal(rows),
        "action": generator.integers(0, 2, rows),
        "reward": generator.standard_normal(rows),
        "terminated": np.arange(rows) % LENGTH == LENGTH - 1,
    }
    pq.write_table(pa.table(columns), path)


def policy(observations: np.ndarray) -> np.ndarray:
    return np.full((len(observations), 2), 0.5)


def run(folder: Path, *, second_opinions: bool) -> None:
    """What a user writes."""
    data, short = fle.read(folder / "log.parquet"), {"steps": 20}
    result = fle.evaluate(data, policy, gamma=0.5, recipe=short, second_opinions=second_opinions)
    result.report(folder / "report.html")


def importing(frame: FrameType | None) -> bool:
    """Whether a module of fle is just being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(ROOT)):
            return True
        frame = frame.f_back
    return False


def walk(*, second_opinions: bool) -> list[str]:
    """Modules in the order in which a function of them first runs."""
    visited: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)) and not importing(frame):
            visited.setdefault(Path(code.co_filename).relative_to(ROOT).with_suffix("").as_posix())

    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_log(Path(name) / "log.parquet")
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            run(Path(name), second_opinions=second_opinions)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    return list(visited)


def changes(modules: list[str]) -> int:
    """How often the next module lies in another top folder; single files at the top are one."""
    folders = [module.split("/")[0] if "/" in module else "" for module in modules]
    return sum(a != b for a, b in pairwise(folders))


def main() -> None:
    whole, plain = walk(second_opinions=True), walk(second_opinions=False)
    print("\n".join(whole))
    total = len(list(ROOT.rglob("*.py")))
    print(f"\n{len(whole)} of {total} modules, {changes(whole)} changes of top folder")
    print(f"without second opinions {len(plain)}, {changes(plain)} changes")


if __name__ == "__main__":
    main()
