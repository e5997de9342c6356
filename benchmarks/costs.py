"""What an evaluation costs, against rows, returns, actions, candidates and replicates.

One thing at a time is changed about a log of 100,000 rows with one reward, two actions and no
replicates. Each fit is in a process of its own, with few stages and steps, and nothing
compiled before. It says how many CPU seconds

- planning takes: the policy is asked, and weights of the rows are worked out;
- compilation takes: the first stage, less the median of the others;
- a training step takes: that median, by its steps;
- the rest takes: the refits behind intervals, what is measured after each stage, Bellman errors;

and by how much the process grows beyond what it was with the log made (VmHWM). The time of a step
is that of this machine as it was then: the table has ratios to the log of 100,000 rows, which is
measured anew before each group. A group that is in `results/costs.json` of the same code is not
measured again (`--again` does). Writes that file and `docs/results/costs.md`.

    python benchmarks/costs.py
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "costs.json"
PAGE = HERE.parent / "docs" / "results" / "costs.md"
LENGTH, WIDTH, GAMMA = 20, 4, 0.9
STAGES, STEPS = 6, 1000
SHAPE = {"rows": 100_000, "rewards": 1, "actions": 2, "candidates": 0, "replicates": 0}
# A group: what is changed, to what, and what else is so for all of the group.
GROUPS: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "rows": ("rows", (10_000, 100_000, 1_000_000), {}),
    "rewards": ("rewards", (1, 2, 4), {}),
    "actions": ("actions", (2, 10, 100, 1_000), {}),
    # Actions are continuous where candidates of them are drawn.
    "candidates": ("candidates", (1, 4, 16, 64), {"actions": 0}),
    "replicates": ("replicates", (0, 2, 5, 10), {}),
}
HEADING = f"""# What an evaluation costs

One thing at a time is changed about a log of 100,000 rows with one reward, two actions and no
replicates; γ = {GAMMA:g}, {STAGES} stages of {STEPS:,} steps, default network and batch, nothing
compiled before, no second opinions. Planning, compilation and the rest are CPU seconds; a
step is in milliseconds of it, and a multiple of a step with the usual log, measured just before.
Memory is the peak of what the process grew by once all was imported and the log was made.
[The script](../../benchmarks/costs.py), [its figures](../../benchmarks/results/costs.json);
`make bench` measures what is missing of the code as it is.
"""
REMARKS = """Rewards from 2 on are fitted by `Autoregressive`, one by `GMM`. Candidates are draws
(`action_draws`) of a policy of continuous actions; of discrete ones all actions are candidates. The
rest is what is measured after the stages, and the fits behind intervals. A log of 100 million rows
is prepared first: [large logs](../large_logs.md)."""


class Watch:
    """CPU seconds at the beginning, and at the end of every stage."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def start(self, stages: int, title: str) -> None:
        """The first fit begins; those of replicates are not watched."""
        self.times = self.times or [time.process_time()]

    def advance(self, stage: int, loss: float) -> None:
        """A stage is finished."""
        if len(self.times) <= STAGES:
            self.times.append(time.process_time())

    def finish(self) -> None:
        """Nothing."""


def logged(shape: dict[str, int]) -> dict[str, Any]:
    """Episodes of 20 steps of a linear system that a uniformly drawn action in [0, 1] pushes."""
    generator = np.random.default_rng(0)
    episodes = shape["rows"] // LENGTH
    state = generator.standard_normal((episodes, WIDTH))
    levels = shape["actions"]
    states, pushes, codes = [state], [], []
    for _ in range(LENGTH):
        code = generator.integers(max(levels, 1), size=episodes)
        push = code / (levels - 1) if levels else generator.random(episodes)
        noise = 0.3 * generator.standard_normal((episodes, WIDTH))
        states.append(0.8 * states[-1] + 0.6 * (push[:, None] - 0.5) + noise)
        pushes.append(push)
        codes.append(code if levels else push[:, None])
    before = np.stack(states[:-1], axis=1).reshape(-1, WIDTH)
    after = np.stack(states[1:], axis=1).reshape(-1, WIDTH)
    push = np.stack(pushes, axis=1).reshape(-1, 1)
    rewards = before[:, : shape["rewards"]] + push * np.arange(1, shape["rewards"] + 1)
    last = np.tile(np.arange(LENGTH) == LENGTH - 1, episodes)
    return {
        "observations": before,
        "next_observations": after,
        "actions": np.stack(codes, axis=1).reshape(-1, *codes[0].shape[1:]),
        "rewards": rewards + 0.1 * generator.standard_normal(rewards.shape),
        "truncations": last,
        "terminations": np.zeros(len(last), bool),
        "episodes": np.repeat(np.arange(episodes), LENGTH),
    }


