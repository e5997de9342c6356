"""A stranger's ONNX file cannot reach outside itself, draw at random, or run for ever."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_files import OBSERVATIONS, WEIGHTS, linear, model, node, port, save, softmax, tensor

from fle.errors import FLEError, PolicyError, SettingsError
from fle.policies import load_policy, onnx_session, tabulate


def ask(path, observations=OBSERVATIONS, **settings):
    policy = load_policy(path, **settings)
    return tabulate(policy, observations, number_of_actions=2, action_dim=None)


def branch(*nodes):
    return helper.make_graph(list(nodes), "branch", [], [port("out")])


def hidden_in_if(inner):
    """The operator sits two branches deep."""
    deep = branch(node("If", "yes", "out", then_branch=branch(inner), else_branch=branch(inner)))
    outer = node("If", "yes", "logits", then_branch=deep, else_branch=deep)
    return linear("scores", then=[outer], outputs=["logits"], constants=[tensor("yes", True)])


def with_external_tensor():
    proto = linear()
    weights = proto.graph.initializer[0]
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../secret")
    weights.ClearField("raw_data")
    return proto


def with_external_constant():
    """In an attribute, not among the initialisers."""
    secret = tensor("secret", WEIGHTS)
    secret.external_data.add(key="location", value="/etc/passwd")
    constant = node("Constant", "", "secret", value=secret)
    return linear("logits", then=[constant])


def with_function():
    proto = linear()
    proto.functions.append(
        helper.make_function(
            "", "Mine", ["x"], ["y"], [node("Exp", "x", "y")], [helper.make_opsetid("", 17)]
        )
    )
    return proto


def then(operator, inputs="scores", **attributes):
    return linear(
        "scores",
        then=[node(operator, inputs, "logits", **attributes)],
        outputs=["logits"],
        constants=[tensor("yes", True), tensor("ratio", np.float32(0.5))],
        domains={attributes["domain"]} if "domain" in attributes else (),
    )


FOREIGN = node("Identity", "scores", "out", domain="com.microsoft")


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (with_external_tensor(), "tensor 'weights' lies in another file"),
        (with_external_constant(), "tensor 'secret' lies in another file"),
        (then("Gelu", domain="com.microsoft"), "domain 'com.microsoft'"),
        (hidden_in_if(FOREIGN), "domain 'com.microsoft'"),
        (with_function(), "functions of its own, such as 'Mine'"),
        (then("Loop", "yes yes scores", body=branch()), "has a Loop, which may never end"),
        (then("Scan", "scores", body=branch(), num_scan_inputs=1), "has a Scan"),
        (hidden_in_if(node("Loop", "yes yes scores", "out", body=branch())), "has a Loop"),
        (then("RandomNormalLike"), r"draws at random \(RandomNormalLike\)"),
        (then("RandomUniformLike"), "draws at random"),
        (then("RandomNormal", "", shape=[7, 2]), "draws at random"),
        (then("RandomUniform", "", shape=[7, 2]), "draws at random"),
        (then("Multinomial", sample_size=2), "draws at random"),
        (then("Bernoulli"), "draws at random"),
        (then("Dropout", "scores ratio yes"), r"draws at random \(Dropout\)"),
        (hidden_in_if(node("Bernoulli", "scores", "out")), "draws at random"),
    ],
)
def test_what_a_file_may_not_hold(tmp_path, proto, message):
    with pytest.raises(PolicyError, match=message):
        load_policy(save(tmp_path, proto))


def test_batch_normalisation_in_training_mode(tmp_path):
    vector = [tensor(name, np.ones(2, np.float32)) for name in "abcd"]
    nodes = [
        node("MatMul", "obs weights", "scores"),
        node("BatchNormalization", "scores a b c d", "logits m v", training_mode=1),
    ]
    proto = model(nodes, ["logits"], constants=[tensor("weights", WEIGHTS), *vector])
    with pytest.raises(PolicyError, match="BatchNormalization is in training mode"):
        load_policy(save(tmp_path, proto))


def test_branches_and_idle_dropout_are_allowed(tmp_path):
    for proto in (hidden_in_if(node("Identity", "scores", "out")), then("Dropout")):
        expected = softmax(OBSERVATIONS.astype(float) @ WEIGHTS)
        table = ask(save(tmp_path, proto))
        np.testing.assert_allclose(table.probabilities, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 100, b"PK\x03\x04 a zip file", b"<html>not found</html>", b"\x80\x04K\x01."],
)
def test_foreign_files(tmp_path, content):
    with pytest.raises(PolicyError, match=r"not an ONNX file, or a torn one|holds pickles"):
        load_policy(save(tmp_path, content))


def test_files_that_are_not_there_or_too_large(tmp_path, monkeypatch):
    with pytest.raises(PolicyError, match="no such file"):
        load_policy(tmp_path / "absent.onnx")
    with pytest.raises(PolicyError, match="no such file"):
        load_policy(_folder(tmp_path / "folder.onnx"))
    monkeypatch.setattr(onnx_session, "MOST_BYTES", 100)
    with pytest.raises(PolicyError, match="expected an ONNX policy of at most"):
        load_policy(save(tmp_path, linear()))


def _folder(path):
    path.mkdir()
    return path


def slow(size, products):
    """Products of large matrices that do not touch the answer."""
    names = [f"m{i}" for i in range(products + 1)]
    nodes = [
        node("ConstantOfShape", "size", "m0"),
        *(node("MatMul", f"{a} m0", b) for a, b in itertools.pairwise(names)),
        node("ReduceSum", names[-1], "total", keepdims=0),
        node("MatMul", "obs weights", "scores"),
        node("Add", "scores total", "logits"),
    ]
    constants = [tensor("size", np.array([size, size])), tensor("weights", WEIGHTS)]
    return model(nodes, ["logits"], constants=constants)


def test_a_policy_that_takes_too_long_is_stopped(tmp_path):
    # 1000 products of about 0.02 s or more each.
    path = save(tmp_path, slow(700, 1000))
    began = time.monotonic()
    with pytest.raises(PolicyError, match=r"took longer than 0.5 s in total"):
        ask(path, timeout=0.5)
    assert time.monotonic() - began < 4


def test_the_time_is_that_of_all_calls_together(tmp_path):
    policy = load_policy(save(tmp_path, slow(300, 2)), timeout=1.0)

    def call_on_and_on():
        for _ in range(100_000):
            policy.function(OBSERVATIONS)

    with pytest.raises(PolicyError, match="took longer than 1 s"):
        call_on_and_on()


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "10"])
def test_the_time_must_be_a_number_of_seconds(tmp_path, timeout):
    with pytest.raises(SettingsError, match="timeout: expected a positive number"):
        load_policy(save(tmp_path, linear()), timeout=timeout)


# Random files. Whatever comes back is a right number or an FLEError.

UNARY = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Abs": np.abs,
    "Neg": np.negative,
    "Identity": lambda x: x,
}
layers = st.lists(st.tuples(st.sampled_from(sorted(UNARY)), st.integers(1, 5)), max_size=3)


def random_network(shape, seed):
    """The model, and the same in NumPy."""
    generator = np.random.default_rng(seed)
    width, nodes, constants, current = 3, [], [], "obs"
    values = OBSERVATIONS.astype(np.float64)
    for index, (operator, size) in enumerate([*shape, ("Identity", 2)]):
        weights = generator.normal(size=(width, size)).astype(np.float32)
        constants.append(tensor(f"w{index}", weights))
        target = "logits" if index == len(shape) else f"y{index}"
        nodes += [
            node("MatMul", f"{current} w{index}", f"x{index}"),
            node(operator, f"x{index}", target),
        ]
        values, current, width = UNARY[operator](values @ weights), target, size
    return model(nodes, ["logits"], constants=constants), softmax(values)


RANDOM_FILES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@RANDOM_FILES
@given(shape=layers, seed=st.integers(0, 2**32 - 1))
def test_random_networks_give_the_right_numbers(tmp_path, shape, seed):
    proto, expected = random_network(shape, seed)
    table = ask(save(tmp_path, proto))
    np.testing.assert_allclose(table.probabilities, expected, rtol=1e-3, atol=1e-5)


@RANDOM_FILES
@given(
    seed=st.integers(0, 2**32 - 1),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3), st.integers(0, 3)),
        min_size=1,
        max_size=4,
    ),
    cut=st.one_of(st.none(), st.floats(0, 1)),
)
@pytest.mark.filterwarnings("ignore::fle.errors.FLEWarning")
def test_corrupted_files_give_an_error_or_probabilities(tmp_path, seed, changes, cut):
    content = random_network([("Relu", 4)], seed)[0].SerializeToString()
    for place, inserted, removed in changes:
        position = int(place * len(content))
        content = content[:position] + inserted + content[position + removed :]
    if cut is not None:
        content = content[: int(cut * len(content))]
    try:
        table = ask(save(tmp_path, content), timeout=20)
    except FLEError:
        return
    np.testing.assert_allclose(table.probabilities.sum(axis=1), 1)
    assert (table.probabilities >= 0).all()


@RANDOM_FILES
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path, content):
    with pytest.raises(FLEError):
        load_policy(save(tmp_path, content))
