"""How often second opinions warn of an estimate that is exactly right: tasks with a known answer.

python benchmarks/opinions.py --set validation --rows 20000 --out runs/opinions

For each covered task the estimate is the truth itself, 10,000 and more true returns. So every
warning is a false alarm. One JSON file a task; what is there is not run again.

python benchmarks/opinions.py --cost --task cartpole-shaky clinical-mild pendulum-steady --rows 2000

What opinions cost beside the evaluation that they are about, each in a process of its own: appended
to `benchmarks/results/opinion_costs.json`.

python benchmarks/opinions.py --known 60

Warnings of the exact answer, and of wrong ones, on small logs with propensities: with the rule by
which importance sampling may refute fitted Q evaluation, and without.
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
from fle.returns import risk  # noqa: E402
from fle.returns.opinions import Figure, Opinion, SecondOpinions  # noqa: E402
from fle.tasks.tabular import random_mdp  # noqa: E402
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


MDP = random_mdp(4, 2, seed=1, horizon=5, termination=0.1)
# What the exact mean is moved by, in standard deviations of the return.
MOVED = (0.0, -0.2, 0.2)


def tabular(seed: int, episodes: int = 500, hidden: bool = False):
    """A log of a uniform policy, another policy, and the law of its return.

    hidden: of the state, which policies do not ask for: the log is then no Markov process, and
        whatever looks one step ahead is biased. Importance sampling is not.
    """
    generator = np.random.default_rng([seed, hidden])
    states, running, steps = MDP.initial_states(episodes, generator), np.arange(episodes), []
    for step in range(MDP.horizon):
        actions = generator.integers(2, size=len(states))
        rewards, ended, following = MDP.step(states, actions, generator)
        cut = ~ended & (step == MDP.horizon - 1)
        steps.append((running, states, actions, 1.0 * rewards, ended, cut, following))
        running, states = running[~ended], following[~ended]
    columns = [np.concatenate(column) for column in zip(*steps, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    names = ("episodes", "observations", "actions", "rewards", "terminations", "truncations")
    log = dict(zip((*names, "next_observations"), (c[order] for c in columns), strict=True))
    policy = np.where(np.arange(2) == np.arange(4)[:, None] % 2, 0.8, 0.2)
    if hidden:
        log |= {name: 0 * log[name] for name in ("observations", "next_observations")}
        policy = np.tile([0.25, 0.75], (4, 1))
    support, chances = MDP.policy_pmf(policy)
    data = fle.Dataset(**log, propensities=np.full(len(order), 0.5), number_of_actions=2)
    return data, policy[:1] if hidden else policy, MDP.horizon, support, chances


def shop(seed: int, visitors: int = 4_000, items: int = 50):
    """One of many items is shown to each visitor, and clicked or not."""
    generator = np.random.default_rng(seed)
    taste, quality = 0.3 * generator.normal(size=(3, items)), generator.normal(size=items)

    def policy(x):
        weights = np.exp(0.6 * (x @ taste + quality))
        return weights / weights.sum(axis=1, keepdims=True)

    def clicked(x):
        return 1 / (1 + np.exp(1 - x @ taste - quality))

    x, shown = generator.normal(size=(visitors, 3)), generator.integers(items, size=visitors)
    log = {
        "observations": x,
        "actions": shown,
        "rewards": 1.0 * (generator.random(visitors) < clicked(x)[np.arange(visitors), shown]),
        "terminations": np.ones(visitors, bool),
        "propensities": np.full(visitors, 1 / items),
    }
    others = generator.normal(size=(100_000, 3))
    chance = float((policy(others) * clicked(others)).sum(axis=1).mean())
    return fle.Dataset(**log), policy, 1, np.array([0.0, 1.0]), np.array([1 - chance, chance])


KNOWN = {
    "tabular": tabular,
    "tabular, state hidden": lambda seed: tabular(seed, 2_000, hidden=True),
    "shop": shop,
}


def warned_of(kind: str, seeds: int) -> None:
    """How many logs have a warning of the answer moved by each of MOVED: without the rule, with."""
    counts = np.zeros((len(MOVED), 2), int)
    for seed in range(seeds):
        data, policy, horizon, support, chances = KNOWN[kind](seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fle.FLEWarning)
            plan = fle.plan(data, policy, horizon=horizon, recipe={"occupancy": False})
        judges = second_opinions_of(plan).opinions
        mean = support @ chances
        spread = float(np.sqrt((support - mean) ** 2 @ chances))
        right = {"std": spread, "cvar:0.1": float(risk.cvar(support, 0.1, chances))}
        for line, moved in enumerate(MOVED):
            figures = {"mean": mean + moved * spread} | ({} if moved else right)
            figures["std"] = spread
            mine = {asked: Figure(float(value), None) for asked, value in figures.items()}
            own = (Opinion("the answer", judges[0].coordinate, mine, 1e6),)
            unruled = tuple(replace(one, model_free=False) for one in judges)
            for column, heard in enumerate((unruled, judges)):
                counts[line, column] += bool(SecondOpinions(own, heard).warnings)
    for moved, (without, ruled) in zip(MOVED, counts, strict=True):
        print(f"{kind}, mean moved by {moved:+g}: {without} of {seeds} without, {ruled} with")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="validation", choices=("development", "validation"))
    parser.add_argument("--task", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/opinions"))
    parser.add_argument("--cost", action="store_true", help="what they cost, for --task")
    parser.add_argument("--known", type=int, help="logs of each kind with a known answer")
    options = parser.parse_args()
    if options.known:
        for kind in KNOWN:
            warned_of(kind, options.known)
        return
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
