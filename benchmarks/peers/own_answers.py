"""Our own models and baselines on one question, in a process of their own."""

import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

import numpy as np  # noqa: E402

from peers.questions import Question, task_of  # noqa: E402

# Draws of an evaluation that stand for its law.
DRAWS = 100_000
DEFAULT = "FLE"


def law_of(returns: Any) -> dict[str, Any]:
    """Atoms and weights of a distribution of scalar returns, no more of them than draws."""
    drawn = np.sort(np.reshape(returns.sample(DRAWS, seed=1), -1))
    values, counts = np.unique(drawn, return_counts=True)
    if len(values) > POINTS:
        # Each stands for as many draws as another: the law's quantiles.
        values = np.quantile(drawn, (np.arange(POINTS) + 0.5) / POINTS)
        counts = np.ones(POINTS, int)
    return {"atoms": values.tolist(), "weights": counts.tolist(), "mean": float(returns.mean())}


# Enough that the quantiles of a law are as good as its draws.
POINTS = 20_000


def answered(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An estimator's answer with what it cost, or why there is none."""
    import fle

    began = time.process_time()
    try:
        answer = make()
    except fle.FLEError as error:
        return {"none": str(error).splitlines()[0]}
    return {"seconds": time.process_time() - began, **answer}


def most_memory() -> dict[str, int]:
    """The most that this process had: what came before counts, so only fits are told of it."""
    return {"memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def main() -> None:
    request, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    if sys.platform == "linux":
        # Before JAX counts the cores, so that runs side by side do not take turns.
        os.sched_setaffinity(0, {request["core"]})
    warnings.simplefilter("ignore")
    import fle
    from fle.paper.environment import describe

    known = {"version": fle.__version__, "commit": describe()["commit"]}
    with fle.memory_ceiling(request.get("memory")):
        answers = answers_to(request)
    known["processor"] = time.process_time()
    file.write_text(json.dumps({**known, "answers": answers}))


def answers_to(request: dict[str, Any]) -> dict[str, Any]:
    """Of all that are asked, by name."""
    import fle
    from fle import baselines
    from fle.baselines.second_opinions import LEAST_EFFECTIVE

    question = Question(**request["question"])
    task = task_of(question)
    source = task.source
    data = fle.Dataset(**source.log(question.rows, question.seed))
    given = {"gamma": source.gamma, "horizon": source.horizon, "seed": question.seed}
    kept: dict[str, Any] = {}

    def evaluation(**settings: Any) -> dict[str, Any]:
        plan = fle.plan(data, source.policy.target, second_opinions=False, **given, **settings)
        result = plan.carry_out(anyway=True)
        kept.setdefault("plan", plan)
        kept.setdefault("result", result)
        return {**law_of(result.returns), **most_memory()}

    def baseline(estimator: Callable[..., Any], *more: str) -> dict[str, Any]:
        if "result" not in kept:
            return {"none": f"{DEFAULT} has no answer"}
        estimate = estimator(kept["plan"], *(kept[name] for name in more))
        if not hasattr(estimate, "returns"):
            return {"mean": estimate.means[0].value}
        return {**law_of(estimate.returns), "mean": estimate.mean().value}

    def followed(plan: Any, result: Any) -> Any:
        """As far as second opinions follow weights."""
        return baselines.doubly_robust(plan, result, least_effective=LEAST_EFFECTIVE)

    answers = {DEFAULT: answered(evaluation)}
    if request["models"]:
        answers["FLE, Categorical"] = answered(lambda: evaluation(model=fle.Categorical()))
        answers["FLE, energy distance"] = answered(
            lambda: evaluation(model=fle.GMM(), recipe=fle.Recipe(objective="energy"))
        )
    for name, estimator, more in (
        ("importance sampling", baselines.importance_sampling, ()),
        ("weighted importance sampling", baselines.weighted_importance_sampling, ()),
        (
            "weighted per-decision importance sampling",
            baselines.weighted_per_decision_importance_sampling,
            (),
        ),
        ("doubly robust", baselines.doubly_robust, ("result",)),
        (f"doubly robust, {LEAST_EFFECTIVE:g} episodes left", followed, ("result",)),
        ("stitching", baselines.stitching, ()),
        ("fitted Q evaluation on features", baselines.fitted_q_evaluation, ()),
    ):
        answers[name] = answered(lambda e=estimator, m=more: baseline(e, *m))
    return answers


if __name__ == "__main__":
    main()
