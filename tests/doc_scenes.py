"""What the pages take for granted: files in the current folder, names, and short training."""

import functools
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

import fle
import fle.examples

EPISODES = 10
LENGTHS = (3, 2)

# What a page leaves to the defaults is fitted in a moment here: these pages show calls, and the
# default training, which other tests cover, would take minutes each.
QUICK = {
    "model": fle.Gaussian(std=1.0, hidden=()),
    "recipe": fle.Recipe(steps=10, batch_size=50, weight_decay=0.0),
}
# Ten episodes are too few to be believed, and the verdict says so.
SHOWN = {**QUICK, "anyway": True}
SHORT = {"evaluate": SHOWN, "compare": SHOWN, "gate": QUICK}
SHORT_DISCOUNTED = {"stages": 2}


def shorten(monkeypatch):
    """Give the functions in SHORT defaults that take a moment; what a page says still counts."""
    for name, defaults in SHORT.items():
        monkeypatch.setattr(fle, name, _shortened(getattr(fle, name), defaults))


def _shortened(function, defaults):
    @functools.wraps(function)
    def short(*arguments, **given):
        discounted = SHORT_DISCOUNTED if given.get("horizon") is None else {}
        return function(*arguments, **{**defaults, **discounted, **given})

    return short


def a_log(folder):
    """logs.parquet and policy.onnx: the first episodes of a bundled log, and its target policy."""
    example = fle.examples.load("cartpole")
    log = pq.read_table(example.data_path)
    first = pc.unique(log["episode"]).slice(0, EPISODES)
    pq.write_table(log.filter(pc.is_in(log["episode"], first)), folder / "logs.parquet")
    shutil.copy(example.policy_path, folder / "policy.onnx")
    return {}


def data_and_policy(folder):
    """The same, opened."""
    a_log(folder)
    return {
        "data": fle.read(folder / "logs.parquet"),
        "policy": fle.load_policy(folder / "policy.onnx"),
    }


def two_evaluations(folder):
    """Data and policy, another evaluation of them, two policies to compare, and a key."""
    names = data_and_policy(folder)
    (folder / "team.key").write_text("0123456789abcdef0123456789abcdef\n")
    return {
        **names,
        "other": fle.evaluate(names["data"], names["policy"], horizon=2),
        "old": fle.load_policy("behaviour"),
        "new": names["policy"],
    }


def messy_logs(folder):
    """What examples/make_messy_logs.py writes."""
    script = Path(__file__).parent.parent / "examples" / "make_messy_logs.py"
    runpy.run_path(str(script))["main"](folder / "messy")
    return {}


