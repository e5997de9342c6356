"""The code of docs/adapters.md runs, on objects shaped as those libraries shape theirs."""

import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fle

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
LENGTHS = (3, 2)


def block(title):
    """The code under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return code


def data_of(title, **given):
    names = {"fle": fle, "np": np, **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fle.FLEWarning)
        exec(block(title), names)  # noqa: S102
    return names["data"]


def test_every_section_is_tried():
    titles = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert titles == ["d3rlpy", "RLDS", "LeRobot", "Open Bandit"]


@pytest.mark.parametrize("discrete", [True, False])
def test_d3rlpy(discrete):
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
    data = data_of("d3rlpy", buffer=SimpleNamespace(episodes=episodes), discrete=discrete)
    # The last row of the episode that was cut off has no next observation.
    assert len(data) == sum(LENGTHS) - 1
    assert data.terminations.tolist() == [False, False, True, False]
    assert data.discrete_actions == discrete


def test_rlds():
    def steps(length, terminal):
        return [
            {
                "observation": np.full(2, step / 2),
                "action": np.int64(step % 2),
                "reward": np.float32(step),
                "is_terminal": terminal and step == length,
            }
            for step in range(length + 1)
        ]

    def episode(length, terminal):
        return {"steps": SimpleNamespace(as_numpy_iterator=lambda: iter(steps(length, terminal)))}

    data = data_of("RLDS", tfds_dataset=[episode(3, True), episode(2, False)])
    assert data.rewards[:, 0].tolist() == [0, 1, 2, 0, 1]
    assert data.next_observations[:, 0].tolist() == [0.5, 1, 1.5, 0.5, 1]
    assert data.terminations.tolist() == [False, False, True, False, False]
    assert data.truncations.tolist() == [False, False, False, False, True]


def test_lerobot(tmp_path, monkeypatch):
    rows = sum(LENGTHS)
    shards = tmp_path / "my_dataset" / "data" / "chunk-000"
    shards.mkdir(parents=True)
    state = np.arange(rows * 3, dtype=np.float32) / 7
    for number, length in enumerate(LENGTHS):
        part = slice(sum(LENGTHS[:number]), sum(LENGTHS[: number + 1]))
        columns = {
            "observation.state": pa.FixedSizeListArray.from_arrays(
                state.reshape(rows, 3)[part].reshape(-1), 3
            ),
            "action": pa.FixedSizeListArray.from_arrays(np.ones(length * 2) / 3, 2),
            "next.reward": np.arange(length) * 1.0,
            "next.done": np.arange(length) == length - 1,
            "next.success": np.arange(length) == length - 1,
            "episode_index": np.full(length, number),
            "frame_index": np.arange(length),
            "timestamp": np.arange(length) / 10,
            "task_index": np.zeros(length, int),
        }
        pq.write_table(pa.table(columns), shards / f"episode_{number:06d}.parquet")
    monkeypatch.chdir(tmp_path)
    data = data_of("LeRobot")
    np.testing.assert_array_equal(data.observations, state.reshape(rows, 3))
    assert data.terminations.sum() == len(LENGTHS)
    assert data.action_dim == 2


def test_open_bandit():
    generator = np.random.default_rng(0)
    feedback = {
        "n_rounds": 20,
        "n_actions": 5,
        "context": generator.standard_normal((20, 3)),
        "action": generator.integers(0, 4, 20),
        "reward": generator.integers(0, 2, 20),
        "pscore": np.full(20, 0.2),
    }

    class OpenBanditDataset:
        def __init__(self, behavior_policy, campaign):
            assert (behavior_policy, campaign) == ("random", "all")

        def obtain_batch_bandit_feedback(self):
            return feedback

    data = data_of("Open Bandit", OpenBanditDataset=OpenBanditDataset)
    assert data.number_of_actions == 5
    assert data.notes == ("every episode has length one: this is a bandit problem",)
    np.testing.assert_array_equal(data.rewards[:, 0], feedback["reward"])
