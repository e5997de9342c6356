"""The model of `examples/custom_model.py`, which `docs/adding_a_model.md` shows."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).parents[2] / "examples" / "custom_model.py"


def load_example():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("custom_model", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
