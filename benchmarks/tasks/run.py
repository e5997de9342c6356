"""Runs any part of the tasks, two at a time, and writes one table of all that was asked for.

    python benchmarks/tasks/run.py --set development --seeds 3
    python benchmarks/tasks/run.py --task acrobot clinical-bold --setting steps=200

Each run is one JSON file, known by task, seed, rows, settings and code; what is there is not run
again, so a call that was stopped goes on where it was.
"""

import argparse
import hashlib
import json
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A script's own folder comes first; here it would hide packages named like a family.
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

from fle.files import read_json, write_atomically, write_json  # noqa: E402
from fle.paper.environment import describe  # noqa: E402
from tasks.measurement import parsed_settings  # noqa: E402
from tasks.register import SETS, chosen_tasks, set_of  # noqa: E402
from tasks.table import markdown  # noqa: E402
from tasks.task import Task  # noqa: E402

Request = dict[str, Any]


def code_version() -> str:
    """The commit, and a hash of what has been changed since in the code that is measured."""
    commit = _git("rev-parse", "--short", "HEAD").strip() or "unknown"
    changes = _git("diff", "HEAD", "--", "src", "benchmarks/tasks/*.py")
    if not changes:
        return commit
    return f"{commit}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}"


def _git(*arguments: str) -> str:
    answer = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.stdout


def requests(tasks: list[Task], options: argparse.Namespace, code: str) -> list[Request]:
    """All runs, one seed after the other, so that runs side by side are of different tasks."""
    return [
        {
            "task": task.name,
            "seed": seed,
            "rows": options.rows or task.rows,
            "settings": parsed_settings(options.setting),
            "fqe": options.fqe,
            "code": code,
        }
        for seed in range(options.seeds)
        for task in tasks
    ]


def file_of(request: Request, folder: Path) -> Path:
    """Where a run is kept: its name has all that decides its figures."""
    key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:12]
    return folder / f"{request['task']}-seed{request['seed']}-{key}.json"


def carried_out(
    request: Request, folder: Path, truth: Path, cores: "queue.Queue[int]"
) -> dict[str, Any]:
    """The run's figures: read if it was made before, else made in a process of its own."""
    file = file_of(request, folder)
    if file.exists():
        return read_json(file)
    core = cores.get()
    try:
        asked = json.dumps({**request, "core": core, "truth": str(truth)})
        answer = subprocess.run(
            [sys.executable, str(HERE / "measurement.py"), asked, str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        cores.put(core)
    if answer.returncode == 0:
        return read_json(file)
    # Not kept, so that the next call tries again.
    lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
    return {**request, "failed": lines[-1]}


def run_all(tasks: list[Task], skipped: list[str], options: argparse.Namespace) -> list[Request]:
    """Carry out what is asked for, and write the table after every run."""
    folder = options.out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    allowed = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else range(options.jobs)
    cores: queue.Queue[int] = queue.Queue()
    for job in range(options.jobs):
        cores.put(list(allowed)[job % len(allowed)])
    code = code_version()
    asked = requests(tasks, options, code)
    facts = {task.name: {"set": set_of(task), "covered": task.covered} for task in tasks}
    about = f"Code {code}, {describe()['machine']}, {options.seeds} seeds, settings: "
    about += (", ".join(options.setting) or "the defaults") + "."
    done: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        pending = [
            pool.submit(carried_out, request, folder, options.truth, cores) for request in asked
        ]
        for finished in as_completed(pending):
            run = finished.result()
            done.append({**run, **facts[run["task"]]})
            print(_line(run, len(done), len(asked)), flush=True)
            ordered = sorted(done, key=lambda one: (one["set"], one["task"], one["seed"]))
            table = markdown(ordered, skipped, about)
            write_atomically(options.out / "table.md", table.encode())
            write_json(
                options.out / "table.json", {**describe(), "runs": ordered, "skipped": skipped}
            )
    return done


def _line(run: dict[str, Any], number: int, of: int) -> str:
    start = f"[{number}/{of}] {run['task']} seed {run['seed']}: "
    if "failed" in run:
        return f"{start}failed: {run['failed']}"
    return f"{start}W1/std {run['w1']:.3f} [{run['floor']:.3f}], {run['seconds']:.0f} s"


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", choices=SETS, help="run one set only")
    parser.add_argument("--task", nargs="+", default=[], help="tasks or whole families, by name")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0, 1, ... of log and fit")
    parser.add_argument("--rows", type=int, help="rows of every log, instead of each task's own")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "tasks")
    parser.add_argument(
        "--truth", type=Path, default=ROOT / "runs" / "truth", help="cache of returns"
    )
    parser.add_argument("--setting", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument("--fqe", action="store_true", help="also fitted Q evaluation, for its mean")
    parser.add_argument("--list", action="store_true", help="name the tasks and stop")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    parsed_settings(options.setting)
    tasks, skipped = chosen_tasks(options.set, options.task)
    for reason in skipped:
        print(f"skipped {reason}")
    if options.list:
        for task in tasks:
            print(f"{set_of(task):12} {task.name}")
        return 0
    done = run_all(tasks, skipped, options)
    print(f"table: {options.out / 'table.md'}")
    return int(any("failed" in run for run in done))


if __name__ == "__main__":
    sys.exit(main())
