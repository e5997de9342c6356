"""A prepared log is the log that `fle.read` gives, and nothing else is ever opened as one."""

import json
import re
import signal
import socket
import subprocess
import sys
import warnings
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import object_store

import fle
from fle.data.readers import streaming
from fle.data.schema import FACTS, OTHER_ARRAYS, ROW_FIELDS
from fle.errors import DataError, FaultyDataError, FLEError
from fle.manifests import ManifestError, write_manifest

ROWS = 3_000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of about two hundred rows."""
    monkeypatch.setattr(streaming, "PART_BYTES", 2**14)


def columns(*, kind=np.float32, cut=0.0, following=False, seed=0):
    """Episodes of one to eight rows; `cut` of them are truncated."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 9, ROWS // 4)
    number = int(lengths.sum())
    episodes = np.repeat(3 * np.arange(len(lengths)) + 7, lengths)
    last = np.append(episodes[1:] != episodes[:-1], True)
    truncated = last & (generator.random(number) < cut)
    parts = ("observation", "next_observation") if following else ("observation",)
    return {
        "episode": episodes,
        "step": np.concatenate([np.arange(length) for length in lengths]),
        **{
            f"{part}.{n}": generator.normal(size=number).astype(kind)
            for part in parts
            for n in "ab"
        },
        "action": generator.integers(0, 3, number),
        "reward": generator.normal(size=number),
        "terminated": last & ~truncated,
        "truncated": truncated,
    }


def write(folder, table, shards=3):
    """Shards whose ends cut episodes."""
    folder.mkdir(exist_ok=True)
    table = table if isinstance(table, pa.Table) else pa.table(table)
    bounds = np.linspace(0, len(table), shards + 1).astype(int)
    for number, (start, stop) in enumerate(pairwise(bounds)):
        path = folder / f"{number}.parquet"
        pq.write_table(table.slice(start, stop - start), path, row_group_size=700)
    return folder


def quietly(function, *arguments, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **settings)


def require_same(first, second):
    for name in (*ROW_FIELDS, *OTHER_ARRAYS):
        here, there = getattr(first, name), getattr(second, name)
        assert (here is None) == (there is None), name
        if here is not None:
            # Integers take less room on the disk.
            assert here.dtype == there.dtype or here.dtype.kind == there.dtype.kind == "i", name
            np.testing.assert_array_equal(here, there, err_msg=name)
    for name in (name for name in FACTS if name != "prepared"):
        assert getattr(first, name) == getattr(second, name), name


