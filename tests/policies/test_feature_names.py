"""Names of columns travel with the data, and are held against those of policies and questions."""

import json

import numpy as np
import pandas as pd
import pytest
from onnx_files import WEIGHTS, linear, save

import fle
from fle.errors import DataError, PolicyError
from fle.policies import Probabilities, load_policy, tabulated

NAMES = ("height", "speed", "age")
ROWS = 60


def frame(names=NAMES, **changes):
    generator = np.random.default_rng(0)
    columns = {f"observation.{name}": generator.standard_normal(ROWS) for name in names}
    columns |= {"action": np.arange(ROWS) % 2, "reward": np.ones(ROWS)}
    return pd.DataFrame({**columns, "terminated": np.ones(ROWS, bool), **changes})


def even(observations):
    return np.full((len(observations), 2), 0.5)


def test_names_come_from_the_columns():
    data = fle.read(frame())
    assert data.observation_names == NAMES
    assert data.action_names == ()
    lists = fle.read(
        {
            "observation": np.ones((4, 2)),
            "action": np.eye(4)[:, :2],
            "reward": [1] * 4,
            "terminated": [1] * 4,
        }
    )
    assert lists.observation_names == ("observation[0]", "observation[1]")
    assert lists.action_names == ("action[0]", "action[1]")
    assert data.subset([0, 1]).observation_names == NAMES


def test_names_survive_the_cache_and_change_no_fingerprint(tmp_path):
    data = fle.read(frame())
    fle.data.write_cache(data, tmp_path / "data.arrow")
    assert fle.read(tmp_path / "data.arrow").observation_names == NAMES
    renamed = fle.read(frame(("a", "b", "c")))
    assert renamed.fingerprint == data.fingerprint


def test_names_in_python():
    given = {
        "observations": np.zeros((4, 2)),
        "actions": [0] * 4,
        "rewards": np.ones(4),
        "terminations": np.ones(4, bool),
    }
    assert fle.Dataset(**given, observation_names=["x", "y"]).observation_names == ("x", "y")
    for wrong in (["x"], ["x", "x"], ["x", "y", "z"]):
        with pytest.raises(DataError, match="observation_names: expected 2 distinct names"):
            fle.Dataset(**given, observation_names=wrong)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("speed", "height", "age"), "the order is another"),
        (("height", "speed"), "nothing knows 'age'"),
        (("height", "speed", "weight"), "'weight' are missing and nothing knows 'age'"),
    ],
)
def test_a_policy_with_other_names_is_refused(names, message):
    data = fle.read(frame())
    with pytest.raises(DataError, match=f"the policy's observations: .*{message}"):
        tabulated(Probabilities(even, names), data)
    tabulated(Probabilities(even, NAMES), data)
    tabulated(Probabilities(even), data)


def test_an_estimator_knows_its_names():
    from sklearn.linear_model import LogisticRegression

    data = fle.read(frame())
    table = pd.DataFrame(data.observations, columns=list(NAMES))
    right = LogisticRegression().fit(table, data.actions)
    turned = LogisticRegression().fit(table[list(NAMES[::-1])], data.actions)
    with pytest.raises(DataError, match="the order is another"):
        tabulated(turned.predict_proba, data)

    def quietly(observations):
        return right.predict_proba(pd.DataFrame(observations, columns=list(NAMES)))

    tabulated(Probabilities(quietly, tuple(right.feature_names_in_)), data)


def test_an_estimator_of_text_is_told_how_to_be_asked():
    table = frame(("height",))
    table["observation.ward"] = np.resize(["A", "B"], len(table))
    data = fle.read(table)
    with pytest.raises(
        PolicyError, match=r"such as 'ward', got them coded, such as 'ward=A'.*columns:new_"
    ):
        tabulated(Probabilities(even, ("ward", "height")), data)


@pytest.mark.parametrize("memory", [None, 2**31])
def test_an_onnx_file_says_its_names(tmp_path, memory):
    assert len(WEIGHTS) == len(NAMES)
    proto = linear()
    entry = proto.metadata_props.add()
    entry.key, entry.value = "observation_names", json.dumps(NAMES[::-1])
    policy = load_policy(save(tmp_path, proto), memory=memory)
    with pytest.raises(DataError, match="the order is another"):
        tabulated(policy, fle.read(frame()))


@pytest.mark.parametrize("text", ["[", "{}", "[1]", '"x"', "[" * 9999])
def test_names_in_a_file_that_are_none(tmp_path, text):
    proto = linear()
    entry = proto.metadata_props.add()
    entry.key, entry.value = "observation_names", text
    with pytest.raises(PolicyError, match="observation_names"):
        load_policy(save(tmp_path, proto))
