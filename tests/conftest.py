"""How XLA compiles in the tests, which files come first, and where second opinions are asked.

Most of the tests' time is compilation, of fits that are trained once. Light optimisation and the
older code generator compile in less than half the time; what they make is half as slow again, and
the same up to rounding. The demo and the benchmarks compile as users do, and so do the tests where
XLA_FLAGS is given, be it empty: `XLA_FLAGS= make test`.
"""

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# A process takes whole files. Were a long one the last, the other core would wait for it.
LONG = ("contract", "fuzz", "paper", "report", "test_adding_a_model.py", "test_docs.py", "trust")
SHORT = ("data", "policies", "returns", "tasks")

os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
)

# Tests leave no compiled code in the user's cache.
os.environ.setdefault("FLE_COMPILATION_CACHE", "off")

MARK = "second_opinions"


def pytest_collection_modifyitems(items):
    """Long files first, short ones last, else in their order."""

    def place(item):
        part = item.path.relative_to(TESTS).parts[0]
        return (part in SHORT) - (part in LONG)

    items.sort(key=place)


class Opinions:
    """Whether evaluations ask other estimators, as they do for users."""

    asked = False


@pytest.fixture(autouse=True, scope="session")
def second_opinions_when_asked():
    """Fits in tests are short, and other estimators would be right to disagree with them.

    They are left out here, and nowhere else, whatever fixture makes the evaluation.
    """
    from fle.fitting import planning

    usual = planning.with_second_opinions

    def with_second_opinions(planned, evaluation):
        return usual(planned, evaluation) if Opinions.asked else evaluation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "with_second_opinions", with_second_opinions)
        yield


@pytest.fixture(autouse=True)
def second_opinions_where_marked(request, monkeypatch):
    """A test that is marked has them."""
    monkeypatch.setattr(Opinions, "asked", request.node.get_closest_marker(MARK) is not None)
