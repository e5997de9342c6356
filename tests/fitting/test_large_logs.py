"""A log too large to be held at once: the same result from disk and memory, near the truth."""

import re
import warnings

import numpy as np
import pytest

import fle
from fle.data import Dataset
from fle.errors import PolicyError
from fle.fitting import large_logs
from fle.fitting.large_logs import LargeLog
from fle.policies import Behaviour, RowActions
from fle.policies.answers import FOLDER

pa = pytest.importorskip("pyarrow")
EPISODES, STEPS, GAMMA, CHANCE = 3_000, 6, 0.8, 0.7
FIT = {
    "gamma": GAMMA,
    "stages": 20,
    "model": fle.Gaussian(hidden=()),
    "recipe": {"steps": 200, "batch_size": 100, "weight_decay": 0.0},
    "second_opinions": False,
}


def policy(observations):
    return np.tile([1 - CHANCE, CHANCE], (len(observations), 1))


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """In memory and prepared: x' = 0.5 x + a, r = x + noise, and 6 steps an episode, cut off."""
    import pyarrow.parquet as pq

    generator = np.random.default_rng(0)
    states, actions, rewards = [generator.normal(size=EPISODES)], [], []
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-states[-1]))
        actions.append((generator.random(EPISODES) < chance).astype(int))
        rewards.append(states[-1] + 0.1 * generator.normal(size=EPISODES))
        noise = 0.1 * generator.normal(size=EPISODES)
        states.append(0.5 * states[-1] + actions[-1] + noise)
    flat = {
        "observation.x": np.stack(states[:-1], 1).astype(np.float32),
        "next_observation.x": np.stack(states[1:], 1).astype(np.float32),
        "action": np.stack(actions, 1),
        "reward": np.stack(rewards, 1),
        "episode": np.repeat(np.arange(EPISODES)[:, None], STEPS, 1),
        "truncated": np.arange(STEPS) == np.full((EPISODES, 1), STEPS - 1),
    }
    folder = tmp_path_factory.mktemp("large")
    table = pa.table({name: values.ravel() for name, values in flat.items()})
    pq.write_table(table, folder / "log.parquet")
    data = fle.read(folder / "log.parquet")
    return data, fle.prepare(folder / "log.parquet", folder / "out"), folder / "out"


@pytest.fixture
def large(monkeypatch):
    """Any log is large; a window has a third of these rows."""
    monkeypatch.setattr(large_logs, "LARGE", 1)
    monkeypatch.setattr(large_logs, "WINDOW", 5 * EPISODES * STEPS // 3)
    monkeypatch.setattr(large_logs, "BLOCK_ROWS", 100)


def evaluated(data, target=policy, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fle.evaluate(data, target, **{**FIT, **settings})


def require_same(first, second):
    for here, there in zip(first.records, second.records, strict=True):
        assert here.loss == there.loss
        assert here.held_out_loss == there.held_out_loss
    np.testing.assert_array_equal(
        first.returns.sample(500, seed=1), second.returns.sample(500, seed=1)
    )
    assert first.notes == second.notes
    assert first.warnings == second.warnings


def test_a_small_log_gives_the_same_from_the_disk(logs):
    data, prepared, _ = logs
    require_same(evaluated(data), evaluated(prepared))


def test_a_large_log_gives_the_same_from_the_disk_and_is_near_the_truth(logs, large):
    data, prepared, folder = logs
    first, second = evaluated(data), evaluated(prepared)
    require_same(first, second)
    # Of 6,000 rows that a window may have.
    assert re.search("the log has 18,000 rows: .* rest on (5,9..|6,000) of them", first.notes[-1])
    # Answers are beside the log now, and say the same.
    assert len(list((folder / FOLDER).rglob("*.npz"))) > 50
    require_same(second, evaluated(prepared))
    # E[x_t] = 2 c (1 - 0.5^t) from 0 on.
    truth = 2 * CHANCE * (1 / (1 - GAMMA) - 1 / (1 - 0.5 * GAMMA))
    # The starts that stand for all: their mean return is (x_0 - 0) / (1 - 0.5 GAMMA) off. Besides
    # that, a linear mean is fitted to 12,000 rows with noise of less than one in all: four
    # standard errors of both, and what 20 stages leave of a start that is off by 2: 2 * 0.8^20.
    starts = float(np.mean(prepared.initial_observations)) / (1 - 0.5 * GAMMA)
    spread = 4 * (1 / (1 - 0.5 * GAMMA)) / np.sqrt(1_000) + 4 / np.sqrt(12_000) + 0.03
    assert abs(first.returns.mean() - truth - starts) < spread


def test_what_is_kept_is_not_believed_of_another_policy(logs, large):
    _, prepared, _ = logs
    first = evaluated(prepared)
    calls = []

    def counted(observations):
        calls.append(len(observations))
        return policy(observations)

    require_same(first, evaluated(prepared, counted))
    known = sum(calls)
    # The window, its starts, and four rows of every block of twenty feeds, not 20 * 5,900 rows.
    assert known < 20_000
    other = evaluated(prepared, lambda observations: 1 - policy(observations))
    assert abs(other.returns.mean() - first.returns.mean()) > 0.5


def test_a_step_of_a_horizon_and_the_logging_policy(logs, large):
    data, prepared, _ = logs
    timed = {"gamma": None, "stages": None, "horizon": 3}
    require_same(evaluated(data, **timed), evaluated(prepared, **timed))
    require_same(evaluated(data, Behaviour()), evaluated(prepared, Behaviour()))


def test_feeds_use_every_block_once_before_any_is_used_again(logs, large):
    data, _, _ = logs
    log = LargeLog.of(data, 2, 0)
    assert log is not None
    blocks = set(range(len(log.bounds) - 1))
    window = set(log.order[: log.known].tolist())
    feeds = [log.feed(number).tolist() for number in range(4)]
    assert not window & set(feeds[0])
    assert not (window | set(feeds[0])) & set(feeds[1])
    assert set().union(*feeds) == blocks - window
    for feed in feeds:
        part = log.rows(np.array(feed))
        assert len(part) <= log.size
        # Whole episodes, with the initial observations of theirs.
        assert (
            len(part) == STEPS * part.number_of_episodes == STEPS * len(part.initial_observations)
        )
        np.testing.assert_array_equal(part.observations[::STEPS], part.initial_observations)


def test_answers_by_row_cannot_be_held(logs, large):
    data, _, _ = logs
    given = RowActions(np.zeros(len(data), int), np.zeros(EPISODES, int))
    with pytest.raises(PolicyError, match="too many to be held at once"):
        evaluated(data, given)


def test_a_large_log_needs_more_numbers_than_the_bound(logs):
    data, _, _ = logs
    assert LargeLog.of(data, 2, 0) is None
    assert isinstance(data, Dataset)
