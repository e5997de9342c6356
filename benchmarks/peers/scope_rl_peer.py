"""SCOPE-RL's estimators of the distribution function, in an environment of its own.

They want episodes of one length, so shorter ones are filled up with steps that earn nothing and
that both policies are sure of. The logging policy's probabilities are the true ones, which ours are
not told. Values for its direct method and doubly robust estimators are d3rlpy's, of our budget.
The distribution function is asked at 200 points over the returns that the log shows.
"""

import json
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]
warnings.simplefilter("ignore")

from scope_rl.ope import discrete  # noqa: E402

from peers.questions import PeerLog, Question, padded, task_of  # noqa: E402

POINTS = 200
ESTIMATORS = {
    "SCOPE-RL trajectory IS": "CumulativeDistributionTIS",
    "SCOPE-RL self-normalised IS": "CumulativeDistributionSNTIS",
    "SCOPE-RL direct method": "CumulativeDistributionDM",
    "SCOPE-RL doubly robust": "CumulativeDistributionTDR",
    "SCOPE-RL self-normalised doubly robust": "CumulativeDistributionSNTDR",
}


def main() -> None:
    request, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    question = Question(**request["question"])
    task = task_of(question)
    log = PeerLog.of(task, question)
    source: Any = task.source
    plain = log.plain(log.observations)
    behaviour, target = (p.probabilities(plain) for p in (source.behaviour, source.policy))
    actions = log.actions.astype(int)
    sure = np.eye(behaviour.shape[1])[0]
    values = np.load(request["values"])
    values = np.pad(values, ((0, 0), (0, behaviour.shape[1] - values.shape[1])))
    longest, filled = padded(
        log,
        {
            "action": (actions, 0),
            "reward": (log.rewards, 0.0),
            "pscore": (behaviour[np.arange(len(actions)), actions], 1.0),
            "evaluation_policy_action_dist": (target, sure),
            "state_action_value_prediction": (values.astype(float), 0.0),
        },
    )
    gamma = 1.0 if log.horizon is not None else float(source.gamma)
    rewards = filled["reward"].reshape(-1, longest)
    returns = rewards @ gamma ** np.arange(longest)
    scale = np.linspace(returns.min(), returns.max(), POINTS)
    answers = {}
    for name, kind in ESTIMATORS.items():
        began = time.process_time()
        levels = getattr(discrete, kind)().estimate_cumulative_distribution_function(
            step_per_trajectory=longest, reward_scale=scale, gamma=gamma, **filled
        )
        levels = np.clip(np.nan_to_num(np.asarray(levels, float)), 0, 1)
        # What is missing to 1 can only lie at the end.
        levels[-1] = 1.0
        answers[name] = {
            "atoms": scale.tolist(),
            "weights": np.maximum(np.diff(levels, prepend=0.0), 0.0).tolist(),
            "seconds": time.process_time() - began,
            "memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }
    known = {"version": "0.2.1", "processor": time.process_time()}
    file.write_text(json.dumps({**known, "answers": answers}))


if __name__ == "__main__":
    main()
