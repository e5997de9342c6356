"""What a command line can say of a policy."""

import sys
import time

import numpy as np
import pytest
from onnx_files import OBSERVATIONS, linear, save

from fle.errors import PolicyError
from fle.policies import Behaviour, Probabilities, load_policy, tabulate


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current folder that leaves a trace when it is imported."""
    (tmp_path / "house_policy.py").write_text(
        "from pathlib import Path\nimport numpy as np\nfrom fle.policies import Probabilities\n"
        "Path('trace').touch()\n"
        "def act(observations):\n    return np.zeros(len(observations), int)\n"
        "class Agents:\n    careful = Probabilities(lambda x: np.full((len(x), 2), 0.5))\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("house_policy", None)


def test_code_is_not_run_unless_allowed(module):
    with pytest.raises(PolicyError, match="set `allow_code`"):
        load_policy("house_policy:act")
    assert not (module / "trace").exists()


def test_code_is_run_when_allowed(module):
    path = list(sys.path)
    policy = load_policy("house_policy:act", allow_code=True)
    table = tabulate(policy, OBSERVATIONS, number_of_actions=2, action_dim=None)
    np.testing.assert_array_equal(table.actions, 0)
    assert isinstance(load_policy("house_policy:Agents.careful", allow_code=True), Probabilities)
    assert sys.path == path


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("house_policy:absent", "cannot be imported: AttributeError"),
        ("no_such_module:act", "cannot be imported: ModuleNotFoundError"),
        (
            "house_policy:number",
            "expected a function of observations or a fitted .* estimator, got int",
        ),
    ],
)
def test_code_that_cannot_be_used(module, source, message):
    with pytest.raises(PolicyError, match=message):
        load_policy(source, allow_code=True)


def test_an_estimator_is_taken_by_its_name(module):
    (module / "house_estimator.py").write_text(
        "from sklearn.dummy import DummyClassifier\n"
        "pipe = DummyClassifier().fit([[0.0, 0.0], [1.0, 1.0]], [0, 1])\n"
    )
    policy = load_policy("house_estimator:pipe", allow_code=True)
    assert isinstance(policy, Probabilities)
    assert policy.classes == (0, 1)


def test_code_that_takes_too_long_or_ends_the_program(module):
    (module / "slow_policy.py").write_text(
        "import sys, time\n"
        "def act(x, generator):\n    time.sleep(30)\n"
        "def leave(x):\n    sys.exit(5)\n"
    )
    policy = load_policy("slow_policy:act", allow_code=True, timeout=0.1)
    began = time.monotonic()
    with pytest.raises(PolicyError, match=r"slow_policy:act: .* longer than 0.1 s .*`timeout`"):
        tabulate(policy, OBSERVATIONS, number_of_actions=2, action_dim=None)
    assert time.monotonic() - began < 20
    policy = load_policy("slow_policy:leave", allow_code=True)
    with pytest.raises(PolicyError, match="tried to end the program"):
        tabulate(policy, OBSERVATIONS, number_of_actions=2, action_dim=None)


def test_code_that_fails_on_import(module):
    (module / "broken_policy.py").write_text("raise OSError('no disk')")
    with pytest.raises(PolicyError, match="cannot be imported: OSError: no disk"):
        load_policy("broken_policy:act", allow_code=True)


def test_the_behaviour_policy_by_name():
    assert load_policy("behaviour") == Behaviour()
    assert load_policy("behavior") == Behaviour()


@pytest.mark.parametrize("source", ["policy", "folder/policy.pt", "C:\\policies\\mine.pt", ""])
def test_words_that_are_no_policy(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match="no such policy; expected an ONNX file, behaviour"):
        load_policy(source)


def test_a_file_of_another_kind_is_read_as_onnx_and_refused(tmp_path):
    path = tmp_path / "policy.pb"
    path.write_bytes(b"no graph at all")
    with pytest.raises(PolicyError, match="not an ONNX file"):
        load_policy(path)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    path = save(tmp_path, linear())
    for name in ("onnx", "onnxruntime"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(PolicyError, match=r"pip install onnx onnxruntime"):
                load_policy(path)
