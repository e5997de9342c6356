"""ONNX policies give the numbers that NumPy gives."""

import numpy as np
import pytest
from onnx import helper
from onnx_files import FLOAT, INT64, OBSERVATIONS, WEIGHTS, linear, model, node, port, save, tensor
from onnx_files import softmax as expected_softmax

from fle.errors import FLEWarning, PolicyError, SettingsError
from fle.policies import Deterministic, Normal, Probabilities, load_policy, tabulate

SCORES = OBSERVATIONS.astype(np.float64) @ WEIGHTS


def discrete(policy, observations=OBSERVATIONS, actions=2, **settings):
    return tabulate(policy, observations, number_of_actions=actions, action_dim=None, **settings)


def continuous(policy, observations=OBSERVATIONS, width=2, **settings):
    return tabulate(policy, observations, number_of_actions=None, action_dim=width, **settings)


@pytest.mark.parametrize("batch_size", [3, 100])
def test_logits_and_probabilities(tmp_path, batch_size):
    logits = load_policy(save(tmp_path, linear("logits")))
    probs = load_policy(
        save(
            tmp_path, linear("scores", then=[node("Softmax", "scores", "probs")], outputs=["probs"])
        )
    )
    for policy in (logits, probs):
        assert isinstance(policy, Probabilities)
        table = discrete(policy, batch_size=batch_size)
        np.testing.assert_allclose(table.probabilities, expected_softmax(SCORES), rtol=1e-5)


def test_large_and_masked_logits(tmp_path):
    bias = tensor("bias", np.array([1000, -np.inf], np.float32))
    proto = linear(
        "scores", then=[node("Add", "scores bias", "logits")], outputs=["logits"], constants=[bias]
    )
    table = discrete(load_policy(save(tmp_path, proto)))
    np.testing.assert_array_equal(table.probabilities, np.tile([1.0, 0.0], (7, 1)))


def test_more_rows_than_one_run_takes(tmp_path):
    observations = np.random.default_rng(2).normal(size=(10_001, 3)).astype(np.float32)
    table = discrete(load_policy(save(tmp_path, linear())), observations)
    np.testing.assert_allclose(
        table.probabilities, expected_softmax(observations.astype(float) @ WEIGHTS), atol=1e-5
    )


def test_mean_and_std_are_drawn_with_our_generator(tmp_path):
    nodes = [
        node("MatMul", "obs weights", "mean"),
        node("Abs", "mean", "size"),
        node("Add", "size one", "std"),
    ]
    constants = [tensor("weights", WEIGHTS), tensor("one", np.float32(1))]
    policy = load_policy(save(tmp_path, model(nodes, ["mean", "std"], constants=constants)))
    assert isinstance(policy, Normal)
    table = continuous(policy, draws=4000, seed=3)
    assert table.actions.shape == (7, 4000, 2)
    # 28 figures, five standard errors each: false alarms below 2e-5.
    std = np.abs(SCORES) + 1
    assert (np.abs(table.actions.mean(axis=1) - SCORES) < 5 * std / np.sqrt(4000)).all()
    assert (np.abs(table.actions.std(axis=1) / std - 1) < 5 / np.sqrt(8000)).all()
    again = continuous(policy, draws=4000, seed=3)
    np.testing.assert_array_equal(table.actions, again.actions)


@pytest.mark.parametrize("shape", [(2,), (1, 2)])
def test_a_log_std_that_is_the_same_everywhere(tmp_path, shape):
    constants = [tensor("weights", WEIGHTS), tensor("l", np.full(shape, -20, np.float32))]
    nodes = [node("MatMul", "obs weights", "mean"), node("Identity", "l", "log_std")]
    outputs = ["mean", port("log_std", shape)]
    policy = load_policy(save(tmp_path, model(nodes, outputs, constants=constants)))
    # As many rows as columns must not confuse rows with columns.
    for rows in (1, 2, 7):
        table = continuous(policy, OBSERVATIONS[:rows], draws=2)
        np.testing.assert_allclose(table.actions[:, 0], SCORES[:rows], atol=1e-6)


@pytest.mark.parametrize("output", [{"logits": "output_0"}, "logits=output_0", "logits"])
def test_names_can_be_mapped(tmp_path, output):
    path = save(tmp_path, linear("output_0"))
    table = discrete(load_policy(path, input="obs", output=output))
    np.testing.assert_allclose(table.probabilities, expected_softmax(SCORES), rtol=1e-5)


