"""d3rlpy's fitted Q evaluation, in an environment of its own: REQUEST as JSON, FILE to write.

It is run twice on the same log. As its documentation has it: the settings of `FQEConfig` and
10,000 steps. And with a fair budget: inputs and rewards standardised, as much of the processor's
time as ours took and 10,000 steps at least, and a target network that is renewed at least three
times as often as a return has steps; by default it is after 100 steps, and 10,000 of them leave a
third of a return with gamma = .99 unseen. Its target action is drawn from the policy, which its own
algorithms would not do: they take the greedy one.
"""

import contextlib
import io
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
# A script's own folder comes first; here it would hide packages named like a module.
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

import d3rlpy  # noqa: E402
import torch  # noqa: E402

from peers.questions import PeerLog, Question, is_discrete, task_of  # noqa: E402

DOCUMENTED_STEPS = 10_000
# Steps between two looks at the clock.
BLOCK = 1_000
# Renewals of the target network, for each step that a return is made of.
RENEWALS = 3


class DrawnActions:
    """What d3rlpy asks of the algorithm that it evaluates: next actions, here draws of a policy."""

    def __init__(self, policy: Any, log: PeerLog, scaler: Any, seed: int) -> None:
        self.policy, self.log, self.scaler = policy, log, scaler
        self.generator = np.random.default_rng(seed)

    @property
    def impl(self) -> "DrawnActions":
        """Itself."""
        return self

    def predict_best_action(self, observations: torch.Tensor) -> torch.Tensor:
        """Draws for a batch, whose observations may be standardised."""
        if self.scaler is not None:
            observations = self.scaler.reverse_transform(observations)
        return torch.as_tensor(self.at(observations.numpy()))

    def at(self, observations: np.ndarray) -> np.ndarray:
        """Draws at plain observations."""
        actions = self.policy.act(self.log.plain(observations), self.generator)
        return actions if is_whole(actions) else actions.astype(np.float32)


def is_whole(actions: np.ndarray) -> bool:
    return bool(np.issubdtype(actions.dtype, np.integer))


def fitted(log: PeerLog, task: Any, question: Question, scaled: bool, seconds: float) -> "Fitted":
    """Train for the documented steps, or for so many seconds of the processor."""
    discrete = is_discrete(task)
    actions = log.actions if discrete else log.actions.reshape(len(log.actions), -1)
    data = d3rlpy.dataset.MDPDataset(
        log.observations,
        actions.astype(np.int64 if discrete else np.float32),
        log.rewards.astype(np.float32),
        log.terminals.astype(np.float32),
        log.timeouts.astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE if discrete else d3rlpy.ActionSpace.CONTINUOUS,
        action_size=int(log.actions.max()) + 1 if discrete else None,
    )
    gamma = 1.0 if log.horizon is not None else task.source.gamma
    settings: dict[str, Any] = {"gamma": gamma}
    scaler, factor = None, 1.0
    if scaled:
        spread = log.observations.std(axis=0)
        # A state that was not logged stays what it is.
        spread = np.where(spread > 1e-6, spread, 1.0)
        scaler = d3rlpy.preprocessing.StandardObservationScaler(
            mean=log.observations.mean(axis=0), std=spread
        )
        # Only scaled: a shift would change what episodes of unequal length are worth.
        factor = float(1 / max(log.rewards.std(), 1e-9))
        length = log.horizon or 1 / (1 - gamma)
        often = max(1, int(DOCUMENTED_STEPS / (RENEWALS * length)))
        settings["target_update_interval"] = min(often, 100)
        settings["observation_scaler"] = scaler
        settings["reward_scaler"] = d3rlpy.preprocessing.MultiplyRewardScaler(multiplier=factor)
        if not discrete:
            settings["action_scaler"] = d3rlpy.preprocessing.MinMaxActionScaler(
                minimum=actions.min(axis=0), maximum=actions.max(axis=0)
            )
    target = DrawnActions(task.source.policy, log, scaler, question.seed)
    if scaled and not discrete:
        draw, scale = target.predict_best_action, settings["action_scaler"]
        target.predict_best_action = lambda x: scale.transform(draw(x))  # type: ignore[method-assign]
    kind = d3rlpy.ope.DiscreteFQE if discrete else d3rlpy.ope.FQE
    critic = kind(algo=target, config=d3rlpy.ope.FQEConfig(**settings))
    began, steps = time.process_time(), 0
    while steps < DOCUMENTED_STEPS or (scaled and time.process_time() - began < seconds):
        critic.fit(
            data,
            n_steps=BLOCK,
            n_steps_per_epoch=BLOCK,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
            show_progress=False,
        )
        steps += BLOCK
    return Fitted(critic, target, factor, steps, time.process_time() - began)


class Fitted(NamedTuple):
    """A critic, whose values are `factor` times what they are in the units of the data."""

    critic: Any
    target: DrawnActions
    factor: float
    steps: int
    seconds: float

    def values(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """(n,) d3rlpy scales rewards and leaves values scaled."""
        return self.critic.predict_value(observations, actions) / self.factor


def main() -> None:
    request, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    question = Question(**request["question"])
    torch.set_num_threads(1)
    task = task_of(question)
    log = PeerLog.of(task, question)
    answers = {}
    for name, scaled in (("d3rlpy FQE, as documented", False), ("d3rlpy FQE, our budget", True)):
        d3rlpy.seed(question.seed)
        with contextlib.redirect_stdout(io.StringIO()):
            found = fitted(log, task, question, scaled, request["seconds"])
        answers[name] = {
            "mean": float(np.mean(found.values(log.starts, found.target.at(log.starts)))),
            "seconds": found.seconds,
            "memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "note": f"{found.steps:,} steps",
        }
        if is_discrete(task):
            count = int(log.actions.max()) + 1
            columns = [
                found.values(log.observations, np.full(len(log.observations), action))
                for action in range(count)
            ]
            np.save(file.with_suffix(".q.npy"), np.column_stack(columns).astype(np.float32))
    known = {"version": d3rlpy.__version__, "processor": time.process_time()}
    file.write_text(json.dumps({**known, "answers": answers}))


if __name__ == "__main__":
    main()
