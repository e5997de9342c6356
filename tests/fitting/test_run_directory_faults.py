"""Every way in which writing a run directory, or reading one, can fail."""

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from quick_runs import copied, evaluate, sealed

from fle import files
from fle.errors import FLEError
from fle.fitting import Evaluation, load
from fle.fitting.checkpoints import read_tensors, tensor_bytes


class Refuse:
    """A progress that nobody should start."""

    def start(self, stages, title):
        raise AssertionError("training started")


@pytest.mark.parametrize("place", ["file/run", "file"])
def test_not_writable_is_said_before_training(place, tmp_path):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(FLEError, match=r"run directory .*file.* cannot be made.*another `out`"):
        evaluate(out=tmp_path / place, progress=Refuse())


def test_no_permission_is_said_before_training(tmp_path, monkeypatch):
    def refused(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files, "open", refused, raising=False)
    with pytest.raises(FLEError, match=r"cannot be written: Permission denied.*another `out`"):
        evaluate(out=tmp_path, progress=Refuse())


@pytest.mark.parametrize("full_at", range(1, 9))
def test_full_disk_keeps_what_was_saved(full_at, tmp_path, monkeypatch):
    """Files in order: run.json, three checkpoints, model, samples, result and manifest."""
    monkeypatch.setattr("fle.fitting.checkpoints.SECONDS_BETWEEN", 0.0)
    fsync, count = os.fsync, 0

    def full(descriptor):
        nonlocal count
        # Two a file: its own and that of its directory.
        count += 1
        if count == 2 * full_at - 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FLEError, match=r"disk is full.*intact.*repeat the call"):
        evaluate(out=tmp_path)
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("*"))
    stages = range(1, 1 + min(full_at - 2, 3))
    assert names == [f"stage-{stage:06d}.safetensors" for stage in stages][-2:]
    assert not list(tmp_path.rglob("*.tmp"))
    assert np.array_equal(evaluate(out=tmp_path).returns.samples, evaluate().returns.samples)


def test_two_writers_are_refused(tmp_path):
    with (
        files.sole_writer(tmp_path),
        pytest.raises(FLEError, match=rf"Process {os.getpid()} is writing to .*only one"),
    ):
        evaluate(out=tmp_path, progress=Refuse())
    evaluate(out=tmp_path)


def test_a_writer_in_another_process_is_refused_until_it_is_killed(tmp_path):
    code = f"""
import fcntl, os, sys, time
file = open({str(tmp_path / ".lock")!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid())); file.flush()
print("locked", flush=True); time.sleep(60)
"""
    pytest.importorskip("fcntl")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:  # noqa: S603
        process.stdout.readline()
        with pytest.raises(FLEError, match=f"Process {process.pid} is writing"):
            evaluate(out=tmp_path, progress=Refuse())
        process.kill()
        process.wait()
    assert isinstance(evaluate(out=tmp_path), Evaluation)


def test_no_run_directory(tmp_path):
    with pytest.raises(FLEError, match="is not a run directory: it is not there"):
        load(tmp_path / "nowhere")
    with pytest.raises(FLEError, match=r"it has no run.json"):
        load(tmp_path)


def test_names_of_another_number_are_refused(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    facts = json.loads((run / "result.json").read_text())
    facts["return_names"] = ["one", "two"]
    (run / "result.json").write_text(json.dumps(facts))
    with pytest.raises(FLEError, match=r"damaged: expected 1 return_names, got 2"):
        load(sealed(run))


def test_an_unfinished_run_cannot_be_loaded(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    (run / "result.json").unlink()
    (run / "manifest.json").unlink()
    with pytest.raises(FLEError, match=r"not finished. Repeat the call of fle.evaluate with out="):
        load(run)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("result.json", b'{"format": 1, "fits"', "result.json is cut or damaged"),
        ("result.json", b"[]", "expected a JSON object, got list"),
        ("result.json", b'{"format": 99}', "expected format 1, found 99"),
        ("result.json", b'{"format": 1}', "result.json is damaged: it lacks run, problem"),
        ("run.json", b"\xff", "run.json is cut or damaged"),
        ("run.json", b'{"format": 1}', "it lacks data, policy"),
        ("model.safetensors", b"PK\x03\x04", r"model.safetensors is cut or damaged.*sha256"),
        ("model.safetensors", b"\x80\x04pickle", r"model.safetensors is cut or damaged"),
    ],
)
def test_foreign_files_are_refused(finished, tmp_path, name, content, message):
    run = copied(finished, tmp_path / "run")
    (run / name).write_bytes(content)
    with pytest.raises(FLEError, match=message):
        load(sealed(run))


def test_facts_that_are_missing_are_named(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    facts = json.loads((run / "result.json").read_text())
    for key in set(facts) - {"format"}:
        (run / "result.json").write_text(
            json.dumps({name: value for name, value in facts.items() if name != key})
        )
        with pytest.raises(FLEError, match=f"result.json is damaged: it lacks {key}"):
            load(sealed(run))


def test_any_flipped_bit_is_found(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7), "c": np.eye(0)}
    content = tensor_bytes(arrays, {"fact": [1.5, "é"]})
    path = tmp_path / "file"
    path.write_bytes(content)
    read = read_tensors(path)
    assert read.facts == {"fact": [1.5, "é"]}
    assert all(np.array_equal(read.arrays[name], value) for name, value in arrays.items())
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        # Between header and numbers there are spaces that say nothing.
        if content[position : position + 1] == b" " and position > content.rindex(b"}"):
            continue
        with pytest.raises(FLEError, match=r"sha256"):
            read_tensors(path)
