"""Bit fields in the headers of codecs."""

from __future__ import annotations


class Bits:
    """Bits of a header, from the first one on.

    Parameters
    ----------
    content : bytes
        The header; later bytes may follow.

    Raises
    ------
    ValueError
        By each method, if the header has ended.
    """

    def __init__(self, content: bytes) -> None:
        self._value = int.from_bytes(content)
        self._left = 8 * len(content)

    def take(self, count: int) -> int:
        """Return the number in the next bits."""
        self._left -= count
        if self._left < 0:
            raise ValueError("a header ends too early")
        return self._value >> self._left & ((1 << count) - 1)

    def golomb(self) -> int:
        """Return the next number in the Exp-Golomb code of H.264."""
        zeros = 0
        while not self.take(1):
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)
