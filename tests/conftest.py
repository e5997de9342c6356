"""How XLA compiles in the tests, which files come first, and where second opinions are asked.

Most of the tests' time is compilation, of fits that are trained once. Light optimisation and the
older code generator compile in less than half the time; what they make is half as slow again, and
the same up to rounding. The demo and the benchmarks compile as users do, and so do the tests where
XLA_FLAGS is given, be it empty: `XLA_FLAGS= make test`.

What one process compiles, the others find on the disk: the two that share the files, and all that
tests start. The folder lives as long as the tests run.
"""

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# A process takes whole files. Were a long one the last, the other core would wait for it.
LONG = ("contract", "fuzz", "paper", "report", "test_adding_a_model.py", "test_docs.py", "trust")
SHORT = ("data", "policies", "returns", "tasks")

FLAGS = "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
LIGHT = os.environ.setdefault("XLA_FLAGS", FLAGS) == FLAGS
# Uses of rows in a stage, steps times batch: up to here what is compiled without any optimisation
# costs less. A step of a small network takes 2 ms instead of 0.4, its compilation 1 s and not 3.
FEW_USES = 20_000

KEPT = "JAX_COMPILATION_CACHE_DIR"
# The first process makes the folder, and takes it away; all others find it in their environment.
OWN_FOLDER = None if KEPT in os.environ else tempfile.mkdtemp(prefix="fle-compiled-")
if OWN_FOLDER is not None:
    os.environ[KEPT] = OWN_FOLDER
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# Tests leave no compiled code in the user's cache.
os.environ.setdefault("FLE_COMPILATION_CACHE", "off")

MARK = "second_opinions"


def pytest_unconfigure():
    if OWN_FOLDER is not None:
        shutil.rmtree(OWN_FOLDER, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Long files first, short ones last, else in their order."""

    def place(item):
        part = item.path.relative_to(TESTS).parts[0]
        return (part in SHORT) - (part in LONG)

    items.sort(key=place)


@cache
def quick_training():
    """`train_stage` compiled in a third of the time, to steps that take five times as long."""
    import equinox as eqx

    from fle.fitting.optimiser import train_stage

    options = {
        "xla_cpu_multi_thread_eigen": False,
        "xla_disable_hlo_passes": "cpu-parallel-task-assigner",
        "xla_backend_optimization_level": 0,
    }
    return eqx.filter_jit(train_stage, compiler_options=options)


@pytest.fixture(autouse=True, scope="session")
def short_stages_are_compiled_quickly():
    """As most tests train for a moment; not where XLA_FLAGS is given."""
    if not LIGHT:
        yield
        return
    from fle.fitting import loop

    usual = loop.stage_training

    def stage_training(batch_size):
        def train(update, state, lines, schedule, *others):
            quick = schedule.batches.size <= FEW_USES
            function = quick_training() if quick else usual(batch_size)
            return function(update, state, lines, schedule, *others)

        return train

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "stage_training", stage_training)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk():
    """Not even a killed process loses what it wrote, and no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


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
