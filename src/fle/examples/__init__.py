"""Small logged data sets with a target policy and the truth, for trying things out.

The script examples/make_bundled_data.py of the repository made them.
"""

import difflib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fle.errors import SettingsError

FOLDER = Path(__file__).parent
NAMES = ("cartpole", "reservoir")


@dataclass(frozen=True, eq=False)
class Example:
    """Logged data, a policy to judge by it, and what that policy really earns.

    data_path: the log, a Parquet file for `fle.read`.
    policy_path: the target policy, an ONNX file for `fle.load_policy`.
    behaviour_path: the policy that made the log, likewise.
    truth: returns (n, d) of the target policy, from simulation.
    gamma, horizon: the problem, as `fle.evaluate` takes it; what does not apply is None.
    """

    name: str
    description: str
    data_path: Path
    policy_path: Path
    behaviour_path: Path
    truth: NDArray[np.float64]
    gamma: float | None
    horizon: int | None


def load(name: str) -> Example:
    """One of the examples in `NAMES`: "cartpole" (one reward) or "reservoir" (two)."""
    if name not in NAMES:
        near = difflib.get_close_matches(str(name), NAMES, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingsError(f"example: expected one of {', '.join(NAMES)}; got {name!r}.{hint}")
    folder = FOLDER / name
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    with np.load(folder / "truth.npz", allow_pickle=False) as arrays:
        truth = arrays["returns"].astype(np.float64)
    return Example(
        name=name,
        description=facts["description"],
        data_path=folder / "log.parquet",
        policy_path=folder / "target.onnx",
        behaviour_path=folder / "behaviour.onnx",
        truth=truth,
        gamma=facts["gamma"],
        horizon=facts["horizon"],
    )


__all__ = ["NAMES", "Example", "load"]
