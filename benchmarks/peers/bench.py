"""The tasks against d3rlpy, SCOPE-RL, importance sampling and our own models: one page.

    fle bench                  # from a checkout: part of the validation tasks, 20,000 rows
    fle bench --full           # all that peers can be asked, rows of the tasks, three seeds
    fle bench --add --task taxi-good    # these answers anew, all others as the JSON has them

Every answer is a JSON file under `runs/bench/`, so a call that was stopped goes on where it was.
Peers run in environments of their own under `runs/bench/environments/`, installed by this script.
Writes `docs/results/bench.md` with its pictures, and `benchmarks/results/bench.json`.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

import numpy as np  # noqa: E402

from fle.files import read_json, write_json  # noqa: E402
from fle.paper.environment import describe  # noqa: E402
from peers.bench_page import write_page  # noqa: E402
from peers.environments import python_of  # noqa: E402
from peers.own_answers import DEFAULT  # noqa: E402
from peers.questions import Question, is_discrete, task_of  # noqa: E402
from tasks.measurement import held_against, true_returns  # noqa: E402

# Validation tasks of scalar returns that the peers' environments can make: NumPy or Gymnasium.
QUICK = (
    "blackjack-dealer",
    "cliff_walking-slippery",
    "finance-timed",
    "inventory-careful",
    "inventory-steady",
    "lqr-firm",
    "maintenance-late",
    "mountain_car-steady",
    "queueing-early",
    "taxi-good",
)
FULL = (
    *QUICK,
    "blackjack-bold",
    "cliff_walking-careless",
    "cliff_walking-dry",
    "finance-full",
    "inventory-far",
    "inventory-greedy",
    "lqr-slack",
    "maintenance-early",
    "maintenance-far",
    "mountain_car-gentle",
    "mountain_car-hesitant",
    "mountain_car-strong",
    "queueing-late",
    "taxi-near",
)
# Tasks whose policy is also mixed with a uniform one, to be ranked.
RANKED, SHARES = ("inventory-steady", "mountain_car-steady"), (0.25, 0.5, 1.0)
QUICK_ROWS = 20_000


def questions(options: argparse.Namespace) -> list[Question]:
    """All that is asked, one seed after the other."""
    names = options.task or (FULL if options.full else QUICK)
    found = []
    for seed in range(options.seeds):
        for name in names:
            rows = options.rows or (task_of(Question(name, 0, 0)).rows if options.full else None)
            plain = Question(name, seed, rows or QUICK_ROWS)
            found.append(plain)
            if name in RANKED:
                shares = (Question(name, seed, plain.rows, share) for share in SHARES)
                found += shares
    return found


class Answers(NamedTuple):
    """Of every estimator to one question.

    commit: of our code. cost: seconds of the processor and of the clock, start-up included.
    """

    answers: dict[str, Any]
    commit: str
    cost: dict[str, float]


def asked(question: Question, options: argparse.Namespace, core: int) -> Answers:
    """The answers of every estimator to one question."""
    folder = options.out / "answers"
    folder.mkdir(parents=True, exist_ok=True)
    request = {"question": asdict(question), "core": core}
    request |= {"models": options.models, "memory": options.memory}
    ours = run(Path(sys.executable), "own_answers.py", request, folder / f"{question.name}.fle")
    parts = [ours]
    # Peers are given as long as ours took.
    if options.peers and "seconds" in ours["answers"][DEFAULT]:
        request["seconds"] = ours["answers"][DEFAULT]["seconds"]
        peer = folder / f"{question.name}.d3rlpy"
        parts.append(run(options.pythons["d3rlpy"], "d3rlpy_peer.py", request, peer))
        if is_discrete(task_of(question)):
            request["values"] = f"{peer}.q.npy"
            place = folder / f"{question.name}.scope_rl"
            parts.append(run(options.pythons["scope_rl"], "scope_rl_peer.py", request, place))
    answers = {name: answer for part in parts for name, answer in part["answers"].items()}
    cost = {key: sum(part.get(key, 0.0) for part in parts) for key in ("processor", "elapsed")}
    return Answers(answers, ours.get("commit", ""), cost)


def run(python: Path, script: str, request: dict[str, Any], place: Path) -> dict[str, Any]:
    """One process for all estimators of an environment; what is there is not run again."""
    file = place.with_name(place.name + ".json")
    if file.exists():
        return read_json(file)
    began = time.monotonic()
    answer = subprocess.run(
        [str(python), str(HERE / script), json.dumps(request), str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *site_packages()])},
    )
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        print(f"{place.name}: failed: {lines[-1]}", flush=True)
        return {"answers": {place.suffix[1:]: {"none": lines[-1]}}}
    found = {**read_json(file), "elapsed": time.monotonic() - began}
    write_json(file, found)
    return found


def site_packages() -> list[str]:
    """Folders that the caller added, for packages of the tasks."""
    given = os.environ.get("PYTHONPATH", "")
    return [path for path in given.split(os.pathsep) if path]


def judged(question: Question, answers: dict[str, Any], truth: Path) -> list[dict[str, Any]]:
    """Every answer held against the truth."""
    import fle

    task = task_of(question)
    returns = true_returns(task, truth)
    spread = float(returns.std()) or 1.0
    found = []
    for name, answer in answers.items():
        line = {**asdict(question), "estimator": name, "gamma": task.source.gamma}
        line |= {"true_mean": float(returns.mean()), "true_std": spread}
        if "none" in answer:
            found.append({**line, "none": answer["none"]})
            continue
        line |= {key: answer[key] for key in ("seconds", "memory") if key in answer}
        if "atoms" in answer and not np.sum(answer["weights"]) > 0:
            found.append({**line, "none": "no mass"})
            continue
        if "atoms" in answer:
            law = fle.ReturnDistribution.from_samples(answer["atoms"], weights=answer["weights"])
            figures = held_against(law, returns, ())
            line |= {"w1": figures["w1"], "floor": figures["floor"]}
            line |= {"cvar": figures["cvar_10_error"][0], "std_ratio": figures["std_ratio"][0]}
            answer = {"mean": float(law.mean()), **answer}
        line["estimate"] = answer["mean"]
        line["mean"] = (answer["mean"] - float(returns.mean())) / spread
        found.append(line)
    return found


def added(
    earlier: list[dict[str, Any]], lines: list[dict[str, Any]], commit: str
) -> list[dict[str, Any]]:
    """Answers with those of an earlier call that were not asked for again, by task.

    commit: of earlier lines that do not say theirs.
    """

    def key(line: dict[str, Any]) -> tuple[Any, ...]:
        return (*(line[name] for name in ("task", "rows", "seed", "mixed")), line["estimator"])

    fresh = {key(line) for line in lines}
    kept = [
        {**line, "commit": line.get("commit") or commit}
        for line in earlier
        if key(line) not in fresh
    ]
    return sorted([*kept, *lines], key=lambda line: key(line)[:-1])


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="fle bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="all tasks, their own rows, 3 seeds")
    parser.add_argument("--task", nargs="+", action="extend", help="tasks by name")
    parser.add_argument("--rows", type=int, help="rows of every log")
    parser.add_argument("--seeds", type=int, help="seeds 0, 1, ... of log and fit")
    parser.add_argument("--jobs", type=int, default=2, help="questions at a time, a core each")
    parser.add_argument("--memory", type=int, help="bytes that each of our processes may take")
    parser.add_argument("--models", action="store_true", help="also other models of ours")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="ours alone")
    parser.add_argument("--add", action="store_true", help="keep other answers of the JSON")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--truth", type=Path, default=ROOT / "runs" / "truth")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results" / "bench.md")
    parser.add_argument("--json", type=Path, default=HERE.parent / "results" / "bench.json")
    options = parser.parse_args(arguments)
    options.seeds = options.seeds or (3 if options.full else 1)
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    places = options.out / "environments"
    options.pythons = {}
    if options.peers:
        for peer in ("d3rlpy", "scope_rl"):
            options.pythons[peer] = python_of(peer, places, lambda text: print(text, flush=True))
    allowed = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [0]
    cores: queue.Queue[int] = queue.Queue()
    for job in range(options.jobs):
        cores.put(allowed[job % len(allowed)])
    lines: list[dict[str, Any]] = []
    costs: dict[str, dict[str, float]] = {}

    def one(question: Question) -> list[dict[str, Any]]:
        core = cores.get()
        try:
            told = asked(question, options, core)
            found = [
                {**line, "commit": told.commit}
                for line in judged(question, told.answers, options.truth)
            ]
            if options.peers:
                costs[question.name] = told.cost
        finally:
            cores.put(core)
        ours = next(line for line in found if line["estimator"] == DEFAULT)
        print(f"{question.name}: FLE W1/std {ours.get('w1', float('nan')):.3f}", flush=True)
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(one, questions(options)):
            lines += found
    if options.add and options.json.exists():
        earlier = read_json(options.json)
        lines = added(earlier["lines"], lines, earlier["commit"])
        costs = {**earlier.get("costs", {}), **costs}
    write_json(options.json, {**describe(), "costs": costs, "lines": lines})
    write_page(options.page, lines, read_json(options.json))
    print(f"page: {options.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