def prepared_as_read(source, out, **mapped):
    """The folder is the log that reading gives, when it is written and when it is opened again."""
    read = quietly(fle.read, source, **mapped)
    prepared = quietly(fle.prepare, source, out, **mapped)
    require_same(read, prepared)
    require_same(read, quietly(fle.open, out))
    return prepared


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("cut", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("following", [False, True])
def test_it_is_what_reading_gives(tmp_path, kind, cut, following):
    source = write(tmp_path / "log", columns(kind=kind, cut=cut, following=following))
    prepared = prepared_as_read(source, tmp_path / "out")
    require_same(prepared, quietly(fle.read, str(tmp_path / "out")))


def test_episodes_that_only_flags_tell(tmp_path):
    table = {k: v for k, v in columns(cut=0.5).items() if k not in ("episode", "step")}
    source = write(tmp_path / "log", table)
    prepared_as_read(source, tmp_path / "out")


def test_probabilities_weights_and_propensities_come_along(tmp_path):
    table, generator = columns(), np.random.default_rng(1)
    number = len(table["action"])
    shares = generator.dirichlet(np.ones(3), number)
    table |= {f"probability.{i}": shares[:, i] for i in range(3)}
    table |= {"w": generator.random(number), "p": generator.uniform(0.1, 1, number)}
    source = write(tmp_path / "log", table)
    prepared_as_read(source, tmp_path / "out", weight="w", propensity="p")


def test_a_type_that_only_later_rows_need(tmp_path):
    table = columns()
    table["observation.a"] = table["observation.a"].astype(np.float64).round()
    table["observation.a"][2_500] = 2.0**24 + 1
    source = write(tmp_path / "log", table)
    prepared_as_read(source, tmp_path / "out")


def test_columns_stay_on_the_disk(tmp_path):
    prepared = quietly(fle.prepare, write(tmp_path / "log", columns()), tmp_path / "out")
    for name in ("observations", "next_observations", "actions", "rewards", "episodes"):
        base = getattr(prepared, name)
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert isinstance(base, np.memmap), name


def spoil(name, row, value):
    table = columns()
    table[name] = table[name].astype(np.result_type(table[name].dtype, type(value)))
    table[name][row] = value
    return table


def with_null(name, row):
    cells = columns()[name].tolist()
    cells[row] = None
    return columns() | {name: pa.array(cells)}


def shuffled():
    table = columns()
    table["step"][[2_400, 2_401]] = table["step"][[2_401, 2_400]]
    return {name: values for name, values in table.items() if name != "episode"}


BAD = {
    "nan": lambda: spoil("reward", 2_345, np.nan),
    "infinite": lambda: spoil("observation.a", 2_345, np.inf),
    "null": lambda: with_null("observation.b", 2_345),
    "flag": lambda: spoil("terminated", 2_345, 2),
    "negative action": lambda: spoil("action", 2_345, -1),
    "large action": lambda: spoil("action", 2_345, 2**40),
    "reward that is text": lambda: columns() | {"reward": ["x"] * len(columns()["reward"])},
    "no reward": lambda: {k: v for k, v in columns().items() if k != "reward"},
    "misspelt": lambda: {
        ("terminatd" if k == "terminated" else k): v for k, v in columns().items()
    },
    "gap": lambda: spoil("step", int(np.flatnonzero(columns()["step"] == 3)[300]), 4),
    "goes on after its end": lambda: spoil(
        "terminated", int(np.flatnonzero(columns()["step"] == 1)[500]) - 1, True
    ),
    "no end anywhere": lambda: {
        k: v for k, v in columns().items() if k not in ("episode", "terminated", "truncated")
    },
    "crosses without a step": lambda: {k: v for k, v in columns().items() if k != "step"},
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_is_refused_in_the_words_of_reading(tmp_path, name):
    source = write(tmp_path / "log", BAD[name]())
    with pytest.raises(DataError) as expected:
        quietly(fle.read, source)
    with pytest.raises(DataError) as found:
        quietly(fle.prepare, source, tmp_path / "out")
    # What is said of all parts together counts their files.
    assert without_files(found.value) == without_files(expected.value)


def without_files(error):
    return (
        re.sub(r" and \d+ more \(rows counted through all of them\)", "", str(error))
        .replace("/1.parquet:", "/0.parquet:")
        .replace("/2.parquet:", "/0.parquet:")
    )


def test_an_episode_that_comes_back_is_refused(tmp_path):
    table = pa.table(columns())
    starts = np.flatnonzero(table["step"].to_numpy() == 0)
    moved = pa.concat_tables([table.slice(starts[100]), table.slice(0, starts[100])])
    again = pa.concat_tables([moved, table.slice(starts[300], starts[301] - starts[300])])
    with pytest.raises(DataError, match="1 episodes come back after other ones"):
        quietly(fle.prepare, write(tmp_path / "log", again), tmp_path / "out")
    # In any order, as long as each comes once; they are numbered as they appear.
    source = write(tmp_path / "once", moved)
    prepared_as_read(source, tmp_path / "twice")


def test_what_only_the_whole_log_tells_is_refused(tmp_path):
    table = columns() | {"observation.a": ["x"] * len(columns()["reward"])}
    with pytest.raises(DataError, match=r"'observation\.a' is text"):
        fle.prepare(write(tmp_path / "log", table), tmp_path / "out")
    (tmp_path / "log.csv").write_text("observation,action,reward\n1,1,1\n")
    with pytest.raises(DataError, match="expected Parquet, got csv"):
        fle.prepare(tmp_path / "log.csv", tmp_path / "other")


def test_labels_that_are_named(tmp_path):
    table = columns()
    table["action"] = np.array(["no", "yes", "wait"])[table["action"]]
    source, labels = write(tmp_path / "log", table), ["wait", "no", "yes", "never"]
    prepared_as_read(source, tmp_path / "out", action_labels=labels)


def test_statistics(tmp_path):
    table = columns(kind=np.float64)
    table["observation.a"] += 1e6
    quietly(fle.prepare, write(tmp_path / "log", table), tmp_path / "out")
    found = json.loads((tmp_path / "out" / "prepared.json").read_text())["statistics"]
    for field, names in (("observations", "ab"), ("rewards", [None])):
        for one, name in zip(found[field], names, strict=True):
            values = table["reward" if name is None else f"observation.{name}"]
            assert (one["low"], one["high"]) == (values.min(), values.max())
            np.testing.assert_allclose(one["mean"], values.mean(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(one["std"], values.std(), rtol=1e-9)


@pytest.fixture
def out(tmp_path):
    quietly(fle.prepare, write(tmp_path / "log", columns()), tmp_path / "out")
    return tmp_path / "out"


def test_a_damaged_block_is_refused(out):
    path = out / "rewards.bin"
    content = bytearray(path.read_bytes())
    content[1_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"rewards\.bin is damaged: the checksum"):
        fle.open(out)
    path.write_bytes(content[:-8])
    with pytest.raises(DataError, match=r"rewards\.bin is damaged: expected"):
        fle.open(out)
    path.unlink()
    with pytest.raises(DataError, match=r"rewards\.bin is missing"):
        fle.open(out)


def test_a_changed_description_is_refused(out):
    path = out / "prepared.json"
    path.write_text(path.read_text().replace('"follows": true', '"follows": false'))
    with pytest.raises(ManifestError, match="not the file that was written"):
        fle.open(out)


def test_a_folder_is_written_once(out):
    with pytest.raises(FLEError, match="holds a finished log"):
        fle.prepare(out.parent / "log", out)
    with pytest.raises(FLEError, match=r"holds '0\.parquet', which no preparation wrote"):
        fle.prepare(out.parent / "log", out.parent / "log")
    with pytest.raises(DataError, match="expected a folder that `fle prepare` wrote"):
        fle.open(out.parent / "log")


KILLED = """
import os, sys, signal, warnings
import fle
from fle.data.readers import preparing, streaming
warnings.simplefilter("ignore")
streaming.PART_BYTES = 2**14
append, parts = preparing._Log.append, []
def append_some(self, part, values):
    append(self, part, values)
    parts.append(part)
    if len(parts) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
preparing._Log.append = append_some
fle.prepare(sys.argv[1], sys.argv[2])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_preparation_is_refused_and_begins_anew(tmp_path):
    source, out = write(tmp_path / "log", columns()), tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(source), str(out)]
    ended = subprocess.run(command, check=False)  # noqa: S603
    assert ended.returncode == -signal.SIGKILL
    assert (out / "observations.bin").stat().st_size > 0
    for opened in (fle.open, fle.read):
        with pytest.raises(DataError, match="the preparation was not finished"):
            opened(out)
    prepared_as_read(source, out)


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    """Of each kind once, wherever it is; the rows are those of the first part that has it."""
    table = columns()
    number = len(table["reward"])
    table["reward"][[5, number - 5]] = np.nan
    table["action"][number - 3] = -1
    source = write(tmp_path / "log", table)
    with pytest.raises(FaultyDataError) as told:
        quietly(fle.prepare, source, tmp_path / "out")
    reward, action = told.value.found
    assert "'reward'" in reward
    assert "row 5" in reward
    assert "'action'" in action
    assert str(number - 3) in action
    with pytest.raises(DataError, match="the preparation was not finished"):
        fle.open(tmp_path / "out")


def test_shards_of_an_object_store(tmp_path, monkeypatch):
    source = write(tmp_path / "log", columns())
    with object_store(source, "logs", monkeypatch) as where:
        expected = quietly(fle.read, source)
        for named in ("logs/*.parquet", "logs"):
            require_same(expected, quietly(fle.read, f"s3://bucket/{named}{where}"))
        require_same(
            expected, quietly(fle.prepare, f"s3://bucket/logs/*.parquet{where}", tmp_path / "out")
        )
        files = [f"s3://bucket/logs/{number}.parquet{where}" for number in range(3)]
        require_same(expected, quietly(fle.read, files))
        with pytest.raises(DataError, match=r"s3://bucket/none/\*\.parquet: .*check the address"):
            fle.read(f"s3://bucket/none/*.parquet{where}")


def test_a_store_that_does_not_answer_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("fle.files.ANSWER_SECONDS", 0.5)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"?scheme=http&endpoint_override=127.0.0.1:{silent.getsockname()[1]}&region=x"
        for call in (fle.read, lambda address: fle.prepare(address, tmp_path / "out")):
            with pytest.raises(DataError, match=r"s3://b/logs: .*no answer within 0.5 seconds"):
                call(f"s3://b/logs{where}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain["arrays"]["rewards"].update(dtype="text"), "no form that is written"),
        (lambda plain: plain["arrays"]["rewards"].update(shape=[]), "no form that is written"),
        (lambda plain: plain["arrays"]["rewards"].update(checksums=[]), "checksum"),
        (lambda plain: plain["facts"].update(warnings=3), "not those of a log"),
        (lambda plain: plain["facts"].update(warnings=[[]]), "not those of a log"),
        (lambda plain: plain["arrays"].pop("observations"), "not those of a log"),
    ],
)
def test_damaged_facts_are_refused(tmp_path, change, message):
    out = tmp_path / "out"
    quietly(fle.prepare, write(tmp_path / "log", columns()), out)
    plain = json.loads((out / "prepared.json").read_text())
    change(plain)
    (out / "prepared.json").write_text(json.dumps(plain))
    write_manifest(out, ["prepared.json"])
    with pytest.raises(DataError, match=message):
        fle.open(out)
