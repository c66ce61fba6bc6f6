"""Inflate gzip data (RFC 1952) by Intel's isal, several times as fast as zlib."""

from __future__ import annotations

from typing import Any

from isal import isal_zlib
from isal.igzip_lib import IsalError

from readers.places.contract import Place

MAGIC = b"\x1f\x8b"
MOST_RATIO = 1032
"""Largest expansion of a deflate stream: unpacked bytes per byte."""

_CHUNK = 1 << 18
_GZIP = 31
"""Value of ``wbits`` for data with the header and checksum of gzip."""


def inflated(packed: Any, most: int) -> bytes:
    """Return the bytes of one gzip member, at most `most`.

    Raises
    ------
    ValueError
        If the member is truncated, damaged, fails its checksum, or holds `most` bytes or more.
    """
    member = isal_zlib.decompressobj(wbits=_GZIP)
    try:
        found: bytes = member.decompress(packed, most)
    except IsalError as error:  # type: ignore[misc]  # in its stub an instance
        raise _damaged(error) from error
    if not member.eof:
        reason = "truncated" if len(found) < most else f"longer than {most - 1} bytes"
        raise ValueError(f"gzip data of {len(packed)} bytes are {reason}")
    return found


class GzipStream:
    """Unpack the bytes of a gzip file in order."""

    def __init__(self, packed: Place) -> None:
        self._packed = packed
        self._member = isal_zlib.decompressobj(wbits=_GZIP)
        self._input = b""
        self.input_bytes = 0
        """Bytes of the file that were read so far."""

    def read(self, most: int) -> bytes:
        """Return the next bytes, at most `most`; none at the end of the last member.

        Other bytes after the last member are ignored, as ``gzip`` does.

        Raises
        ------
        ValueError
            If a member is truncated, damaged, or fails its checksum.
        """
        while True:
            if self._member.eof:
                rest = self._member.unused_data
                rest = rest if len(rest) >= len(MAGIC) else rest + self._more()
                if not rest.startswith(MAGIC):
                    return b""
                self._member, self._input = isal_zlib.decompressobj(wbits=_GZIP), rest
            content = self._input or self._more()
            try:
                found: bytes = self._member.decompress(content, most)
            except IsalError as error:  # type: ignore[misc]  # in its stub an instance
                raise _damaged(error) from error
            self._input = self._member.unconsumed_tail
            if found:
                return found
            if not content and not self._member.eof:
                raise ValueError("the file ends within its gzip data")

    def _more(self) -> bytes:
        content = self._packed.read(self.input_bytes, self.input_bytes + _CHUNK)
        self.input_bytes += len(content)
        return content


def _damaged(error: Exception) -> ValueError:
    return ValueError(f"the gzip data are damaged: {error}")
