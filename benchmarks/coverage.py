"""Do verdicts and intervals hold? Fits of tasks with a known answer, as overlap is dialled down.

    python benchmarks/coverage.py --fits 10 --minutes 20     # goes on where it was stopped
    python benchmarks/coverage.py --table                    # the tables of what is there

A fit is one line of `benchmarks/results/coverage.jsonl`: its verdict, the errors of mean and CVaR
10% in standard deviations of the true return, and whether 90% intervals cover. The dial k mixes the
target policy with one that avoids what it does: 0 is full overlap, 1 is none. `right` and `wrong`
are models solved at once, so that many fits are cheap; `network` is a mixture by a small network
with the budget of a first look, `small network` one normal law by two hidden units. No threshold of
the verdict was chosen on any of these tasks.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
# Fits are solved at once: most of the time would go to compilation.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import fle  # noqa: E402
from fle.baselines import Estimate, fitted_q_evaluation, second_opinions_of  # noqa: E402
from fle.baselines.importance import sample_atoms  # noqa: E402
from fle.baselines.second_opinions import own_figures  # noqa: E402
from fle.fitting.measurement import Visits  # noqa: E402
from fle.returns import risk  # noqa: E402
from fle.returns.intervals import cheap_bootstrap  # noqa: E402
from fle.returns.opinions import SecondOpinions  # noqa: E402
from fle.tasks.gaussian_returns import LQR  # noqa: E402
from fle.tasks.tabular import TabularMDP, random_mdp  # noqa: E402
from fle.trust.verdict import WRONG, Verdict, verdict_of  # noqa: E402
from tasks.clinical import Ward  # noqa: E402
from tasks.pendulum import Pendulum, swing_up  # noqa: E402
from tasks.point_mass import PointMass, homeward  # noqa: E402

RESULTS = HERE / "results" / "coverage.jsonl"
TABLE = HERE / "results" / "coverage.md"
DIALS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 1.0)
EPISODES = (50, 200, 1_000)
MEASURES = ("mean", "quantile:0.1", "cvar:0.1")
CLOSE = 0.05
MODELS = ("right", "wrong", "rows", "rows, wrong", "network", "small network")
SIMULATED, REPLICATES = 4_000, 10
MOST_WITH_INTERVALS = 0.3
TRUTH = 20_000
LEVEL = 0.9
# Of a fit by a network, as many optimiser steps a stage as a first look has.
NETWORK_STEPS = 150
# Of tasks without an end: when logged episodes are cut off, and when the discount is negligible.
CUT_AFTER, NEGLIGIBLE_AFTER = 30, 100
# Streams of one seed.
TASK, LOG, TRUE, FIT = range(4)
Step = Callable[[Any, Any, np.random.Generator], tuple[Any, Any, Any]]
Chances = Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A task with a dialled log: how it begins and steps, both policies, and classes of functions.

    target, avoiding: what the policy does, and one that does not; drawn by `act`.
    density: of actions (k, ...) at states under the dialled log, where the log has it.
    gamma: None where there is a horizon; else episodes are cut off after `horizon` steps.
    """

    horizon: int
    initial: Callable[[int, np.random.Generator], Any]
    step: Step
    target: Any
    act: Callable[[Any, float, np.random.Generator], Any]
    models: dict[str, fle.Linear]
    actions: int | None = None
    ends_early: bool = False
    gamma: float | None = None
    observe: Callable[[Any], Any] = np.asarray
    density: Callable[[Any, Any, float], Any] | None = None

    @property
    def rows(self) -> int:
        """Of an episode that are kept."""
        return self.horizon - self.ends_early

    @property
    def asked(self) -> dict[str, Any]:
        """Which return, as `fle.evaluate` is asked."""
        return {"horizon": self.horizon} if self.gamma is None else {"gamma": self.gamma}


