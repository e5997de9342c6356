"""The default evaluation of 100,000 rows against d3rlpy's FQE: who has the mean sooner?

CartPole at a discount of 0.99, with the truth by Monte Carlo; both with their own defaults, one
after the other, each in a process of its own with one thread, nothing compiled beforehand. Ours
trains its stages, asks for second opinions and is done; FQE goes on for six times as long, and
its mean is looked at every 1,000 steps. Seconds are the processor's, of the whole evaluation for
ours and of training alone for FQE. An error that rises through zero is small for a moment: when it
is first as small as ours is said, and since when it stays so. Writes `results/against_fqe.json`,
a seed at a time, and leaves out what is there.

    python benchmarks/against_fqe.py --peers FOLDER --seeds 3
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = HERE / "results" / "against_fqe.json"
TASK, ROWS = "cartpole-shaky", 100_000
# What must hold, and for how many times our own seconds FQE goes on.
LEAST_FASTER, CAP = 5.0, 6.0


def own(seed: int) -> dict[str, Any]:
    """In a process of its own: our estimate and what it took."""
    import fle
    from peers.questions import Question, task_of

    warnings.simplefilter("ignore")
    source = task_of(Question(TASK, seed, ROWS)).source
    data = fle.Dataset(**source.log(ROWS, seed))
    began = time.process_time()
    result = fle.evaluate(data, source.policy.target, gamma=source.gamma, seed=seed, anyway=True)
    mean = float(result.returns.mean())
    return {"mean": mean, "seconds": time.process_time() - began}


def alone(command: list[str]) -> str:
    """The output of a process with one thread, and no code compiled before."""
    limits = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "FLE_COMPILATION_CACHE": "off"}
    environment = {**os.environ, **limits}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return done.stdout


def one_seed(seed: int, python: Path, truth: dict[str, float]) -> dict[str, Any]:
    """Both on one log, in turn."""
    from peers.questions import Question

    ours = json.loads(alone([sys.executable, __file__, "--own", str(seed)]))
    ours["error"] = abs(ours["mean"] - truth["mean"]) / truth["std"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "course.json"
        asked = {"question": asdict(Question(TASK, seed, ROWS)), "seconds": CAP * ours["seconds"]}
        alone([str(python), str(HERE / "peers/d3rlpy_course.py"), json.dumps(asked), str(file)])
        theirs = json.loads(file.read_text())
    for moment in theirs["course"]:
        moment["error"] = abs(moment["mean"] - truth["mean"]) / truth["std"]
    return {"seed": seed, "ours": ours, "fqe": theirs, **compared(ours, theirs["course"])}


def compared(ours: dict[str, float], course: list[dict[str, float]]) -> dict[str, Any]:
    """When FQE is first as near as ours, and since when it stays there; None is never."""
    near = [moment["error"] <= ours["error"] for moment in course]
    first = near.index(True) if any(near) else None
    # After the last moment that is not near.
    stays = len(near) - near[::-1].index(False) if False in near else 0
    moments = {"first": first, "stays": stays if stays < len(course) else None}
    return {
        f"{name}_as_near": None if place is None else course[place]["seconds"] / ours["seconds"]
        for name, place in moments.items()
    } | {"times_followed": course[-1]["seconds"] / ours["seconds"]}


def true_mean(folder: Path) -> dict[str, float]:
    """By Monte Carlo, with the standard error of the mean."""
    from peers.questions import Question, task_of
    from tasks.measurement import true_returns

    returns = true_returns(task_of(Question(TASK, 0, ROWS)), folder).reshape(-1)
    error = returns.std() / len(returns) ** 0.5
    return {"mean": float(returns.mean()), "std": float(returns.std()), "error": float(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, default=HERE.parent / "runs" / "peers")
    parser.add_argument("--truth", type=Path, default=HERE.parent / "runs" / "truth")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--own", type=int)
    options = parser.parse_args()
    if options.own is not None:
        print(json.dumps(own(options.own)))
        return
    from fle.paper.environment import describe
    from peers.environments import python_of

    truth = true_mean(options.truth)
    python = python_of("d3rlpy", options.peers, print)
    kept = json.loads(OUT.read_text())["seeds"] if OUT.exists() else []
    for seed in range(options.seeds):
        if seed in [record["seed"] for record in kept]:
            continue
        kept.append(one_seed(seed, python, truth))
        facts = {"task": TASK, "rows": ROWS, "truth": truth, "seeds": kept, **describe()}
        OUT.write_text(json.dumps(facts, indent=1) + "\n")
        found = {name: value for name, value in kept[-1].items() if name != "fqe"}
        print(found, kept[-1]["fqe"]["course"][-1], flush=True)


if __name__ == "__main__":
    main()
