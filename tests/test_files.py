"""A file is either whole or not there, however its writer ends."""

import os

import pytest

from fle import files
from fle.errors import FLEError
from fle.files import write_atomically, written_whole


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
