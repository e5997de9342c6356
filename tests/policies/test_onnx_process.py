"""A stranger's ONNX file in a process of its own: the same answers, and no harm to ours."""

import os
import time

import numpy as np
import pytest
from onnx_files import OBSERVATIONS, WEIGHTS, linear, model, node, save, tensor

from fle.errors import PolicyError, SettingsError
from fle.policies import load_policy, onnx_policy

MEMORY = 2 * 2**30


def normal():
    nodes = [
        node("MatMul", "obs weights", "mean"),
        node("Exp", "mean", "std"),
    ]
    return model(nodes, ["mean", "std"], constants=[tensor("weights", WEIGHTS)])


@pytest.mark.parametrize("proto", [linear("logits"), linear("action"), normal()])
def test_the_answers_are_the_same_to_the_last_bit(tmp_path, proto):
    path = save(tmp_path, proto)
    here, apart = load_policy(path), load_policy(path, memory=MEMORY)
    assert type(here) is type(apart)
    # One process serves every batch.
    for batch in (OBSERVATIONS, OBSERVATIONS[:1], np.tile(OBSERVATIONS, (3000, 1))):
        ours, theirs = here.function(batch), apart.function(batch)
        assert np.array_equal(ours, theirs)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype


def test_warnings_and_errors_come_back_as_what_they_are(tmp_path):
    fixed = save(tmp_path, linear(batch=1), "fixed.onnx")
    with pytest.warns(match="the batch size is fixed at 1"):
        policy = load_policy(fixed, memory=MEMORY)
    with pytest.raises(PolicyError, match="expects observations of shape"):
        policy.function(np.zeros((2, 9), np.float32))
    with pytest.raises(PolicyError, match="not an ONNX file"):
        load_policy(save(tmp_path, b"PK"), memory=MEMORY)
    with pytest.raises(SettingsError, match="'logit' is not one of"):
        load_policy(save(tmp_path, linear()), output="logit=logits", memory=MEMORY)
    for memory in (1000, "4G", 1e9):
        with pytest.raises(SettingsError, match="memory: expected at least"):
            load_policy(fixed, memory=memory)


def bomb(entries):
    """A few bytes that make a tensor of as many numbers."""
    nodes = [
        node("ConstantOfShape", "size", "many"),
        node("ReduceSum", "many", "total", keepdims=0),
        node("MatMul", "obs weights", "scores"),
        node("Add", "scores total", "logits"),
    ]
    constants = [tensor("size", np.array([entries])), tensor("weights", WEIGHTS)]
    return model(nodes, ["logits"], constants=constants)


def test_memory_ends_where_it_was_said(tmp_path):
    policy = load_policy(save(tmp_path, bomb(2**30)), memory=MEMORY)
    began = time.monotonic()
    with pytest.raises(PolicyError):
        policy.function(OBSERVATIONS)
    assert time.monotonic() - began < 20


def test_nothing_of_the_current_folder_is_imported(tmp_path, monkeypatch):
    for name in ("onnx", "numpy", "fle", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    path = save(tmp_path, linear())
    monkeypatch.chdir(tmp_path)
    assert load_policy(path, memory=MEMORY).function(OBSERVATIONS).shape == (7, 2)


def test_little_is_told_of_our_environment(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    assert "secret" not in str(onnx_policy._environment())


def test_the_process_ends_with_the_policy(tmp_path):
    apart = onnx_policy.OnnxProcess(save(tmp_path, linear()), None, None, 60.0, MEMORY)
    number = apart._process.pid
    os.kill(number, 0)
    del apart
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_process_that_dies_is_an_error(tmp_path):
    apart = onnx_policy.OnnxProcess(save(tmp_path, linear()), None, None, 60.0, MEMORY)
    apart._process.kill()
    with pytest.raises(PolicyError, match=r"ended without an answer \(code -9\)"):
        apart.policy().function(OBSERVATIONS)


def test_what_comes_back_is_not_believed():
    """A process that was taken over can send anything; only arrays of numbers are taken."""
    import io

    for header in (b'{"arrays": [["O", 1]]}', b'{"arrays": [["<f8", 99999999999]]}', b"[]"):
        stream = io.BytesIO(len(header).to_bytes(8, "little") + header)
        with pytest.raises((ValueError, TypeError)):
            onnx_policy._receive(stream, MEMORY)
    with pytest.raises(ValueError, match="a header of"):
        onnx_policy._receive(io.BytesIO(b"\xff" * 100), MEMORY)