def a_policy_with_odd_outputs(folder):
    """policy.onnx whose outputs are called output_0, mu and s; and weights of a layer."""
    outputs = ("output_0", "mu", "s")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in outputs]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["observations", "weights"], [name]) for name in outputs],
        "policy",
        [helper.make_tensor_value_info("observations", TensorProto.FLOAT, ["n", 2])],
        ports,
        [numpy_helper.from_array(np.eye(2, dtype=np.float32), "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    (folder / "policy.onnx").write_bytes(model.SerializeToString())
    layer = {"actor.0.weight": np.eye(2, dtype=np.float32), "actor.0.bias": np.zeros(2, "f4")}
    save_file(layer, folder / "agent.safetensors")
    return {}


def other_libraries(folder, *, discrete):
    """Objects shaped as d3rlpy, RLDS, LeRobot and Open Bandit shape theirs."""
    _lerobot_shards(folder / "my_dataset" / "data" / "chunk-000")
    return {
        "discrete": discrete,
        "buffer": _d3rlpy_buffer(discrete),
        "tfds_dataset": [_rlds_episode(3, terminal=True), _rlds_episode(2, terminal=False)],
        "OpenBanditDataset": OpenBanditDataset,
    }


def _d3rlpy_buffer(discrete):
    generator = np.random.default_rng(0)
    episodes = [
        SimpleNamespace(
            observations=generator.standard_normal((length, 2)).astype(np.float32),
            actions=generator.integers(0, 2, (length, 1)) if discrete else np.ones((length, 2)) / 3,
            rewards=generator.standard_normal((length, 1)),
            terminated=number == 0,
        )
        for number, length in enumerate(LENGTHS)
    ]
    return SimpleNamespace(episodes=episodes)


def _rlds_episode(length, *, terminal):
    steps = [
        {
            "observation": np.full(2, step / 2),
            "action": np.int64(step % 2),
            "reward": np.float32(step),
            "is_terminal": terminal and step == length,
        }
        for step in range(length + 1)
    ]
    return {"steps": SimpleNamespace(as_numpy_iterator=lambda: iter(steps))}


def _lerobot_shards(folder):
    folder.mkdir(parents=True)
    for number, (length, state) in enumerate(zip(LENGTHS, lerobot_states(), strict=True)):
        last = np.arange(length) == length - 1
        columns = {
            "observation.state": pa.FixedSizeListArray.from_arrays(state.reshape(-1), 3),
            "action": pa.FixedSizeListArray.from_arrays(np.ones(length * 2) / 3, 2),
            "next.reward": np.arange(length) * 1.0,
            "next.done": last,
            "next.success": last,
            "episode_index": np.full(length, number),
            "frame_index": np.arange(length),
            "timestamp": np.arange(length) / 10,
            "task_index": np.zeros(length, int),
        }
        pq.write_table(pa.table(columns), folder / f"episode_{number:06d}.parquet")


def lerobot_states():
    """The observations of each episode."""
    rows = np.arange(sum(LENGTHS) * 3, dtype=np.float32).reshape(-1, 3) / 7
    return np.split(rows, np.cumsum(LENGTHS)[:-1])


class OpenBanditDataset:
    """As in the package obp."""

    FEEDBACK = {  # noqa: RUF012
        "n_rounds": 20,
        "n_actions": 5,
        "context": np.random.default_rng(0).standard_normal((20, 3)),
        "action": np.random.default_rng(1).integers(0, 4, 20),
        "reward": np.random.default_rng(2).integers(0, 2, 20),
        "pscore": np.full(20, 0.2),
    }

    def __init__(self, behavior_policy, campaign):
        assert (behavior_policy, campaign) == ("random", "all")

    def obtain_batch_bandit_feedback(self):
        return self.FEEDBACK


def check_d3rlpy(names):
    data = names["data"]
    # The last row of the episode that was cut off has no next observation.
    assert len(data) == sum(LENGTHS) - 1
    assert data.terminations.tolist() == [False, False, True, False]
    assert data.discrete_actions == names["discrete"]


def check_rlds(names):
    data = names["data"]
    assert data.rewards[:, 0].tolist() == [0, 1, 2, 0, 1]
    assert data.next_observations[:, 0].tolist() == [0.5, 1, 1.5, 0.5, 1]
    assert data.terminations.tolist() == [False, False, True, False, False]
    assert data.truncations.tolist() == [False, False, False, False, True]


def check_lerobot(names):
    data = names["data"]
    np.testing.assert_array_equal(data.observations, np.concatenate(lerobot_states()))
    assert data.terminations.sum() == len(LENGTHS)
    assert data.action_dim == 2


def check_open_bandit(names):
    data = names["data"]
    assert data.number_of_actions == 5
    assert data.notes == ("every episode has length one: this is a bandit problem",)
    np.testing.assert_array_equal(data.rewards[:, 0], OpenBanditDataset.FEEDBACK["reward"])


# What a page needs; a page that is not named needs nothing. A page with several is run with each.
SCENES = {
    "README.md": (a_log,),
    "docs/adapters.md": (
        functools.partial(other_libraries, discrete=True),
        functools.partial(other_libraries, discrete=False),
    ),
    "docs/adding_a_model.md": (data_and_policy,),
    "docs/baselines.md": (data_and_policy,),
    "docs/objectives.md": (data_and_policy,),
    "docs/own_features.md": (data_and_policy,),
    "docs/large_logs.md": (data_and_policy,),
    "docs/for_recommenders.md": (messy_logs,),
    "docs/for_robotics.md": (messy_logs,),
    "docs/gate.md": (data_and_policy,),
    "docs/comparing.md": (two_evaluations,),
    "docs/intervals.md": (data_and_policy,),
    "docs/notebook.md": (data_and_policy,),
    "docs/policies.md": (a_policy_with_odd_outputs,),
    "docs/report.md": (data_and_policy,),
    "docs/runs.md": (two_evaluations,),
    "docs/tutorial.md": (messy_logs,),
    "docs/verdict.md": (data_and_policy,),
}
# What must hold after the block under a heading.
CHECKS = {
    ("docs/adapters.md", "d3rlpy"): check_d3rlpy,
    ("docs/adapters.md", "RLDS"): check_rlds,
    ("docs/adapters.md", "LeRobot"): check_lerobot,
    ("docs/adapters.md", "Open Bandit"): check_open_bandit,
}
# The files that must be there after a page.
WRITTEN = {
    "README.md": ("report.html",),
    "docs/report.md": ("report.html",),
    "docs/runs.md": (
        *("run/result.json", "elsewhere/result.json", "for-you/manifest.json"),
        *("runs/old/result.json", "runs/new/result.json"),
    ),
}
# A page that shows part of a file shows it as it is.
SHOWN = {"docs/adding_a_model.md": "examples/laplace.py"}
