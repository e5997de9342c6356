"""How d3rlpy's fitted Q evaluation comes along, in its environment: REQUEST as JSON, FILE to write.

Its own defaults. After every 1,000 steps the mean return that it states is written down beside the
processor's time of training alone, until that time is used up.
"""

import contextlib
import io
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

import d3rlpy  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from peers.d3rlpy_peer import BLOCK, DrawnActions  # noqa: E402
from peers.questions import PeerLog, Question, task_of  # noqa: E402


def main() -> None:
    request, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    question = Question(**request["question"])
    torch.set_num_threads(1)
    d3rlpy.seed(question.seed)
    task = task_of(question)
    log = PeerLog.of(task, question)
    data = d3rlpy.dataset.MDPDataset(
        log.observations,
        log.actions.astype(np.int64),
        log.rewards.astype(np.float32),
        log.terminals.astype(np.float32),
        log.timeouts.astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=int(log.actions.max()) + 1,
    )
    policy = DrawnActions(task.source.policy, log, None, question.seed)
    config = d3rlpy.ope.FQEConfig(gamma=task.source.gamma)
    critic = d3rlpy.ope.DiscreteFQE(algo=policy, config=config)
    course: list[dict[str, float]] = []
    spent = 0.0
    while spent < request["seconds"]:
        began = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            critic.fit(
                data,
                n_steps=BLOCK,
                n_steps_per_epoch=BLOCK,
                logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
                show_progress=False,
            )
        spent += time.process_time() - began
        values = critic.predict_value(log.starts, policy.at(log.starts))
        steps = BLOCK * (len(course) + 1)
        course.append({"steps": steps, "seconds": spent, "mean": float(np.mean(values))})
    versions = {"d3rlpy": d3rlpy.__version__, "torch": torch.__version__}
    file.write_text(json.dumps({"versions": versions, "course": course}))


if __name__ == "__main__":
    main()
