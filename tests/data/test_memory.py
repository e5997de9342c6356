"""What would not fit in memory is refused before it is allocated, by an estimate that holds."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fle
from fle.cli.commands import COMMANDS, MEMORY
from fle.cli.entry import parse
from fle.data import passes
from fle.errors import FLEError
from fle.policies import tabulated

ROWS = 300_000
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def columns(rows, width=8):
    """Every value twice or more, so that a file holds next to nothing."""
    last = np.arange(rows) % 10 == 9
    observations = {f"observation.{i}": np.zeros(rows) for i in range(width)}
    return {
        **observations,
        "action": np.zeros(rows, int),
        "reward": np.zeros(rows),
        "terminated": last,
    }


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "log.parquet"
    pq.write_table(pa.table(columns(ROWS)), path)
    assert path.stat().st_size < 2**20
    return path


def little(monkeypatch, left=2**20):
    """A process that may grow by so many bytes."""
    monkeypatch.setattr(passes, "_size_of_process", lambda: 0)
    return fle.memory_ceiling(left)


def npz(path):
    np.savez_compressed(path, **{"observations": np.zeros((ROWS, 2)), "rewards": np.zeros(ROWS)})


def hdf5(path):
    with h5py.File(path, "w") as file:
        for name, values in (("observations", np.zeros((ROWS, 2))), ("rewards", np.zeros(ROWS))):
            file.create_dataset(name, data=values, compression="gzip")
        file["actions"] = np.zeros(ROWS, np.int8)


def csv(path):
    path.write_text("observation,action,reward\n" + "0,0,0\n" * ROWS)


@pytest.mark.parametrize(("suffix", "write"), [("npz", npz), ("h5", hdf5), ("csv", csv)])
def test_a_file_is_refused_before_it_is_read(tmp_path, monkeypatch, suffix, write):
    path = tmp_path / f"log.{suffix}"
    write(path)
    with (
        little(monkeypatch),
        pytest.raises(FLEError, match=r"would take about .* GiB of memory.*rows would fit"),
    ):
        fle.read(path)


def test_a_table_is_refused_with_what_would_fit(parquet, monkeypatch):
    with little(monkeypatch, 8 * 2**20), pytest.raises(FLEError, match="would fit") as refusal:
        fle.read(parquet)
    words = str(refusal.value).replace(",", "").split()
    fitting = int(words[words.index("about", 8) + 1])
    assert ROWS // 20 < fitting < ROWS // 5
    assert f"{parquet} would take about" in str(refusal.value)


def test_lists_that_are_nothing_in_a_file_are_refused(tmp_path, monkeypatch):
    """Ten rows of a million zeros each: a few kilobytes, and 80 MB."""
    lists = pa.ListArray.from_arrays(np.arange(11, dtype=np.int32) * 10**6, np.zeros(10**7))
    table = {"observation": lists, "action": np.arange(10) % 2, "reward": np.arange(10.0)}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(table | {"terminated": np.arange(10) % 2 == 1}), path)
    assert path.stat().st_size < 2**14
    with little(monkeypatch, 2**26), pytest.raises(FLEError, match="would take about"):
        fle.read(path)
    with little(monkeypatch, 2**26), pytest.raises(FLEError, match=r"Preparing .* would take"):
        fle.prepare(path, tmp_path / "out")
    assert not (tmp_path / "out" / "prepared.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="counts as Linux does")
def test_a_column_takes_little_beside_its_numbers(tmp_path):
    """Two thousand columns of ten rows, which a buffer each would make 130 MB."""
    wide = pa.FixedSizeListArray.from_arrays(np.arange(20_000.0), 2_000)
    table = {"observation": wide, "action": np.arange(10) % 2, "reward": np.arange(10.0)}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(table | {"terminated": np.arange(10) % 2 == 1}), path)
    tracemalloc.start()
    try:
        fle.prepare(path, tmp_path / "out")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**26


def test_a_policy_is_refused_before_it_is_asked(monkeypatch):
    data = fle.Dataset(
        observations=np.zeros((1000, 1)),
        actions=np.zeros(1000, int),
        rewards=np.arange(1000.0),
        terminations=np.ones(1000, bool),
        number_of_actions=100_000,
    )
    with little(monkeypatch, 2**30), pytest.raises(FLEError, match=r"100000 a row.*4.47 GiB"):
        tabulated(pytest.fail, data)


def test_a_fit_is_refused_before_it_is_begun(monkeypatch):
    data = fle.Dataset(
        observations=np.zeros((60, 1)),
        actions=np.zeros(60, int),
        rewards=np.arange(60.0),
        terminations=np.ones(60, bool),
        number_of_actions=2,
    )
    cost = fle.plan(data, [1.0, 0.0], horizon=1).cost
    assert cost.memory > 0
    assert "GiB of memory" in cost.in_words()
    with little(monkeypatch), pytest.raises(FLEError, match="The fit would take about"):
        fle.compare(data, {"one": [1.0, 0.0]}, horizon=1)


def test_every_command_has_a_ceiling():
    without = {command.name for command in COMMANDS if MEMORY not in command.options}
    # It prints a script of words that are there.
    assert without == {"completion"}
    assert parse(["reproduce", "1d", "--memory", "2M"]).memory == 2**21


def test_the_ceiling_ends_where_it_should(monkeypatch):
    monkeypatch.setattr(passes, "_left_on_machine", lambda: None)
    with fle.memory_ceiling(1), pytest.raises(FLEError, match="ceiling"):
        passes.require_memory(2, "this", 1)
    passes.require_memory(1e30, "this", 1)
    monkeypatch.setattr(passes, "_left_on_machine", lambda: 100)
    with pytest.raises(FLEError, match="on this machine"):
        passes.require_memory(101, "this", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="counts as Linux does")
@pytest.mark.parametrize(
    ("module", "call", "rows"),
    [("reading", "fle.read(path)", ROWS), ("preparing", "fle.prepare(path, out)", 10 * ROWS)],
    ids=["read", "prepare"],
)
def test_reading_stays_below_its_estimate(tmp_path, module, call, rows):
    """A process of its own: what it grows by while it reads, against what was estimated."""
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns(rows)), path)
    code = f"""
import warnings
import fle, pyarrow.parquet, pyarrow.dataset
from fle.data.readers import {module}
warnings.simplefilter("ignore")
path, out = {str(path)!r}, {str(tmp_path / "out")!r}
sizes = []
{module}.require_memory = lambda needed, *_: sizes.append(needed)
def most():
    # Of this program alone; getrusage counts the one that started it too.
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
before = most()
data = {call}
print(most() - before, sizes[0])
"""
    answer = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    grown, estimated = map(float, answer.stdout.split())
    # An estimate that is far too large would refuse what fits.
    assert estimated / 10 < grown < estimated


@pytest.mark.skipif(sys.platform != "linux", reason="counts as Linux does")
def test_an_evaluation_stays_below_its_estimates(tmp_path):
    """`benchmarks/many_rows.py` with fewer rows, beside which compiled programs weigh more."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import many_rows
    finally:
        sys.path.remove(str(BENCHMARKS))
    found = many_rows.run(ROWS, tmp_path)
    assert found["peak"] < found["estimated"]
    # What JAX and its programs take, at most, and the multiple that five million rows are held to.
    assert found["peak"] < 300 * 2**20 + many_rows.MOST_MEMORY * found["bytes_of_arrays"]