def one_hot_pairs(x, a):
    """A number for each state and action, of at most 8 and 2; one is left to the intercept."""
    return 1.0 * ((2 * x + a)[:, None] == np.arange(1, 16))


def actions_alone(x, a):
    return 1.0 * a.reshape(len(a), -1)


def quadratic(x, a):
    z = _side_by_side(x, 1.0 * a.reshape(len(a), -1))
    i, j = np.triu_indices(z.shape[1])
    return _side_by_side(z, z[:, i] * z[:, j])


def linear(x, a):
    return _side_by_side(x, 1.0 * a.reshape(len(a), -1))


def by_dose(x, a):
    """Quadratic in the observation, for each of three doses."""
    i, j = np.triu_indices(x.shape[1])
    own = _side_by_side(x, x[:, i] * x[:, j])
    doses = [1.0 * (a == dose)[:, None] for dose in range(3)]
    return _side_by_side(*doses[1:], *(own * dose for dose in doses))


def _side_by_side(*parts):
    """Of NumPy and of JAX, which compiles it."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=1)
    import jax.numpy as jnp

    return jnp.concatenate(parts, axis=1)


TABULAR = {
    "right": fle.Linear(one_hot_pairs, variance="features"),
    "wrong": fle.Linear(actions_alone),
}


def _tabular(mdp: TabularMDP, favourite: np.ndarray, certainty: float) -> Problem:
    """A policy that mostly takes its favourite action, and a log that avoids it."""
    target = np.where(np.arange(2) == favourite[:, None], certainty, 1 - certainty)
    avoiding = (np.arange(2) != favourite[:, None]).astype(float)

    def act(states, dial, generator):
        chances = (1 - dial) * target + dial * avoiding
        return (generator.random(len(states)) < chances[states, 1]).astype(int)

    def step(states, actions, generator):
        rewards, ended, following = mdp.step(states, actions, generator)
        return following, rewards + generator.standard_normal(len(states)), ended

    def policy(states):
        return target[states]

    return Problem(mdp.horizon, mdp.initial_states, step, policy, act, TABULAR, 2)


def tabular(seed: int) -> Problem:
    """Five states, two actions, six steps; another one for every seed."""
    mdp = random_mdp(5, 2, seed, horizon=6)
    return _tabular(mdp, np.random.default_rng([seed, TASK]).integers(2, size=5), 0.85)


def lock(seed: int) -> Problem:
    """Six right actions in a row open it; a wrong one is never made good. Pays 10 on opening."""
    steps, generator = 6, np.random.default_rng([seed, TASK])
    right, lost = generator.integers(2, size=steps), steps
    transitions = np.zeros((steps + 1, 2, steps + 1))
    rewards = np.zeros((steps + 1, 2, 3))
    rewards[:, :, 0] = 1.0
    for state in range(steps):
        transitions[state, right[state], min(state + 1, lost)] = 1.0
        transitions[state, 1 - right[state], lost] = 1.0
        rewards[state, 1 - right[state]] = [0.5, 0.5, 0.0]
    rewards[steps - 1, right[-1]] = [0.2, 0.0, 0.8]
    transitions[lost, :, lost] = 1.0
    start = np.eye(steps + 1)[0]
    mdp = TabularMDP(
        transitions, np.array([0, 1, 10]), rewards, np.zeros((steps + 1, 2)), start, steps
    )
    return _tabular(mdp, np.append(right, 0), 0.95)


def lqr(seed: int) -> Problem:
    """A damped cart; the log pushes ever farther to one side."""
    task = LQR.example(horizon=6)

    def act(states, dial, generator):
        noise = generator.normal(0, 0.3, (len(states), 1))
        return task.target_policy(states) + 2 * dial + noise

    def step(states, actions, generator):
        rewards = task.expected_reward(states, actions) + generator.normal(0, 0.2, len(states))
        return task.next_observations(states, actions), rewards, np.zeros(len(states), bool)

    models = {"right": fle.Linear(quadratic), "wrong": fle.Linear(linear)}
    # What the log does with the dial at 0 is what is evaluated.
    policy = fle.policies.Normal(lambda x: (task.target_policy(x), np.full((len(x), 1), 0.3)))
    return Problem(6, task.initial_observations, step, policy, act, models)


def clinical(seed: int) -> Problem:
    """The ward of the task set, ten steps: bold doses, and a log that is ever more timid."""
    ward, doses = Ward(), np.array([0.0, 0.5, 1.0])

    def bold(x):
        wish = np.clip(0.3 + 0.5 * x[:, 0], 0, 1)
        weights = np.exp(-((doses - wish[:, None]) ** 2) / 0.4**2)
        return weights / weights.sum(axis=1, keepdims=True)

    def act(states, dial, generator):
        chances = bold(states)
        # Half doses and full ones are left out, the more the farther the dial is turned.
        chances = np.hstack([chances[:, :1], (1 - dial) * chances[:, 1:]])
        chances[:, 0] += 1 - chances.sum(axis=1)
        levels = generator.random((len(states), 1))
        return np.minimum((levels > np.cumsum(chances, axis=1)).sum(axis=1), 2)

    def step(states, actions, generator):
        after, rewards, died = ward.step(states, actions, generator)
        return after, rewards, died

    models = {"right": fle.Linear(by_dose, variance="features"), "wrong": fle.Linear(actions_alone)}
    return Problem(10, ward.initial, step, bold, act, models, 3, ends_early=True)


def controlled(world, rule, noise: float, gamma: float) -> Problem:
    """A task of the task set without an end: a rule with noise, and a log that opposes it."""

    def act(observed, dial, generator):
        mean = np.where(generator.random((len(observed), 1)) < dial, -1, 1) * rule(observed)
        return mean + generator.normal(0, noise, mean.shape)

    def density(observed, actions, dial):
        mean = rule(observed)
        scores = [((actions - side * mean) ** 2).sum(1) / (2 * noise**2) for side in (1, -1)]
        unit = (2 * np.pi * noise**2) ** (mean.shape[1] / 2)
        return ((1 - dial) * np.exp(-scores[0]) + dial * np.exp(-scores[1])) / unit

    policy = fle.policies.Normal(lambda x: (rule(x), np.full((len(x), rule(x).shape[1]), noise)))
    return Problem(
        CUT_AFTER,
        world.initial,
        world.step,
        policy,
        act,
        {},
        gamma=gamma,
        observe=world.observe,
        density=density,
    )


def pendulum(seed: int) -> Problem:
    """Swing up and balance."""
    return controlled(Pendulum(), swing_up, 0.7, 0.9)


def point_mass(seed: int) -> Problem:
    """To the origin of the plane, against shoves."""
    return controlled(PointMass(), homeward, 0.6, 0.9)


TASKS = {
    "tabular": tabular,
    "lock": lock,
    "lqr": lqr,
    "clinical": clinical,
    "pendulum": pendulum,
    "point mass": point_mass,
}
NETWORKS = {
    "network": fle.GMM(components=4, hidden=(32,)),
    "small network": fle.Gaussian(hidden=(2,)),
}


def played(
    problem: Problem, number: int, dial: float, generator, steps: int | None = None
) -> tuple[dict, np.ndarray]:
    """The rows of whole episodes, in order, and their returns."""
    states, running = problem.initial(number, generator), np.arange(number)
    starts, returns, pieces = problem.observe(states), np.zeros(number), []
    steps = steps or problem.horizon
    for step in range(steps):
        seen = problem.observe(states)
        actions = problem.act(seen, dial, generator)
        following, rewards, ended = problem.step(states, actions, generator)
        returns[running] += (problem.gamma or 1.0) ** step * rewards
        cut = ~ended & (step == steps - 1)
        after = problem.observe(following)
        known = np.ones(len(seen)) if problem.density is None else None
        if known is None:
            known = problem.density(seen, actions, dial)
        pieces.append((running, seen, actions, rewards, after, ended, cut, known))
        running, states = running[~ended], following[~ended]
        if not len(running):
            break
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    names = ("episodes", "observations", "actions", "rewards", "next_observations")
    names += ("terminations", "truncations", "propensities")
    # Always as many rows, though some episodes end early: other shapes would be compiled anew.
    order = order[: number * (steps - problem.ends_early)]
    rows = {name: column[order] for name, column in zip(names, columns, strict=True)}
    rows["truncations"][-1] = not rows["terminations"][-1]
    if problem.density is None:
        del rows["propensities"]
    return rows | {"initial_observations": starts}, returns


def measured(returns: np.ndarray) -> dict[str, float]:
    return {
        "mean": float(returns.mean()),
        "quantile:0.1": float(np.quantile(returns, 0.1)),
        "cvar:0.1": float(risk.cvar(returns, 0.1)),
        "std": float(returns.std()),
    }


@cache
def known_task(task: str, seed: int) -> tuple[Problem, dict[str, float]]:
    """A task with its answer: TRUTH draws know the CVaR to 0.013 standard deviations."""
    problem = TASKS[task](seed)
    steps = None if problem.gamma is None else NEGLIGIBLE_AFTER
    _, returns = played(problem, TRUTH, 0.0, np.random.default_rng([seed, TRUE]), steps)
    return problem, measured(returns)


def fitted(task: str, model: str, dial: float, episodes: int, seed: int) -> dict[str, Any]:
    """One fit, held against the truth."""
    problem, truth = known_task(task, seed)
    log, _ = played(problem, episodes, dial, np.random.default_rng([seed, LOG, episodes]))
    began, network = time.process_time(), NETWORKS.get(model)
    # Intervals are asked for where a verdict of trust may be hoped for.
    hoped = network is not None or model == "right"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = fle.Dataset(**log, number_of_actions=problem.actions)
        result = fle.evaluate(
            data,
            problem.target,
            **problem.asked,
            model=network or problem.models[model],
            rows="all",
            recipe=None if network is None else fle.Recipe(steps=NETWORK_STEPS),
            interval=LEVEL if hoped and dial <= MOST_WITH_INTERVALS else None,
            seed=seed,
            anyway=True,
        )
        estimates = {asked: result.returns.measure(asked) for asked in MEASURES}
        ends = {}
        if result.refits is not None:
            ends = {asked: result.interval(asked).ends for asked in MEASURES}
    return {
        "task": task,
        "model": model,
        "dial": dial,
        "episodes": episodes,
        "seed": seed,
        **held_against(truth, estimates, ends, result.verdict),
        "seconds": round(time.process_time() - began, 2),
    }


# A tabular estimate without a fit: the policy plays, and each step is a logged row of the same
# state and action, drawn anew. It takes a fiftieth of the time, so that many logs can be judged.


def played_from_rows(problem: Problem, log: dict, counts: np.ndarray, blind: bool, generator):
    """Returns of SIMULATED episodes, of logged ones that count so often; `blind`: to states."""
    rows = np.repeat(np.arange(len(log["episodes"])), counts[log["episodes"]])

    def code(states, actions):
        return np.asarray(actions) if blind else 2 * np.asarray(states) + actions

    codes = code(log["observations"][rows], log["actions"][rows])
    order, codes = rows[np.argsort(codes, kind="stable")], np.sort(codes)
    states = generator.choice(np.repeat(log["initial_observations"], counts), SIMULATED)
    returns, running = np.zeros(SIMULATED), np.arange(SIMULATED)
    for _ in range(problem.horizon):
        asked = code(states, problem.act(states, 0.0, generator))
        low, high = (np.searchsorted(codes, asked, side=side) for side in ("left", "right"))
        # Where nothing like it was logged, any row must do.
        low, high = np.where(high > low, low, 0), np.where(high > low, high, len(order))
        picks = order[generator.integers(low, high)]
        returns[running] += log["rewards"][picks]
        goes_on = ~log["terminations"][picks]
        running, states = running[goes_on], log["next_observations"][picks][goes_on]
    return returns


def judged(task: str, model: str, dial: float, episodes: int, seed: int) -> dict[str, Any]:
    """The same as `fitted`, of that estimate; there are no Bellman errors."""
    problem, truth = known_task(task, seed)
    log, _ = played(problem, episodes, dial, np.random.default_rng([seed, LOG, episodes]))
    began, blind = time.process_time(), model == "rows, wrong"
    generator = np.random.default_rng([seed, FIT, episodes])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = fle.Dataset(**log, number_of_actions=problem.actions)
        plan = fle.plan(
            data, problem.target, horizon=problem.horizon, model=TABULAR["right"], rows="all"
        )
        opinions = second_opinions_of(plan).opinions
        mean = fitted_q_evaluation(plan, replicates=0, seed=0)
    returns = played_from_rows(problem, log, np.ones(episodes, int), blind, generator)
    drawn = Estimate("rows", data.reward_names, sample_atoms(returns[:, None]), float(SIMULATED))
    law = fle.ReturnDistribution.from_samples(returns[:, None], data.reward_names)
    verdict = verdict_of(
        SimpleNamespace(
            coverage=plan.target.coverage,
            visits=Visits.of(data, plan.occupancy),
            second_opinions=SecondOpinions(own_figures(law, drawn, mean), opinions),
            bellman=None,
            calibration=None,
            refits=None,
            records=(),
            horizon=problem.horizon,
            quick=False,
            warnings=plan.warnings,
            logged=plan.logged,
        )
    )
    found, again = measured(returns), []
    for _ in range(REPLICATES):
        counts = np.bincount(generator.integers(episodes, size=episodes), minlength=episodes)
        again.append(measured(played_from_rows(problem, log, counts, blind, generator)))
    ends = {
        asked: cheap_bootstrap(found[asked], [one[asked] for one in again], LEVEL).ends
        for asked in MEASURES
    }
    return {
        "task": task,
        "model": model,
        "dial": dial,
        "episodes": episodes,
        "seed": seed,
        **held_against(truth, found, ends, verdict),
        "seconds": round(time.process_time() - began, 2),
    }


def held_against(truth: dict, found: dict, ends: dict, verdict: Verdict) -> dict[str, Any]:
    """What is kept of an estimate."""
    std = truth["std"]
    return {
        "level": verdict.level,
        "reasons": [
            [one.level, one.what, None if one.figure is None else round(one.figure, 3)]
            for one in verdict.reasons
        ],
        "errors": {asked: round((found[asked] - truth[asked]) / std, 4) for asked in MEASURES},
        "covers": {a: bool(low <= truth[a] <= high) for a, (low, high) in ends.items()},
        "widths": {a: round((high - low) / std, 4) for a, (low, high) in ends.items()},
    }


def wanted(fits: int, sizes: list[int]) -> Iterator[tuple[str, str, float, int, int]]:
    """All fits, so ordered that what is done when time is up is spread over all kinds."""
    for seed in range(fits):
        for episodes in sizes:
            for task in TASKS:
                for dial in DIALS:
                    for model in MODELS:
                        rows = model in ("rows", "rows, wrong")
                        if rows and task not in ("tabular", "lock"):
                            continue
                        if model in TABULAR and task in ("pendulum", "point mass"):
                            continue
                        yield task, model, dial, episodes, seed


def known(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def share(found: list[bool]) -> str:
    """As k of n, with the ends of an exact 95% interval (Clopper and Pearson)."""
    from scipy.stats import beta

    number, hits = len(found), sum(found)
    if number == 0:
        return "none"
    low = beta.ppf(0.025, hits, number - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, number - hits) if hits < number else 1.0
    return f"{hits} of {number}: {hits / number:.0%} ({low:.0%} to {high:.0%})"


def worst(run: dict[str, Any]) -> float:
    return max(abs(run["errors"][asked]) for asked in ("mean", "cvar:0.1"))


def tables(runs: list[dict[str, Any]]) -> str:
    """What the verdict and the intervals did, in Markdown."""
    wrong = [run for run in runs if worst(run) > WRONG]
    close = [run for run in runs if worst(run) <= CLOSE]
    lines = [
        f"{len(runs)} fits. Of estimates wrong by more than {WRONG:g} standard deviations, in mean"
        f" or CVaR 10%, not trusted: {share([run['level'] != 'trust' for run in wrong])}. Of those"
        f' within {CLOSE:g}, "do not use":'
        f" {share([run['level'] == 'do not use' for run in close])}.",
        "",
        "| of | fits | trust | caution | do not use | wrong | wrong and trusted | close |"
        ' close and "do not use" |',
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = [("all", runs)]
    groups += [(f"overlap k = {k:g}", [r for r in runs if r["dial"] == k]) for k in DIALS]
    groups += [
        (f"{task}, {model}", [r for r in runs if (r["task"], r["model"]) == (task, model)])
        for task in TASKS
        for model in MODELS
    ]
    groups += [(f"{n} episodes", [r for r in runs if r["episodes"] == n]) for n in EPISODES]
    groups = [(name, group) for name, group in groups if group]
    for name, group in groups:
        levels = [
            sum(r["level"] == level for r in group) for level in ("trust", "caution", "do not use")
        ]
        bad, good = [r for r in group if r in wrong], [r for r in group if r in close]
        cells = [
            name,
            len(group),
            *levels,
            len(bad),
            sum(r["level"] == "trust" for r in bad),
            len(good),
            sum(r["level"] == "do not use" for r in good),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += [
        "",
        f"Coverage of {LEVEL:.0%} intervals:",
        "",
        "| where | mean | quantile 10% | CVaR 10% |",
    ]
    lines.append("|---|---|---|---|")
    kinds = [(f"trust, {n}", [r for r in g if r["level"] == "trust"]) for n, g in groups]
    for name, group in (*kinds, *groups[:1]):
        if not any(r["covers"] for r in group):
            continue
        cells = [share([r["covers"][asked] for r in group if r["covers"]]) for asked in MEASURES]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=10, help="seeds of every kind of fit")
    parser.add_argument("--minutes", type=float, default=25.0, help="CPU minutes of this run")
    parser.add_argument("--task", nargs="*", default=list(TASKS))
    parser.add_argument("--model", nargs="*", default=list(MODELS))
    parser.add_argument("--episodes", nargs="*", type=int, default=list(EPISODES))
    parser.add_argument("--dial", nargs="*", type=float, default=list(DIALS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="lines of fits")
    parser.add_argument("--table", action="store_true", help="fit nothing")
    options = parser.parse_args()
    keys = ("task", "model", "dial", "episodes", "seed")
    done = {tuple(run[key] for key in keys) for run in known(options.out)}
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, text=True)
    for asked in () if options.table else wanted(options.fits, options.episodes):
        used = resource.getrusage(resource.RUSAGE_SELF)
        if used.ru_utime + used.ru_stime > 60 * options.minutes:
            break
        wished = options.task, options.model, options.dial
        if asked in done or any(one not in some for one, some in zip(asked, wished, strict=False)):
            continue
        rows = asked[1] in ("rows", "rows, wrong")
        run = {**(judged if rows else fitted)(*asked), "commit": commit.strip()}
        with options.out.open("a") as file:
            file.write(json.dumps(run, separators=(",", ":")) + "\n")
        print(*asked, run["level"], f"{worst(run):.2f}", run["seconds"], flush=True)
    text = tables(known(options.out))
    if options.out == RESULTS:
        TABLE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
