"""How XLA compiles in the tests: most of their time is compilation, of fits that are trained once.

Light optimisation and the older code generator compile in less than half the time; what they make
is half as slow again, and the same up to rounding. The demo and the benchmarks compile as users do,
and so do the tests where XLA_FLAGS is given, be it empty: `XLA_FLAGS= make test`.
"""

import os

os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
)


import pytest


@pytest.fixture(autouse=True)
def no_second_opinions(request, monkeypatch):
    """Fits in tests are short, and other estimators would be right to disagree with them.

    They are left out here, and nowhere else; a test that is marked `second_opinions` has them.
    """
    if request.node.get_closest_marker("second_opinions") is None:
        monkeypatch.setattr(
            "fle.fitting.planning.with_second_opinions", lambda planned, evaluation: evaluation
        )
