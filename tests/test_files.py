"""A file is either whole or not there, however its writer ends."""

import os
import shutil

import pytest

import fle
from fle import files
from fle.errors import FLEError
from fle.files import _copy, without_secrets, write_atomically, written_whole


def test_what_is_written_in_pieces_arrives_whole(tmp_path):
    path = tmp_path / "file"
    with written_whole(path, 6) as file:
        file.write(b"one")
        assert not path.exists()
        file.write(b"two")
    assert path.read_bytes() == b"onetwo"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_writer_leaves_the_old_file_and_nothing_else(tmp_path, interruption):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def write_and_fail():
        with written_whole(path, 3) as file:
            file.write(b"new")
            raise interruption

    with pytest.raises(interruption):
        write_and_fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_size(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FLEError, match=r"disk is full: .*file needs 1,234 bytes"):
        write_atomically(tmp_path / "file", b"x" * 1234)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("target", ["file", "nothing"])
def test_a_lock_is_not_taken_through_a_link(target, tmp_path):
    mine = tmp_path / "mine"
    if target == "file":
        mine.write_text("my own words")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").symlink_to(mine)
    with pytest.raises(FLEError, match="is a symbolic link"), files.sole_writer(run):
        pass
    assert not mine.exists() if target == "nothing" else mine.read_text() == "my own words"


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_file_is_not_written_through_a_link(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("my own words")
    (tmp_path / f".result.json.{os.getpid()}.tmp").symlink_to(mine)
    with pytest.raises(FLEError):
        files.write_json(tmp_path / "result.json", {})
    # A link in place of the file itself is replaced, and what it led to stays.
    (tmp_path / "run.json").symlink_to(mine)
    files.write_json(tmp_path / "run.json", {"a": 1})
    assert mine.read_text() == "my own words"
    assert files.read_json(tmp_path / "run.json") == {"a": 1}


def test_only_our_own_leftovers_are_removed(tmp_path):
    ours = [".run.json.123.tmp", ".result.json.4.tmp"]
    others = [".mine.tmp", ".mine.123.tmp", ".run.json.tmp", "run.json.123.tmp", ".run.json.x.tmp"]
    for name in [*ours, *others]:
        (tmp_path / name).write_text("")
    files.remove_leftovers(tmp_path, r"(run|result)\.json")
    assert {path.name for path in tmp_path.iterdir()} == set(others)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://key:secret@bucket/run", "s3://bucket/run"),
        ("s3://bucket/run?access_key=a&secret_key=b", "s3://bucket/run"),
        ("s3://bucket/a@b/*.parquet?x=y@z", "s3://bucket/a@b/*.parquet"),
        ("logs/part-?.parquet", "logs/part-?.parquet"),
        ("C:/logs/a@b.csv", "C:/logs/a@b.csv"),
    ],
)
def test_addresses_are_shown_without_their_keys(address, shown):
    assert without_secrets(address) == shown


def test_errors_do_not_say_keys():
    for read in (fle.load, fle.read):
        with pytest.raises(FLEError, match="cannot be read") as error:
            read("nowhere://key:secret@bucket/run?secret_key=secret")
        assert "secret" not in str(error.value)


def test_of_another_file_system_only_what_a_run_holds_is_copied(tmp_path, monkeypatch):
    fs = pytest.importorskip("pyarrow.fs")
    there, here = tmp_path / "there", tmp_path / "here"
    for name in ("manifest.json", "checkpoints/stage-1.safetensors", ".bashrc", "a/b/c", "o d d"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(b"12345")
    here.mkdir()
    everything = fs.FileSelector(str(there), recursive=True)
    _copy(fs.LocalFileSystem(), str(there), everything, here)
    found = sorted(path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file())
    assert found == ["checkpoints/stage-1.safetensors", "manifest.json"]
    assert (here / "manifest.json").read_bytes() == b"12345"
    usage = shutil.disk_usage(here)._replace(free=9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="10 bytes, and 9 are free"):
        _copy(fs.LocalFileSystem(), str(there), everything, here)
