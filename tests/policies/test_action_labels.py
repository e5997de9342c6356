"""Classes of a policy and labels of the data are matched by name, wherever they come from."""

import json

import numpy as np
import pandas as pd
import pytest
from onnx_files import save

import fle
from fle.errors import PolicyError
from fle.policies import Probabilities, load_policy, tabulated

sklearn = pytest.importorskip("sklearn")
ROWS = 120
LABELS = ("A", "B", "none")


def frame(actions=None):
    """Two features; what was done depends on the first."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((ROWS, 2))
    drugs = np.array(["none", "A", "B"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    return pd.DataFrame(
        {
            "observation.x": x[:, 0],
            "observation.y": x[:, 1],
            "action": drugs if actions is None else actions,
            "reward": np.ones(ROWS),
            "terminated": np.arange(ROWS) % 4 == 3,
        }
    )


def features(data):
    return pd.DataFrame(np.asarray(data.observations, np.float64), columns=["x", "y"])


def forest(inputs, classes):
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=2, random_state=0).fit(inputs, classes)


def expected(classifier, data):
    """By hand: the column of a label is where `classes_` has its name."""
    answer = classifier.predict_proba(pd.DataFrame(data.next_observations, columns=["x", "y"]))
    columns = [list(classifier.classes_).index(label) for label in LABELS]
    return answer[:, columns]


def test_a_classifier_as_it_is():
    data = fle.read(frame())
    assert data.action_labels == LABELS
    classifier = forest(features(data), frame()["action"])
    table = tabulated(classifier, data).following
    np.testing.assert_allclose(table.probabilities, expected(classifier, data))
    # Each action is taken where it was logged, so the right order is the one that agrees.
    taken = np.asarray(LABELS)[table.probabilities.argmax(axis=1)]
    x = data.next_observations[:, 0]
    assert (taken[x > 0.6] == "B").all()
    assert (taken[x < -0.6] == "none").all()


def test_the_label_trap():
    """The classifier's classes are in another order than the codes of the data."""
    data = fle.read(frame(), action_labels=["none", "A", "B"])
    classifier = forest(features(data), frame()["action"])
    assert tuple(classifier.classes_) != data.action_labels
    by_position = classifier.predict_proba(features(data))
    table = tabulated(classifier, data).following.probabilities
    right = expected(classifier, data)[:, [2, 0, 1]]
    np.testing.assert_allclose(table, right)
    assert np.abs(right[:-1] - by_position[1:]).max() > 0.5
    # Its method alone knows as much,
    method = tabulated(forest(np.asarray(features(data)), frame()["action"]).predict_proba, data)
    np.testing.assert_allclose(method.following.probabilities, right)
    # and numbers of its own are refused: they say nothing about these actions.
    encoded = forest(features(data), np.unique(frame()["action"], return_inverse=True)[1])
    with pytest.raises(PolicyError, match=r"classes are 0, 1, 2, but the actions of the data are"):
        tabulated(encoded, data)


def test_classes_that_are_codes():
    codes = np.unique(frame()["action"], return_inverse=True)[1]
    data = fle.read(frame(codes))
    # Code 1 was never seen by this one.
    classifier = forest(features(data)[codes != 1], codes[codes != 1])
    table = tabulated(classifier, data).following.probabilities
    assert table.shape == (len(data), 3)
    assert (table[:, 1] == 0).all()
    texts = forest(features(data), np.asarray(LABELS)[codes])
    with pytest.raises(PolicyError, match=r"classes are 'A', 'B', 'none', but .* are 0 to 2"):
        tabulated(texts, data)


def test_an_estimator_of_other_columns_is_refused():
    data = fle.read(frame())
    swapped = forest(features(data)[["y", "x"]], frame()["action"])
    with pytest.raises(fle.FLEError, match="the order is another"):
        tabulated(swapped, data)


def test_an_estimator_without_probabilities():
    from sklearn.svm import LinearSVC

    data = fle.read(frame())
    classifier = LinearSVC(random_state=0).fit(features(data), frame()["action"])
    table = tabulated(classifier, data).following
    taken = np.asarray(LABELS)[table.actions[:, 0]]
    inputs = pd.DataFrame(data.next_observations, columns=["x", "y"])
    assert (taken == classifier.predict(inputs)).all()


def test_a_function_may_answer_with_labels():
    data = fle.read(frame())
    policy = tabulated(lambda x: np.where(x[:, 0] > 0, "B", "none"), data)
    up = data.next_observations[:, 0] > 0
    np.testing.assert_array_equal(policy.following.actions[:, 0], np.where(up, 1, 2))
    with pytest.raises(PolicyError, match="got 'C'"):
        tabulated(lambda x: np.full(len(x), "C"), data)
    named = Probabilities(lambda x: np.tile([0.7, 0.3], (len(x), 1)), classes=("none", "A"))
    np.testing.assert_allclose(tabulated(named, data).initial.probabilities[0], [0.3, 0, 0.7])


@pytest.mark.parametrize(
    ("options", "memory"),
    [({}, None), ({"zipmap": False}, None), ({}, 2**30)],
    ids=["zipmap", "tensor", "other process"],
)
def test_string_classes_of_an_onnx_classifier(tmp_path, options, memory):
    skl2onnx = pytest.importorskip("skl2onnx")
    data = fle.read(frame(), action_labels=["none", "A", "B"])
    inputs = np.asarray(features(data), np.float32)
    classifier = forest(inputs, frame()["action"])
    chosen = {id(classifier): options} if options else None
    model = skl2onnx.to_onnx(classifier, inputs[:1], options=chosen)
    path = save(tmp_path, model)
    policy = load_policy(path, memory=memory)
    assert policy.classes == LABELS
    right = classifier.predict_proba(data.next_observations.astype(np.float32))[:, [2, 0, 1]]
    np.testing.assert_allclose(tabulated(policy, data).following.probabilities, right, atol=1e-6)
    name = "label" if options else "output_label"
    by_label = load_policy(path, output=f"action={name}", memory=memory)
    table = tabulated(by_label, data).following.probabilities
    np.testing.assert_array_equal(table, np.eye(3)[right.argmax(axis=1)])


def test_a_network_may_say_its_labels(tmp_path):
    data = fle.read(frame())
    model = _network()
    entry = model.metadata_props.add()
    entry.key, entry.value = "action_labels", json.dumps(["none", "B", "A"])
    policy = load_policy(save(tmp_path, model))
    plain = load_policy(save(tmp_path, _network()))
    ours, theirs = (tabulated(p, data).following.probabilities for p in (policy, plain))
    np.testing.assert_allclose(ours, theirs[:, [2, 1, 0]])


def _network():
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["obs", "w"], ["logits"])],
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
