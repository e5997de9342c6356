"""One run: a task, a seed and settings give the figures of one line of the table.

Called by `run.py` in a process of its own, as `python measurement.py REQUEST FILE`.
"""

import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# A script's own folder comes first; here it would hide packages named like a family.
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

import numpy as np  # noqa: E402

TRUTH_SEED = 0
# The second opinion whose mean is shown beside ours.
FITTED_Q = "fitted Q evaluation"
# Draws of an estimate from which errors and chances are read.
DRAWS = 100_000
# What the truth of every family depends on, beside its own module.
SHARED = ("task.py", "simulation.py", "gym_rollouts.py", "state_tables.py")
# Settings that are arguments of `fle.plan`; all others are of its recipe.
PLAN_SETTINGS = ("model", "stages", "action_draws")


def parsed_settings(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is JSON where it can be, else text."""
    from fle.recipe import Recipe

    known = [*PLAN_SETTINGS, *(field.name for field in fields(Recipe))]
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            raise SystemExit(f"--setting: expected NAME=VALUE with {', '.join(known)}, got {pair}")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def true_returns(task, folder: Path) -> np.ndarray:
    """(n, d) from the cache, or drawn and put there; other code makes other files."""
    sources = [HERE / f"{task.family}.py", *(HERE / name for name in SHARED)]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    path = folder / f"{task.name}-{task.truth_size}-{TRUTH_SEED}-{code}.npy"
    if path.exists():
        return np.load(path)
    returns = task.source.truth(task.truth_size, TRUTH_SEED)
    folder.mkdir(parents=True, exist_ok=True)
    # Two processes may draw the same truth; each writes its own file, and one stays.
    temporary = path.with_suffix(f".{os.getpid()}")
    with open(temporary, "wb") as file:
        np.save(file, returns)
    os.replace(temporary, path)
    return returns


def measure(
    task, seed: int, rows: int, settings: Mapping[str, Any], *, fqe: bool, truth: np.ndarray
) -> dict[str, Any]:
    """Fit one log of the task, and hold the estimate against the truth."""
    import fle
    from tasks.task import logged_events

    source = task.source
    columns = source.log(rows, seed)
    with warnings.catch_warnings():
        # They are counted below; on the way they would only be noise.
        warnings.simplefilter("ignore", fle.FLEWarning)
        data = fle.Dataset(**columns)
        recipe = {name: value for name, value in settings.items() if name not in PLAN_SETTINGS}
        given = {name: settings[name] for name in settings if name not in recipe}
        if source.horizon is not None:
            # One setting serves all tasks; a horizon is its own number of stages.
            given.pop("stages", None)
        question = {"gamma": source.gamma, "horizon": source.horizon, "seed": seed}
        clock, processor = time.perf_counter(), time.process_time()
        planned = fle.plan(data, source.policy.target, recipe=recipe, **question, **given)
        result = planned.carry_out(anyway=True)
        figures = {
            "seconds": round(time.perf_counter() - clock, 1),
            "processor_seconds": round(time.process_time() - processor, 1),
            "stages": len(result.records),
            "model": str(result.model),
            "withheld": planned.withheld,
            "warnings": list(result.warnings),
            "verdict": result.verdict.level,
            "verdict_reasons": [reason.words for reason in result.verdict.reasons],
            **second_mean(result, truth),
            **held_against(result.returns, truth, task.events),
        }
        if fqe:
            model = fle.Gaussian(std=1.0)
            plain = {**given, "model": model}
            fitted = fle.plan(data, source.policy.target, recipe=recipe, **question, **plain)
            mean = fitted.carry_out(anyway=True).returns.mean()
            figures["fqe_mean_error"] = _in_std(mean, truth)
    for event, entry in zip(task.events, figures["events"], strict=True):
        entry["logged"] = logged_events(event, columns, source.gamma)
    return figures


def second_mean(result, truth: np.ndarray) -> dict[str, Any]:
    """The error of the mean by fitted Q evaluation on features, a second opinion."""
    if result.second_opinions is None:
        return {}
    means = [
        opinion.figures["mean"].value
        for opinion in result.second_opinions.opinions
        if opinion.estimator == FITTED_Q and "mean" in opinion.figures
    ]
    return {"second_mean_error": _in_std(np.array(means), truth)} if means else {}


def held_against(estimate, truth: np.ndarray, events) -> dict[str, Any]:
    """Distances, errors in standard deviations of the true return, and chances of events."""
    import fle
    from fle.returns import cvar, distances_to_truth

    distance = distances_to_truth(estimate, fle.ReturnDistribution.from_samples(truth))[0]
    drawn = np.reshape(estimate.sample(DRAWS, seed=1), (DRAWS, -1))
    spread = np.where(truth.std(axis=0) > 0, truth.std(axis=0), 1.0)

    def tail_error(level: float) -> list[float]:
        pairs = zip(drawn.T, truth.T, strict=True)
        errors = [float(cvar(ours, level) - cvar(theirs, level)) for ours, theirs in pairs]
        return (np.array(errors) / spread).tolist()

    return {
        "w1": distance.distance,
        "floor": distance.floor.mean,
        "true_mean": truth.mean(axis=0).tolist(),
        "true_std": truth.std(axis=0).tolist(),
        "mean_error": _in_std(drawn.mean(axis=0), truth),
        "std_ratio": (drawn.std(axis=0) / spread).tolist(),
        "cvar_10_error": tail_error(0.1),
        "cvar_1_error": tail_error(0.01),
        "events": [
            {
                "text": event.text,
                "estimate": float(event.happened(drawn).mean()),
                "truth": float(event.happened(truth).mean()),
            }
            for event in events
        ],
    }


def _in_std(mean, truth: np.ndarray) -> list[float]:
    spread = np.where(truth.std(axis=0) > 0, truth.std(axis=0), 1.0)
    return ((np.atleast_1d(mean) - truth.mean(axis=0)) / spread).tolist()


def main() -> None:
    request, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    if sys.platform == "linux":
        # Before JAX counts the cores, so that runs side by side do not take turns.
        os.sched_setaffinity(0, {request["core"]})
    from fle.files import write_json
    from fle.paper.environment import describe
    from tasks.register import FAMILIES, set_of

    family = next(f for f in FAMILIES if f.name == request["task"].split("-")[0])
    task = next(task for task in family.tasks() if task.name == request["task"])
    figures = measure(
        task,
        request["seed"],
        request["rows"],
        request["settings"],
        fqe=request["fqe"],
        truth=true_returns(task, Path(request["truth"])),
    )
    kept = {name: request[name] for name in ("task", "seed", "rows", "settings", "code")}
    facts = {"set": set_of(task), "covered": task.covered, "truth_size": task.truth_size}
    write_json(file, {**describe(), **kept, **facts, **figures})


if __name__ == "__main__":
    main()
