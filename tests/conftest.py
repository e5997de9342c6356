"""How XLA compiles in the tests, and which files come first.

Most of the tests' time is compilation, of fits that are trained once. Light optimisation and the
older code generator compile in less than half the time; what they make is half as slow again, and
the same up to rounding. The demo and the benchmarks compile as users do, and so do the tests where
XLA_FLAGS is given, be it empty: `XLA_FLAGS= make test`.
"""

import os
from pathlib import Path

TESTS = Path(__file__).parent
# A process takes whole files. Were a long one the last, the other core would wait for it.
LONG = ("contract", "fuzz", "paper", "report", "test_adding_a_model.py", "test_docs.py", "trust")
SHORT = ("data", "policies", "returns", "tasks")

os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
)


def pytest_collection_modifyitems(items):
    """Long files first, short ones last, else in their order."""

    def place(item):
        part = item.path.relative_to(TESTS).parts[0]
        return (part in SHORT) - (part in LONG)

    items.sort(key=place)
