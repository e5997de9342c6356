"""A file is either whole or not there, however its writer ends."""

import pytest

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
