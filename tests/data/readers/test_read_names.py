"""Columns are found by their names, mapped by options, and missed with a hint."""

import numpy as np
import pytest
from reader_logs import ACTIONS, OBSERVATIONS, REWARDS, TERMINATED, log, write_parquet

from fle.data import read
from fle.errors import DataError


def renamed(**new):
    """The log with other names for its columns."""
    columns = log()
    for old, name in new.items():
        columns[name] = columns.pop(old.replace("__", "."))
    return columns


OTHER = renamed(
    episode="ride",
    step="t",
    observation__x="obs_x",
    observation__y="obs_y",
    action="move",
    reward="gain",
    terminated="crashed",
    truncated="timeout",
)
MAPPED = {
    "episode": "ride",
    "step": "t",
    "action": "move",
    "reward": "gain",
    "terminated": "crashed",
    "truncated": "timeout",
}


@pytest.mark.parametrize("observation", ["obs_*", "obs_", ["obs_x", "obs_y"], ("obs_?",)])
def test_every_column_can_be_mapped(observation):
    data = read(OTHER, observation=observation, **MAPPED)
    np.testing.assert_array_equal(data.observations, OBSERVATIONS)
    np.testing.assert_array_equal(data.actions, ACTIONS)
    np.testing.assert_array_equal(data.rewards[:, 0], REWARDS)
    np.testing.assert_array_equal(data.terminations, TERMINATED)
    assert data.number_of_episodes == 2
    assert data.warnings == ()


def test_a_list_of_names_decides_the_order():
    data = read(OTHER, observation=["obs_y", "obs_x"], **MAPPED)
    np.testing.assert_array_equal(data.observations, OBSERVATIONS[:, ::-1])


def test_mapped_rewards_keep_their_column_names():
    columns = {**OTHER, "loss": -REWARDS}
    options = {**MAPPED, "reward": ["gain", "loss"], "observation": "obs_*"}
    assert read(columns, **options).reward_names == ("gain", "loss")


def test_a_prefix_before_a_dot():
    columns = renamed(observation__x="state.x", observation__y="state.y")
    np.testing.assert_array_equal(read(columns, observation="state").observations, OBSERVATIONS)


def test_unicode_names_work(tmp_path):
    columns = renamed(observation__x="observation.température", observation__y="observation.速度")
    data = read(write_parquet(tmp_path / "log.parquet", columns))
    np.testing.assert_array_equal(data.observations, OBSERVATIONS)


def test_the_step_may_also_be_observed():
    data = read(log(), observation=["observation.x", "step"])
    np.testing.assert_array_equal(data.observations[:, 1], [0, 1, 2, 0, 1])


def test_a_weight_column_counts_only_when_named():
    columns = log(weight=np.array([1.0, 2, 3, 4, 5]))
    assert read(columns).weights is None
    np.testing.assert_array_equal(read(columns, weight="weight").weights, [1, 2, 3, 4, 5])


def test_whole_floats_are_discrete_if_the_number_of_actions_is_given():
    columns = log(action=ACTIONS.astype(float))
    assert read(columns).action_dim == 1
    data = read(columns, number_of_actions=5)
    assert data.number_of_actions == 5
    np.testing.assert_array_equal(data.actions, ACTIONS)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (renamed(reward="rewrad_total"), {}, r"log\.parquet: no reward column.*'rewrad_total'"),
        (renamed(action="act"), {}, r"no action column; .*nearest: 'act'.*action="),
        (log(), {"observation": "obsrvation.x"}, r"no column 'obsrvation.x'.*'observation.x'"),
        (log(), {"reward": ["reward", "reward"]}, "expected distinct columns, got one twice"),
        (log(), {"episode": "observation.*"}, "expected one episode column, got 'observation.x'"),
        (log(), {"observation": ["observation.x", "reward"]}, "'reward' is both"),
        (log(observation=OBSERVATIONS[:, 0]), {}, "'observation' and 'observation.x' could both"),
        (renamed(terminated="done", truncated="cut"), {}, "'done' does not say whether"),
        (renamed(terminated="terminatd"), {}, "'terminatd' is almost 'terminated'"),
        (renamed(terminated="Terminated"), {}, "'Terminated' is almost 'terminated'"),
        (renamed(observation__y="obesrvation.y"), {}, "'obesrvation.y' is almost 'observation'"),
        (renamed(terminated="terminated.x"), {}, "'terminated.x' is almost 'terminated'"),
        (renamed(observation__y="observation/y"), {}, "'observation/y' is almost 'observation'"),
    ],
)
def test_names_that_do_not_fit(tmp_path, columns, options, message):
    path = write_parquet(tmp_path / "log.parquet", columns)
    with pytest.raises(DataError, match=message):
        read(path, **options)


def test_done_may_be_mapped():
    data = read(renamed(terminated="done", truncated="cut"), terminated="done")
    np.testing.assert_array_equal(data.terminations, TERMINATED)