def test_two_names_can_be_mapped(tmp_path):
    proto = linear("a", then=[node("Exp", "a", "b")], outputs=["a", "b"])
    policy = load_policy(save(tmp_path, proto), output="mean=a, std=b")
    assert isinstance(policy, Normal)
    mean, std = policy.function(OBSERVATIONS)
    np.testing.assert_allclose(mean, SCORES, rtol=1e-5)
    np.testing.assert_allclose(std, np.exp(SCORES), rtol=1e-5)


def test_what_is_random_comes_before_what_is_greedy(tmp_path):
    greedy = node("ArgMax", "logits", "action", axis=1, keepdims=0)
    proto = linear(then=[greedy], outputs=[port("action", ("n",), INT64), "logits"])
    assert isinstance(load_policy(save(tmp_path, proto)), Probabilities)
    policy = load_policy(save(tmp_path, proto), output="action")
    assert isinstance(policy, Deterministic)
    np.testing.assert_array_equal(discrete(policy).actions[:, 0], SCORES.argmax(axis=1))


@pytest.mark.parametrize("keepdims", [0, 1])
def test_integer_actions_with_and_without_a_column(tmp_path, keepdims):
    greedy = node("ArgMax", "scores", "output_0", axis=1, keepdims=keepdims)
    shape = ("n", 1) if keepdims else ("n",)
    proto = linear("scores", then=[greedy], outputs=[port("output_0", shape, INT64)])
    table = discrete(load_policy(save(tmp_path, proto)))
    np.testing.assert_array_equal(table.actions[:, 0], SCORES.argmax(axis=1))


def test_a_batch_fixed_at_one_is_looped_over(tmp_path):
    proto = linear("output_0", outputs=[port("output_0", (1, 2))], inputs=[port("input_0", (1, 3))])
    proto.graph.node[0].input[0] = "input_0"
    with pytest.warns(FLEWarning, match="batch size is fixed at 1"):
        policy = load_policy(save(tmp_path, proto))
    np.testing.assert_allclose(continuous(policy).actions[:, 0], SCORES, rtol=1e-5)


def test_a_batch_fixed_at_another_size_is_filled_up(tmp_path):
    proto = linear("action", outputs=[port("action", (4, 2))], batch=4)
    with pytest.warns(FLEWarning, match="fixed at 4"):
        policy = load_policy(save(tmp_path, proto))
    np.testing.assert_allclose(continuous(policy).actions[:, 0], SCORES, rtol=1e-5)


def test_float64_models(tmp_path):
    proto = model(
        [node("MatMul", "obs weights", "action")],
        [port("action", dtype=11)],
        inputs=[port("obs", ("n", 3), 11)],
        constants=[tensor("weights", WEIGHTS.astype(np.float64))],
    )
    table = continuous(load_policy(save(tmp_path, proto)), OBSERVATIONS.astype(float))
    np.testing.assert_allclose(table.actions[:, 0], SCORES, rtol=1e-12)


def test_discrete_states_are_looked_up(tmp_path):
    table = np.array([[0.1, 0.9], [0.6, 0.4], [1.0, 0.0]], np.float32)
    proto = model(
        [node("Gather", "table obs", "probs", axis=0)],
        ["probs"],
        inputs=[port("obs", ("n",), INT64)],
        constants=[tensor("table", table)],
    )
    policy = load_policy(save(tmp_path, proto))
    states = np.array([2, 0, 1, 1])
    np.testing.assert_allclose(discrete(policy, states).probabilities, table[states], rtol=1e-6)
    with pytest.raises(PolicyError, match=r"takes integers \(int64\), but .* float32"):
        discrete(policy)
    with pytest.raises(PolicyError, match="failed on observations"):
        discrete(policy, np.array([5]))


def test_images_that_the_data_flattened_get_their_shape_back(tmp_path):
    proto = model(
        [node("Flatten", "obs", "flat"), node("MatMul", "flat weights", "logits")],
        ["logits"],
        inputs=[port("obs", ("n", 1, 3, 1))],
        constants=[tensor("weights", WEIGHTS)],
    )
    table = discrete(load_policy(save(tmp_path, proto)))
    np.testing.assert_allclose(table.probabilities, expected_softmax(SCORES), rtol=1e-5)


