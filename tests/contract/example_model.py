"""The model of `examples/laplace.py`, which `docs/adding_a_model.md` shows, and its problem."""

import importlib
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example():
    """The problem as a module, which has the model too."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module("custom_model")