def policy_of(levels: int) -> Any:
    """Higher actions with more probability, everywhere."""
    if levels:
        weights = np.exp(np.linspace(0, 1, levels))
        return lambda observations: np.tile(weights / weights.sum(), (len(observations), 1))

    def drawn(observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.sqrt(generator.random((len(observations), 1)))

    return drawn


def size(name: str) -> int:
    """Bytes of this process: VmRSS, or VmHWM for the most since the last `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def forget_peak() -> None:
    """The process's largest size is its present one."""
    Path("/proc/self/clear_refs").write_text("5")


def measured(shape: dict[str, int]) -> dict[str, Any]:
    """One fit, in the process of its own."""
    warnings.simplefilter("ignore")
    import jax

    import fle

    policy = policy_of(shape["actions"])
    fle.evaluate  # noqa: B018
    jax.block_until_ready(jax.numpy.zeros(3) + 1)
    data = fle.Dataset(**logged(shape), number_of_actions=shape["actions"] or None)
    forget_peak()
    before, began = size("VmRSS"), time.process_time()
    planned = fle.plan(
        data,
        policy,
        gamma=GAMMA,
        model="gmm" if shape["rewards"] == 1 else "autoregressive",
        stages=STAGES,
        recipe={"steps": STEPS, "weight_decay": 0.01},
        action_draws=shape["candidates"] or 16,
        interval=fle.Interval(0.9, replicates=shape["replicates"]) if shape["replicates"] else None,
        second_opinions=False,
    )
    planning, watch, began = time.process_time() - began, Watch(), time.process_time()
    planned.carry_out(progress=watch, anyway=True)
    fitting = time.process_time() - began
    stages = np.diff(watch.times)
    usual = float(np.median(stages[1:]))
    return {
        "planning": planning,
        "compilation": float(stages[0] - usual),
        "milliseconds_a_step": 1e3 * usual / STEPS,
        "rest": fitting - float(stages.sum()),
        "megabytes": (size("VmHWM") - before) / 1e6,
        "stages": stages.tolist(),
        "batch_size": planned.recipe.batch_size,
    }


def apart(shape: dict[str, int]) -> dict[str, Any]:
    """The figures of a process that finds nothing compiled."""
    environment = {**os.environ, "FLE_COMPILATION_CACHE": "off"}
    command = [sys.executable, __file__, "--measure", json.dumps(shape)]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(text.stdout.splitlines()[-1])
    return found


def group(name: str) -> dict[str, Any]:
    """All fits of a group, after one of the usual log."""
    from fle.paper.environment import describe

    changed, values, others = GROUPS[name]
    load = os.getloadavg()[0]
    usual = apart(SHAPE)
    fits = {}
    for value in values:
        shape = {**SHAPE, **others, changed: value}
        fits[str(value)] = usual if shape == SHAPE else apart(shape)
        print(name, value, fits[str(value)], flush=True)
    loads = [load, os.getloadavg()[0]]
    return {"usual": usual, "fits": fits, "load": loads, "code": code(), **describe()}


def code() -> str:
    """What the package's files are in git, whatever else was committed since."""
    asked = ["git", "-C", str(HERE.parent), "rev-parse", "HEAD:src/fle"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def page(results: dict[str, Any]) -> str:
    """The tables as Markdown."""
    lines = [HEADING]
    for name in (name for name in GROUPS if name in results):
        found = results[name]
        lines += [
            f"| {name} | planning | compilation | ms a step | × the usual | the rest | MB |",
            "|---|---|---|---|---|---|---|",
        ]
        for value, fit in found["fits"].items():
            ratio = fit["milliseconds_a_step"] / found["usual"]["milliseconds_a_step"]
            memory = fit["megabytes"]
            grown = "not measured" if memory is None else f"{memory:,.0f}"
            lines.append(
                f"| {int(value):,} | {fit['planning']:.1f} | {fit['compilation']:.1f}"
                f" | {fit['milliseconds_a_step']:.2f} | {ratio:.2f} | {fit['rest']:.1f}"
                f" | {grown} |"
            )
        lines.append("")
    missing = [name for name in GROUPS if name not in results]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    lines += [REMARKS, ""]
    facts = next(iter(results.values()))
    commits = sorted({found["commit"][:7] for found in results.values()})
    loads = [value for found in results.values() for value in found["load"]]
    versions = ", ".join(f"{k} {facts['versions'][k]}" for k in ("python", "jax", "numpy"))
    lines.append(
        f"{facts['machine']['cpu']}, {facts['machine']['cores']} cores, load {min(loads):.1f} to"
        f" {max(loads):.1f} during the runs (other work on the machine); {versions}; commit"
        f" {', '.join(commits)}; seed 0, one fit each."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--again", action="store_true", help="measure what is there already")
    parser.add_argument("--measure")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(json.loads(options.measure))))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.groups:
        if options.again or results.get(name, {}).get("code") != code():
            results[name] = group(name)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
