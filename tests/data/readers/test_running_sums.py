"""Checksums that are taken while a file is written are those of the file."""

import zlib

import numpy as np
import pytest

from fle.data.readers import streaming
from fle.data.readers.streaming import GrowingArray, RunningSums


@pytest.mark.parametrize("block", [64, 1_000, 2**20])
def test_pieces_anywhere_in_a_file(block):
    generator = np.random.default_rng(0)
    content = bytearray(5_003)
    sums = RunningSums(block)
    ends = [2_000, 4_000, 5_003]
    places = [0, 2_001, 4_000]
    while any(place < end for place, end in zip(places, ends, strict=True)):
        for number, (place, end) in enumerate(zip(places, ends, strict=True)):
            piece = generator.bytes(min(int(generator.integers(1, 700)), end - place))
            content[place : place + len(piece)] = piece
            sums.add(place, memoryview(piece))
            places[number] = place + len(piece)
    starts = range(0, len(content), block)
    assert sums.of_blocks(len(content)) == [zlib.crc32(content[s : s + block]) for s in starts]


def test_a_file_that_nothing_is_written_to():
    assert RunningSums(8).of_blocks(20) == [
        zlib.crc32(bytes(8)),
        zlib.crc32(bytes(8)),
        zlib.crc32(bytes(4)),
    ]


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_an_array_that_grows(tmp_path, monkeypatch, shape):
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 256)
    monkeypatch.setattr(streaming, "TOGETHER", 32)
    generator = np.random.default_rng(1)
    parts = [generator.integers(-9, 9, (rows, *shape)) for rows in (5, 70, 1, 40)]
    array = GrowingArray(tmp_path / "array.bin", 200)
    array.append(parts[0])
    array.replace_last(parts[0][:1])
    array.append(parts[1])
    expected = np.concatenate([parts[0][:-1], parts[0][:1], *parts[1:]])
    np.testing.assert_array_equal(array.read(), expected[:75])
    # Wider from here on: what was written is written anew.
    array.append(parts[2] + 2**40)
    array.append(parts[3])
    expected[75:76] += 2**40
    assert len(array) == len(expected)
    entry = array.finish(more=parts[0][:1])
    content = (tmp_path / "array.bin").read_bytes()
    assert len(content) == entry.bytes
    blocks = [content[start : start + 256] for start in range(0, len(content), 256)]
    assert entry.checksums == [zlib.crc32(part) for part in blocks]
    found = streaming.mapped(tmp_path / "array.bin", entry)
    np.testing.assert_array_equal(found, np.concatenate([expected, parts[0][:1]]))
