"""Gzipped FITS files (RFC 1952), inflated by Intel's isal, several times as fast as by zlib.

A file is unpacked once, in order, and only as far as needed. Headers and the data to read are kept.
Data of other HDUs, and the rows before a window, are not kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import Any, Self

from isal import isal_zlib
from isal.igzip_lib import IsalError

from readers.fits.hdus import MOST_BLOCKS
from readers.fits.headers import (
    BLOCK,
    Cards,
    HduExtent,
    HduName,
    NeedsAstropy,
    header_end,
    is_wanted,
    no_such_hdu,
)
from readers.places.contract import Place, too_short

MAGIC = b"\x1f\x8b"
MOST_RATIO = 1032
"""Largest expansion of a deflate stream: unpacked bytes per byte."""

_PACKED_CHUNK = 1 << 18
_CHUNK = 1 << 20
"""Number of bytes to read and unpack at a time."""
_GZIP = 31
"""Value of ``wbits`` for data with the header and checksum of gzip."""


def inflated(packed: Any, most: int) -> bytes:
    """Return the bytes of one gzip member, at most `most`.

    ValueError if the member is truncated, damaged, fails its checksum, or holds `most` bytes or
    more.
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
    """The unpacked bytes of a gzip file, in order."""

    def __init__(self, packed: Place) -> None:
        self._packed = packed
        self._member = isal_zlib.decompressobj(wbits=_GZIP)
        self._input = b""
        self.input_bytes = 0
        """Bytes of the file that were read so far."""

    def read(self, most: int) -> bytes:
        """Return the next bytes, at most `most`; b"" at the end of the last member.

        Other bytes after the last member are ignored, as by ``gzip``. ValueError if a member is
        truncated, damaged, or fails its checksum.
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
        content = self._packed.read(self.input_bytes, self.input_bytes + _PACKED_CHUNK)
        self.input_bytes += len(content)
        return content


def _damaged(error: Exception) -> ValueError:
    return ValueError(f"the gzip data are damaged: {error}")


class UnpackedPlace:
    """The kept bytes of a file, at their positions in the file. All other bytes read as zeros."""

    __slots__ = ("_parts", "_starts", "name", "nbytes")
    stamp: Hashable | None = None
    etag: str | None = None

    def __init__(self, name: str) -> None:
        self.name, self.nbytes = name, 0
        self._starts: list[int] = []
        self._parts: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._starts.clear()
        self._parts.clear()

    def keep(self, start: int, part: bytes) -> None:
        """Keep bytes that begin at `start`; calls must be in the order of the file."""
        self._starts.append(start)
        self._parts.append(part)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: the bytes are in memory."""

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from `start` to `stop`; fewer at the end of the file."""
        found = bytearray(max(0, min(stop, self.nbytes) - start))
        self._copy(start, memoryview(found))
        return bytes(found)

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill each buffer from its own position. Raises ValueError if the file is too short."""
        for start, buffer in pieces:
            if start + len(buffer) > self.nbytes:
                raise too_short(self.nbytes, len(buffer), start)
            self._copy(start, buffer)

    def _copy(self, at: int, buffer: memoryview) -> None:
        stop = at + len(buffer)
        number = max(0, bisect_right(self._starts, at) - 1)
        while at < stop:
            is_part = number < len(self._parts)
            first = self._starts[number] if is_part else stop
            if at < first:  # bytes that were not kept
                end = min(first, stop)
                found: bytes | memoryview = bytes(end - at)
            else:
                part = self._parts[number]
                end = min(first + len(part), stop)
                found = memoryview(part)[at - first : max(end, at) - first]
                number += 1
            if at < end:
                buffer[len(buffer) - (stop - at) :][: end - at] = found
                at = end


