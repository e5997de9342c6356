"""Networks from files of weights: the formula by hand, and files that are no such network."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import fle
from fle.policies import from_safetensors

SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])


def agent(path, **changes):
    """Layers 0 and 10, whose numbers are in another order than their names; and a critic."""
    tensors = {
        "actor.10.weight": SWAP,
        "actor.10.bias": np.array([0.5, 0.0]),
        "actor.2.weight": 2 * np.eye(2),
        "actor.2.bias": np.zeros(2),
        "critic.0.weight": np.ones((1, 2)),
        "actor_logstd": np.array([[0.0, np.log(2.0)]]),
        **changes,
    }
    save_file({name: np.asarray(value, np.float32) for name, value in tensors.items()}, path)
    return path


def test_logits_are_those_of_the_formula(tmp_path):
    policy = from_safetensors(agent(tmp_path / "a"), kind="logits", layers="actor.")
    asked = policy.function(np.array([[0.0, 1.0]]))
    # At (0, 1): hidden tanh(0, 2); swapped, and half is added to the first.
    logits = np.array([np.tanh(2.0) + 0.5, 0.0])
    np.testing.assert_allclose(asked[0], np.exp(logits) / np.exp(logits).sum(), rtol=1e-6)


def test_parts_follow_each_other(tmp_path):
    """As RLlib's encoder and head do."""
    path = agent(tmp_path / "a")
    whole = from_safetensors(path, kind="logits", layers="actor.")
    parts = from_safetensors(path, kind="logits", layers=("actor.2", "actor.10"))
    observations = np.array([[0.3, -0.2]])
    np.testing.assert_array_equal(parts.function(observations), whole.function(observations))


def test_relu_and_single_actions(tmp_path):
    path = agent(tmp_path / "a")
    policy = from_safetensors(path, kind="action", layers="actor.", activation="relu")
    # At (2, -1): hidden (4, 0); swapped, and half is added to the first.
    np.testing.assert_allclose(policy.function(np.array([[2.0, -1.0]])), [[0.5, 4.0]])


def test_normal_actions(tmp_path):
    path = agent(tmp_path / "a")
    apart = from_safetensors(path, kind="mean_log_std", layers="actor.", log_std="actor_logstd")
    mean, std = apart.function(np.array([[0.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_allclose(mean, [[np.tanh(2.0) + 0.5, 0.0], [0.5, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(std, [[1.0, 2.0], [1.0, 2.0]], rtol=1e-6)
    together = from_safetensors(path, kind="mean_log_std", layers="actor.")
    mean, std = together.function(np.array([[0.0, 0.0]]))
    np.testing.assert_allclose((mean, std), ([[0.5]], [[1.0]]), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ({}, {"layers": "policy."}, "no layer begins with 'policy.'"),
        ({}, {"layers": ""}, "say by `layers` which network"),
        ({"actor.10.weight": np.ones((2, 3))}, {}, r"expected \(outputs, 2\)"),
        ({"actor.2.bias": [np.nan, 0]}, {}, "not finite"),
        ({}, {"activation": "gelu"}, "tanh"),
        ({}, {"kind": "probs"}, "kind: expected"),
        ({}, {"kind": "mean_log_std", "log_std": "actor_log_std"}, "did you mean actor_logstd"),
    ],
)
def test_what_is_no_such_network_is_refused(changes, settings, said, tmp_path):
    path = agent(tmp_path / "a", **changes)
    with pytest.raises(fle.FLEError, match=said):
        from_safetensors(path, **{"kind": "logits", "layers": "actor.", **settings})


def test_a_pickle_is_not_opened(tmp_path):
    (tmp_path / "agent.pt").write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(fle.FLEError, match="cannot be read as safetensors"):
        from_safetensors(tmp_path / "agent.pt", kind="logits")


def test_observations_of_another_size_are_refused(tmp_path):
    policy = from_safetensors(agent(tmp_path / "a"), kind="logits", layers="actor.")
    with pytest.raises(fle.FLEError, match="expected observations of 2 numbers, got 3"):
        policy.function(np.zeros((1, 3)))


def test_a_layer_may_be_called_by_its_whole_name(tmp_path):
    """As the last one of Stable-Baselines3, `action_net`, which has no number."""
    weights = {"net.0.weight": np.eye(2), "action_net.weight": np.array([[1.0, 0.0], [0.0, -1.0]])}
    save_file(weights, tmp_path / "a.safetensors")
    policy = from_safetensors(
        tmp_path / "a.safetensors", kind="action", layers=("net.", "action_net.")
    )
    np.testing.assert_allclose(
        policy.function(np.array([[0.5, 1.0]])), np.tanh([[0.5, 1.0]]) * [1, -1]
    )


def test_files_that_are_no_policies_say_what_to_do(tmp_path):
    save_file({"net.0.weight": np.eye(2)}, tmp_path / "a.safetensors")
    with pytest.raises(fle.FLEError, match="from_safetensors"):
        fle.load_policy(tmp_path / "a.safetensors")
    for name, head in {
        "m.zip": b"PK\x03\x04",
        "m.d3": b"\x80\x04",
        "m.onnx": b"PK\x03\x04",
    }.items():
        (tmp_path / name).write_bytes(head + bytes(20))
        with pytest.raises(fle.FLEError, match=r"pickles.*expected ONNX.*from_stable_baselines3"):
            fle.load_policy(tmp_path / name)