def test_class_labels_say_which_action_a_column_is(tmp_path):
    # Columns are for actions 0 and 2 of three.
    scores = linear("scores", then=[node("Softmax", "scores", "p")]).graph
    label = node("ZipMap", "p", "probabilities", domain="ai.onnx.ml", classlabels_int64s=[0, 2])
    output = helper.make_value_info(
        "probabilities",
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, []))
        ),
    )
    proto = model(
        [*scores.node, label], [output], constants=scores.initializer, domains=["ai.onnx.ml"]
    )
    table = discrete(load_policy(save(tmp_path, proto)), actions=3)
    np.testing.assert_allclose(table.probabilities[:, [0, 2]], expected_softmax(SCORES), rtol=1e-5)
    assert (table.probabilities[:, 1] == 0).all()


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (OBSERVATIONS[:, :2], r"expects observations of shape \[batch, 3\], got width 2"),
        (np.arange(7), r"\[batch, 3\], got width 1"),
        (np.full((2, 3), 1e300), "row 0 does not fit in float32"),
    ],
)
def test_observations_that_do_not_fit(tmp_path, observations, message):
    with pytest.raises(PolicyError, match=message):
        discrete(load_policy(save(tmp_path, linear())), observations)


def test_answers_that_cannot_be_used(tmp_path):
    def refused(proto, message, ask=discrete, **settings):
        with pytest.raises(PolicyError, match=message):
            ask(load_policy(save(tmp_path, proto), **settings))

    refused(linear("probs"), "expected a number from 0 to 1|sums to")
    refused(linear(weights=np.ones((3, 4), np.float32)), r"expected shape \(n, 2\)")
    refused(linear(weights=np.full((3, 2), np.nan, np.float32)), "row 0, action 0 is nan")
    refused(linear("action"), r"discrete actions: expected integers.*output=\"logits=NAME\"")
    refused(linear("action"), r"width 1, got \(7, 2\)", lambda p: continuous(p, width=1))
    refused(linear(), "the actions are continuous", continuous)
    zero = linear("mean", then=[node("Sub", "mean mean", "std")], outputs=["mean", "std"])
    refused(zero, "std: row 0, column 0 is 0.0; expected a positive", continuous)
    refused(zero, "2 discrete actions; expected probabilities")
    total = node("ReduceSum", "scores", "logits", keepdims=1)
    refused(
        linear("scores", then=[total], outputs=[port("logits", (1, 1))]),
        r"shape \(1, 1\) for 7 observations; expected 7 rows",
    )
    across = node("Softmax", "scores", "logits", axis=0)
    refused(linear("scores", then=[across], outputs=["logits"]), "another answer alone than in a")


def test_outputs_that_cannot_be_told_apart(tmp_path):
    proto = linear("a", then=[node("Exp", "a", "b")], outputs=["a", "b"])
    path = save(tmp_path, proto)
    for output, error, message in (
        (None, PolicyError, 'its outputs are a, b; expected .*output="logits=NAME"'),
        ("logits=c", PolicyError, "no output is called 'c'; it has a, b"),
        ("logit=a", SettingsError, "did you mean 'logits'"),
        ("mean=a", SettingsError, "mean does not make a policy"),
        ("mean=a,mean=b", SettingsError, "given twice"),
        ({"std": "a"}, SettingsError, "does not make a policy"),
    ):
        with pytest.raises(error, match=message):
            load_policy(path, output=output)


def test_inputs_that_cannot_be_chosen(tmp_path):
    with pytest.raises(PolicyError, match="no input is called 'x'; it has obs"):
        load_policy(save(tmp_path, linear()), input="x")
    two = [port("obs", ("n", 2)), port("memory", ("n", 2))]
    proto = model([node("Add", "obs memory", "logits")], ["logits"], inputs=two)
    with pytest.raises(PolicyError, match=r"has 2 inputs \(obs, memory\)"):
        load_policy(save(tmp_path, proto))
    names = [port("obs", ("n", 3), 8)]
    proto = model([node("Identity", "obs", "action")], [port("action", ("n", 3), 8)], inputs=names)
    with pytest.raises(PolicyError, match=r"input 'obs' is tensor\(string\)"):
        load_policy(save(tmp_path, proto))