class UnpackedFits:
    """Headers of a gzipped FITS file up to an image, and the needed data of the image.

    The `packed` place must stay open. At first nothing is unpacked: call `find` or `next_hdu`.
    """

    def __init__(self, packed: Place) -> None:
        packed.fetch([(0, packed.nbytes)])
        self._stream = GzipStream(packed)
        self._at = 0  # position in the stream
        self._ahead = b""  # the byte at `_at`, if it was read ahead
        self._hdu: HduExtent | None = None
        self._names: list[str] = []
        self._most = packed.nbytes * MOST_RATIO
        self.place = UnpackedPlace(packed.name)

    @property
    def input_bytes(self) -> int:
        """Bytes of the packed file that were read so far."""
        return self._stream.input_bytes

    def keep(self, start: int, stop: int) -> None:
        """Unpack some data, once; all bytes before `start` are skipped.

        At the end of the HDU its padding is unpacked too. After the last HDU the checksum of the
        gzip member is verified. ValueError if the file ends before `stop`.
        """
        self._skip_to(start)
        self._copy_to(stop)
        if self._at < stop:
            raise ValueError(f"the unpacked file ends at {self._at}, expected {stop} bytes")
        if self._hdu is not None and stop == self._hdu.stop:
            self._copy_to(self._hdu.end)
            self._ahead = self._ahead or self._stream.read(1)

    def find(self, wanted: HduName | None, *, every: bool = False) -> None:
        """Unpack the headers up to the wanted HDU; with `every`, all headers.

        ValueError if there is no such HDU, or the file is too short for the HDU.
        """
        while (found := self.next_hdu()) is not None:
            if not every and is_wanted(found[1], found[0], wanted):
                return
        if not every or self._hdu is None:
            raise no_such_hdu(wanted, self._names)

    def next_hdu(self) -> tuple[int, HduExtent] | None:
        """Unpack the next header; return the number and extent of its HDU, None at the end.

        ValueError if the file is too short for the HDU.
        """
        start, number = 0 if self._hdu is None else self._hdu.end, len(self._names)
        if not (text := self._header(start, number)):
            self.place.nbytes = start
            return None
        try:
            hdu = HduExtent.of(Cards(text), start, number)
        except NeedsAstropy:
            hdu = HduExtent.by_astropy(text, start, number)
        if hdu.end > self._most:
            raise ValueError(
                f"HDU {number} ends at byte {hdu.end} by its header, but the gzipped file can have "
                f"at most {self._most} bytes: it is damaged or cut off"
            )
        self._hdu = hdu
        self._names.append(hdu.name)
        self.place.nbytes = hdu.end
        return number, hdu

    def _header(self, start: int, number: int) -> bytes:
        """Unpack a header; return b"" at the end of the file, or if no header follows."""
        self._skip_to(start)
        blocks: list[bytes] = []
        while not blocks or not header_end(blocks[-1], 0):
            at = start + len(blocks) * BLOCK
            self._copy_to(at + BLOCK)
            block = self.place.read(at, at + BLOCK)
            if not blocks and not block.startswith(b"XTENSION" if number else b"SIMPLE  "):
                if number:
                    return b""
                raise OSError(f"not a FITS file: the unpacked bytes begin with {block[:8]!r}")
            if header_end(block, 0):  # the file may end in the padding of the header
                block = block.ljust(BLOCK)
            blocks.append(block)
            if len(block) < BLOCK or len(blocks) > MOST_BLOCKS:
                raise ValueError(f"the header of HDU {number} has no END in {len(blocks)} blocks")
        return b"".join(blocks)

    def _skip_to(self, end: int) -> None:
        while self._at < end and (skipped := self._read_to(end)):
            self._at += len(skipped)

    def _copy_to(self, end: int) -> None:
        while self._at < end and (found := self._read_to(end)):
            self.place.keep(self._at, found)
            self._at += len(found)
            self.place.nbytes = max(self.place.nbytes, self._at)

    def _read_to(self, end: int) -> bytes:
        if self._ahead:
            found, self._ahead = self._ahead, b""
            return found
        return self._stream.read(min(end - self._at, _CHUNK))
