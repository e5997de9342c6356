"""Files that exporters write, read back; each test is skipped where its exporter is missing."""

import importlib.util
import runpy
from pathlib import Path

import numpy as np
import pytest

from fle.policies import Deterministic, load_policy, tabulate

EXAMPLE = runpy.run_path(
    str(Path(__file__).parents[2] / "examples" / "export_onnx.py"), run_name="example"
)
OBSERVATIONS = EXAMPLE["OBSERVATIONS"]


def needs(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed here: {', '.join(missing)}")


def probabilities(path, actions=2, **settings):
    policy = load_policy(path, **settings)
    table = tabulate(policy, OBSERVATIONS, number_of_actions=actions, action_dim=None)
    return table.probabilities


@needs("torch", "onnxscript")
@pytest.mark.filterwarnings("ignore")
def test_a_torch_policy(tmp_path):
    module, expected = EXAMPLE["torch_policy"]()
    EXAMPLE["export_torch"](module, 4, tmp_path / "policy.onnx")
    np.testing.assert_allclose(probabilities(tmp_path / "policy.onnx"), expected, atol=1e-5)


@needs("sklearn", "skl2onnx")
def test_a_scikit_learn_policy(tmp_path):
    classifier, expected = EXAMPLE["sklearn_policy"]()
    EXAMPLE["export_sklearn"](classifier, 4, tmp_path / "policy.onnx")
    np.testing.assert_allclose(probabilities(tmp_path / "policy.onnx"), expected, atol=1e-5)


@needs("sklearn", "skl2onnx")
@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("kind", ["linear", "forest", "bayes"])
def test_classes_are_action_codes(tmp_path, zipmap, kind):
    """Trained on actions 0 and 3 of four: the others have probability 0."""
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    classifier = {
        "linear": LogisticRegression(),
        "forest": RandomForestClassifier(5, max_depth=3, random_state=0),
        "bayes": GaussianNB(),
    }[kind].fit(OBSERVATIONS, 3 * EXAMPLE["ACTIONS"])
    path = tmp_path / "policy.onnx"
    proto = to_onnx(classifier, OBSERVATIONS[:1], options={"zipmap": zipmap})
    path.write_bytes(proto.SerializeToString())
    expected = np.zeros((len(OBSERVATIONS), 4))
    expected[:, [0, 3]] = classifier.predict_proba(OBSERVATIONS)
    np.testing.assert_allclose(probabilities(path, actions=4), expected, atol=1e-3)


@needs("sklearn", "skl2onnx")
def test_a_regression_is_a_deterministic_policy(tmp_path):
    from skl2onnx import to_onnx
    from sklearn.linear_model import LinearRegression

    regression = LinearRegression().fit(OBSERVATIONS, OBSERVATIONS[:, :2] * 2)
    path = tmp_path / "policy.onnx"
    path.write_bytes(to_onnx(regression, OBSERVATIONS[:1]).SerializeToString())
    policy = load_policy(path)
    assert isinstance(policy, Deterministic)
    table = tabulate(policy, OBSERVATIONS, number_of_actions=None, action_dim=2)
    np.testing.assert_allclose(table.actions[:, 0], OBSERVATIONS[:, :2] * 2, atol=1e-5)
