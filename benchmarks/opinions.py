"""How often second opinions warn of an estimate that is exactly right: tasks with a known answer.

python benchmarks/opinions.py --set validation --rows 20000 --out runs/opinions

For each covered task the estimate is the truth itself, 10,000 and more true returns. So every
warning is a false alarm. One JSON file a task; what is there is not run again.

python benchmarks/opinions.py --cost --task cartpole-shaky clinical-mild pendulum-steady --rows 2000

What opinions cost beside the evaluation that they are about, each in a process of its own: appended
to `benchmarks/results/opinion_costs.json`.
"""

import argparse
import json
import resource
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
COSTS = HERE / "results" / "opinion_costs.json"
sys.path[:0] = [str(HERE)]

import fle  # noqa: E402
from fle.baselines import Estimate, second_opinions_of  # noqa: E402
from fle.baselines.importance import sample_atoms  # noqa: E402
from fle.files import read_json, write_json  # noqa: E402
from fle.paper.environment import describe  # noqa: E402
from fle.returns.opinions import Opinion, SecondOpinions  # noqa: E402
from tasks.measurement import true_returns  # noqa: E402
from tasks.register import chosen_tasks  # noqa: E402


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def truth_as_estimate(returns: np.ndarray, names) -> tuple[Opinion, ...]:
    """The figures of true returns (n, d), with the standard errors of their number."""
    found = []
    for name, column in zip(names, returns.T, strict=True):
        estimate = Estimate("the truth", (name,), sample_atoms(column[:, None]), len(column))
        figures = {
            "mean": estimate.mean(),
            "std": estimate.std(),
            "cvar:0.1": estimate.cvar(0.1),
            "quantile:0.1": estimate.quantile(0.1),
        }
        found.append(Opinion("the truth", name, figures, float(len(column))))
    return tuple(found)


def measured(task, rows: int, seed: int, folder: Path) -> dict:
    truth = true_returns(task, folder / "truth")
    source = task.source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fle.FLEWarning)
        data = fle.Dataset(**source.log(rows, seed))
        began = cpu_seconds()
        plan = fle.plan(data, source.policy.target, gamma=source.gamma, horizon=source.horizon)
    planned = cpu_seconds()
    opinions = second_opinions_of(plan)
    seconds = cpu_seconds() - planned
    beside = SecondOpinions(truth_as_estimate(truth, data.reward_names), opinions.opinions)
    return {
        "task": task.name,
        "rows": len(data),
        "seed": seed,
        "withheld": plan.withheld is not None,
        "plan_seconds": planned - began,
        "opinion_seconds": seconds,
        "sees": sum(one.sees for one in opinions.opinions),
        "warnings": list(beside.warnings),
        **beside.as_plain(),
    }


def cost(task, rows: int, seed: int) -> dict:
    """CPU seconds of a plan with its fit, compilation included, and of the opinions after it."""
    source = task.source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fle.FLEWarning)
        data = fle.Dataset(**source.log(rows, seed))
        began = cpu_seconds()
        plan = fle.plan(data, source.policy.target, gamma=source.gamma, horizon=source.horizon)
        result = replace(plan, second_opinions=False).carry_out(anyway=True)
    fitted = cpu_seconds()
    opinions = second_opinions_of(plan, result)
    spent = cpu_seconds() - fitted
    return {
        "task": task.name,
        "rows": len(data),
        "seed": seed,
        "evaluation_seconds": fitted - began,
        "opinion_seconds": spent,
        "share": spent / (fitted - began),
        "sees": sum(one.sees for one in opinions.opinions),
        "commit": describe()["commit"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="validation", choices=("development", "validation"))
    parser.add_argument("--task", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/opinions"))
    parser.add_argument("--cost", action="store_true", help="what they cost, for --task")
    options = parser.parse_args()
    if options.cost:
        for task in chosen_tasks(None, options.task)[0]:
            known = read_json(COSTS)["runs"] if COSTS.exists() else []
            found = cost(task, options.rows, options.seed)
            write_json(COSTS, {**describe(), "runs": [*known, found]})
            print(found)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    tasks, missing = chosen_tasks(None if options.task else options.set, options.task)
    for name in missing:
        print(f"skipped: {name}")
    for task in tasks:
        rows = min(options.rows, task.rows)
        path = options.out / f"{task.name}-{rows}-{options.seed}.json"
        if not task.covered or path.exists():
            continue
        result = measured(task, rows, options.seed, options.out)
        path.write_text(json.dumps(result, indent=1))
        alarm = "ALARM" if result["warnings"] else "quiet"
        print(f"{task.name}: {alarm}, {result['sees']} see, {result['opinion_seconds']:.1f} s")


if __name__ == "__main__":
    main()
