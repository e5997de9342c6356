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

MARK = "second_opinions"


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
