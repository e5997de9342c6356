"""How XLA compiles in the tests, which files come first, where opinions and intervals are asked.

Much of the tests' time is compilation, of programs that run once. They are compiled without
optimisation, and by the older code generator, in a quarter of the time, and those that take long
with a little; what they compute is the same up to rounding. The demo and the benchmarks compile as
users do, and so do the tests where XLA_FLAGS is given, be it empty: `XLA_FLAGS= make test`.

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
LONG = (
    *("contract", "fuzz", "paper", "report", "trust"),
    *("test_adding_a_model.py", "test_docs.py", "test_metamorphic.py", "test_resume_after_kill.py"),
)
SHORT = ("data", "policies", "returns", "tasks")

FLAGS = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",
        # One piece of code a program: the other core has work of its own.
        "--xla_cpu_parallel_codegen_split_count=1",
    )
)
LIGHT = os.environ.setdefault("XLA_FLAGS", FLAGS) == FLAGS
# Uses of rows in a stage, steps times batch, from which on optimisation costs less than it saves:
# without any, a step of a small network takes 2 ms instead of 0.4, its compilation 1 s and not 3.
MANY_USES = 20_000
SOME = {"xla_backend_optimization_level": 1}
# What the tests compile otherwise than the processes they start: module, name, function.
ELSEWHERE: list = []

# The processes share the cores already. Threads of linear algebra that wait for one burn its time:
# 92 seconds of the processor instead of 18 in `baselines/test_second_opinions.py`.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

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
        parts = item.path.relative_to(TESTS).parts
        return (parts[0] in SHORT) - (parts[0] in LONG or parts[-1] in LONG)

    items.sort(key=place)


@cache
def stage_training(*, long):
    """`train_stage`, compiled with some optimisation where a stage is long."""
    import equinox as eqx

    from fle.fitting.optimiser import compiler_options, train_stage

    options = compiler_options(shared=False) | (SOME if long else {})
    return eqx.filter_jit(train_stage, compiler_options=options)


@pytest.fixture(autouse=True, scope="session")
def what_takes_long_is_optimised():
    """Stages with many uses of rows, and what draws and measures; not where XLA_FLAGS is given."""
    if not LIGHT:
        yield
        return
    import equinox as eqx

    from fle.fitting import loop, measurement, targets

    def training(batch_size):
        def train(update, state, lines, schedule, *others):
            function = stage_training(long=schedule.batches.size > MANY_USES)
            return function(update, state, lines, schedule, *others)

        return train

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "stage_training", training)
        for module, name in ((measurement, "mean_loss"), (targets, "_draw")):
            usual = getattr(module, name)
            ELSEWHERE.append((module, name, usual))
            patch.setattr(module, name, eqx.filter_jit(usual.__wrapped__, compiler_options=SOME))
        yield


@pytest.fixture(scope="module")
def compiled_as_elsewhere(what_takes_long_is_optimised):
    """Draws and measures as other processes compile them, to the last bit."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, usual in ELSEWHERE:
            patch.setattr(module, name, usual)
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
    from fle.fitting import plans

    usual = plans.with_second_opinions

    def with_second_opinions(planned, evaluation):
        return usual(planned, evaluation) if Opinions.asked else evaluation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "with_second_opinions", with_second_opinions)
        yield


@pytest.fixture(autouse=True, scope="session")
def intervals_when_asked():
    """Commands of tests have none unless they say so: users have them by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fle.cli.inputs.USUAL_LEVEL", None)
        yield


@pytest.fixture(autouse=True)
def second_opinions_where_marked(request, monkeypatch):
    """A test that is marked has them."""
    monkeypatch.setattr(Opinions, "asked", request.node.get_closest_marker(MARK) is not None)
