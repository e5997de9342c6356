"""Export a PyTorch policy and a scikit-learn policy to ONNX, and read them back.

    python examples/export_onnx.py torch policy.onnx       needs torch, onnx, onnxscript
    python examples/export_onnx.py sklearn policy.onnx     needs scikit-learn, skl2onnx

A file says what it answers by the name of its output: `probs`, `logits`, `action`, or `mean` with
`std` or `log_std`. Export what is random as probabilities or as mean and std, never as a draw.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

OBSERVATIONS = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
ACTIONS = (OBSERVATIONS @ [1.0, -1.0, 0.5, 0.0] > 0).astype(np.int64)


def export_torch(module: Any, width: int, path: Path) -> None:
    """A module from observations to logits, in one file, for any number of observations."""
    import torch

    module.eval()
    torch.onnx.export(
        module,
        (torch.zeros(2, width),),
        str(path),
        input_names=["obs"],
        output_names=["logits"],
        dynamic_shapes=({0: "batch"},),
        dynamo=True,
        external_data=False,
    )


def export_sklearn(classifier: Any, width: int, path: Path) -> None:
    """A classifier of actions; its `probabilities` become the policy."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType

    model = to_onnx(
        classifier,
        initial_types=[("obs", FloatTensorType([None, width]))],
        options={"zipmap": False},
    )
    path.write_bytes(model.SerializeToString())


def torch_policy() -> tuple[Any, np.ndarray]:
    """A small network, and the probabilities it gives."""
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 2)
    ).eval()
    with torch.no_grad():
        return module, module(torch.as_tensor(OBSERVATIONS)).softmax(-1).numpy()


def sklearn_policy() -> tuple[Any, np.ndarray]:
    """A logistic regression of logged actions, and the probabilities it gives."""
    from sklearn.linear_model import LogisticRegression

    classifier = LogisticRegression().fit(OBSERVATIONS, ACTIONS)
    return classifier, classifier.predict_proba(OBSERVATIONS)


def main(kind: str, path: Path) -> None:
    policy, expected = torch_policy() if kind == "torch" else sklearn_policy()
    (export_torch if kind == "torch" else export_sklearn)(policy, 4, path)
    print(f"{path}: {path.stat().st_size} bytes")
    try:
        from fle.policies import load_policy, tabulate
    except ImportError:
        print("fle is not installed here, so the file was not read back")
        return
    table = tabulate(load_policy(path), OBSERVATIONS, number_of_actions=2, action_dim=None)
    difference = np.abs(table.probabilities - expected).max()
    print(f"read back: the probabilities differ by at most {difference:.1e}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("torch", "sklearn"):
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
