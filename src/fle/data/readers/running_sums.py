"""CRC-32 of the blocks of a file, while pieces of it are written."""

import zlib
from typing import final

# The polynomial of CRC-32 and x^8, in its order of bits; a word of ones.
POLYNOMIAL, BYTE, ALL = 0xEDB88320, 1 << 23, 2**32 - 1


@final
class RunningSums:
    """The sums of a file's blocks, out of pieces that are written anywhere in it, once each.

    A piece that goes on where another ended costs a pass over its bytes alone, while they are in
    the cache; what lies between pieces is zeros.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        # By where it ends: where a piece began, and its sum.
        self._pieces: dict[int, tuple[int, int]] = {}

    def add(self, start: int, content: memoryview) -> None:
        """Bytes that are written from `start` on."""
        while content:
            here = content[: self._block - start % self._block]
            begun, value = start, 0
            if start % self._block:
                begun, value = self._pieces.pop(start, (start, 0))
            start, content = start + len(here), content[len(here) :]
            self._pieces[start] = (begun, zlib.crc32(here, value))

    def of_blocks(self, size: int) -> list[int]:
        """Of a file of so many bytes."""
        found, ends = [0] * -(-size // self._block), list(range(0, size, self._block))
        for end, (begun, value) in sorted(self._pieces.items()):
            block = begun // self._block
            before = _over_zeros(found[block], begun - ends[block])
            found[block], ends[block] = _shifted(before, end - begun) ^ value, end
        for block, end in enumerate(ends):
            found[block] = _over_zeros(found[block], min((block + 1) * self._block, size) - end)
        return found


def _over_zeros(value: int, length: int) -> int:
    """A sum that goes on over so many bytes that are zero."""
    return _shifted(value ^ ALL, length) ^ ALL


def _shifted(value: int, length: int) -> int:
    """Times x^8 to the power of a length: what bytes add to the sum of so many more."""
    square = BYTE
    while length:
        value = _product(square, value) if length & 1 else value
        square, length = _product(square, square), length >> 1
    return value


def _product(one: int, other: int) -> int:
    """Of two polynomials over the integers modulo 2, modulo that of CRC-32."""
    result = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            result ^= other
        other = other >> 1 ^ (POLYNOMIAL if other & 1 else 0)
    return result
