"""OGG Vorbis by pages: only the pages of a segment are read, and decoders are reused.

Building the tables of a decoder takes as long as decoding a second of sound. The tables only depend
on the header, and files of the same encoder, quality, rate and channels have the same header.
"""

from __future__ import annotations

import functools
import io
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.audio.coded import CutSound, OddError, checked, fill, guessed
from readers.places.contract import Place

if TYPE_CHECKING:
    import soundfile

_HEADER = struct.Struct("<4sBBqIIIB")
"""Mark, version, flags, granule position, serial number, number, CRC, number of segments."""
_CONTINUED, _FIRST, _LAST = 1, 2, 4
"""Flags of a page."""
_BEGIN_BYTES, _END_BYTES = 16 << 10, 8 << 10
"""Bytes to read first from the beginning and the end of a file."""
_MOST_HEADER_BYTES = 1 << 20
_PAGE_BYTES = 64 << 10
"""Maximum size of a page in bytes, approximately."""
_SEARCHED_BYTES = 4 * _PAGE_BYTES
"""Number of bytes in which libsndfile searches for the page that it begins to decode with, usually
the first or second."""
_MARGIN = 6 << 10
_TRIES = 24
_FAR, _END = 1 << 40, 1 << 62
"""Positions in samples. libsndfile searches for a position that is `_FAR` away. The searched range
ends at `_END`, so far away that libsndfile searches page by page from the first page on."""
_MOST_SETUPS = 16
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class _Page(NamedTuple):
    at: int
    """First byte in the file."""
    content: bytes
    flags: int
    granule: int
    """Samples of the stream up to the last end of a packet in this page; -1 if none ends here."""
    serial: int
    number: int
    segments: bytes
    """Lengths of the parts of packets. A length below 255 ends a packet."""

    @property
    def end(self) -> int:
        return self.at + len(self.content)

    def split(self) -> tuple[list[bytes], bytes]:
        """Return the packets that end in this page, and the beginning of an unfinished packet."""
        found: list[bytes] = []
        begin = end = _HEADER.size + len(self.segments)
        for nbytes in self.segments:
            end += nbytes
            if nbytes < 255:
                found.append(self.content[begin:end])
                begin = end
        return found, self.content[begin:end]

    def check(self) -> None:
        """Raise OddError if the page is damaged."""
        if self.content[22:26] != _crc(self.content):
            raise OddError

    def moved(self, serial: int, offset: int) -> bytes:
        """Return the bytes of the page as a page of another stream, at a later position."""
        granule = self.granule + offset if self.granule >= 0 else self.granule
        flags = self.flags & ~_LAST
        begin = self.content[:5] + struct.pack("<BqI", flags, granule, serial)
        return _signed(begin + self.content[18:])


def _crc(content: bytes) -> bytes:
    """Return the checksum of a page: zlib's CRC-32 with reversed bits in each byte."""
    rest = (content[:22] + bytes(4) + content[26:]).translate(_REVERSED)
    crc = zlib.crc32(rest, 0xFFFFFFFF) ^ 0xFFFFFFFF
    return crc.to_bytes(4, "big").translate(_REVERSED)


def _signed(content: bytes) -> bytes:
    return content[:22] + _crc(content) + content[26:]


def _silent(serial: int, number: int, granule: int, flags: int = 0) -> bytes:
    """Return the bytes of a page without sound."""
    return _signed(_HEADER.pack(b"OggS", 0, flags, granule, serial, number, 0, 1) + b"\1\1")


def _page(content: bytes, at: int, start: int) -> _Page | None:
    """Return the page that begins at position `at` of `content`; None if it is incomplete."""
    if at + _HEADER.size > len(content):
        return None
    mark, version, flags, granule, serial, number, _, count = _HEADER.unpack_from(content, at)
    if mark != b"OggS" or version:
        raise OddError
    begin = at + _HEADER.size
    segments = content[begin : begin + count]
    end = begin + count + sum(segments)
    if len(segments) < count or end > len(content):
        return None
    return _Page(start + at, content[at:end], flags, granule, serial, number, segments)


def _pages(content: bytes, at: int, start: int) -> Iterator[_Page]:
    """Yield the complete pages in `content`; a page begins at position `at`."""
    while (page := _page(content, at, start)) is not None:
        yield page
        at += len(page.content)


class _Setup(NamedTuple):
    """Facts in the header of a stream."""

    channels: int
    rate: int
    longest: int
    """Samples of the longest block."""
    blocks: tuple[int, ...]
    """Samples of a block by its mode."""

    def duration(self, packets: Sequence[bytes]) -> int:
        """Return the number of samples in packets. The first packet has none, only an overlap."""
        total = before = 0
        mask = (1 << (len(self.blocks) - 1).bit_length()) - 1
        for packet in packets:
            mode = packet[0] >> 1 & mask if packet else len(self.blocks)
            if mode >= len(self.blocks) or packet[0] & 1:
                raise OddError
            block = self.blocks[mode]
            total += (before + block) // 4 if before else 0
            before = block
        return total


@functools.lru_cache(_MOST_SETUPS)
def _setup(begin: bytes, setup: bytes) -> _Setup:
    """Parse the first and the third packet of a stream."""
    if len(begin) != 30 or begin[:11] != b"\1vorbis\0\0\0\0" or setup[:7] != b"\5vorbis":
        raise OddError
    channels, rate = struct.unpack_from("<BI", begin, 11)
    sizes = 1 << (begin[28] & 15), 1 << (begin[28] >> 4)
    # Modes of 41 bits each come before the last bit. They are read backwards.
    bits = int.from_bytes(setup, "little")
    at = bits.bit_length() - 1
    blocks: tuple[int, ...] = ()
    found: tuple[int, ...] = ()
    while at >= 47 and len(blocks) < 64:
        mode = bits >> (at - 41) & (1 << 41) - 1
        if mode >> 1 & 0xFFFFFFFF or mode >> 33 > 63:
            break
        at -= 41
        blocks = (sizes[mode & 1], *blocks)
        if (bits >> (at - 6) & 63) + 1 == len(blocks):
            found = blocks
    if not (found and channels and rate):
        raise OddError
    return _Setup(channels, rate, sizes[1], found)


@dataclass(slots=True)
class _Decoder:
    """A decoder of libsndfile on a file in memory. The pages of the file are replaced each time."""

    header: bytes
    serial: int
    number: int
    """Number of pages of the header."""
    memory: io.BytesIO = field(default_factory=io.BytesIO)
    file: soundfile.SoundFile | None = None
    offset: int = 0
    """Offset of positions: libsndfile only searches for positions that are far away."""

    def read(self, pages: Sequence[_Page], start: int, out: NDArray[np.float32]) -> None:
        """Fill an array with the samples from `start` on; OddError if libsndfile fails."""
        self.offset = _FAR - self.offset
        with checked() as library:
            if self.file is None:
                version = [int(part) for part in re.findall(r"\d+", library.__libsndfile_version__)]
                if version < [1, 2]:  # decodes all samples up to the position
                    raise OddError
                # The first and the last page of the searched range have no sound.
                first = _silent(self.serial, self.number, 0)
                last = _silent(self.serial, self.number + 1, _END, _LAST)
                between = bytes(_SEARCHED_BYTES - len(first))
                self.memory.write(self.header + first + between + last)
                self.memory.seek(0)
                self.file = library.SoundFile(self.memory)
            self.memory.seek(len(self.header))
            self.memory.write(b"".join(page.moved(self.serial, self.offset) for page in pages))
            self.memory.truncate()
            if self.file.seek(start + self.offset) != start + self.offset:
                raise OddError
            fill(self.file, out)


_DECODERS: dict[tuple[bytes, bytes], list[_Decoder]] = {}
"""Decoders that are not in use, by the packets of their header."""


@dataclass(frozen=True, slots=True)
class VorbisSound(CutSound):
    """Recording in OGG Vorbis."""

    longest: int
    """Samples of the longest block."""
    packets: tuple[bytes, bytes]
    """First and third packet of the stream."""
    header: bytes
    """Pages before the first sound."""
    number: int
    """Number of pages of the header."""
    first: _Page
    """First page of sound."""
    last: _Page

    def check_end(self) -> None:
        """Raise ValueError if the last page is missing."""
        if not self.last.flags & _LAST:
            raise ValueError("the last page of the OGG stream is missing: the file is cut off")

    def read_part(self, start: int, out: NDArray[np.float32]) -> int:
        """Read samples by their pages, or raise OddError."""
        pages, begin = self._pages_of(start, start + len(out))
        found = (
            out if begin == start else np.empty((start - begin + len(out), *out.shape[1:]), "f4")
        )
        if len(_DECODERS) >= _MOST_SETUPS and self.packets not in _DECODERS:
            _DECODERS.clear()
        idle = _DECODERS.setdefault(self.packets, [])
        try:
            decoder = idle.pop()
        except IndexError:
            decoder = _Decoder(self.header, self.first.serial, self.number)
        decoder.read(pages, begin, found)
        idle.append(decoder)
        if found is not out:
            out[...] = found[start - begin :]
        return sum(len(page.content) for page in pages)

    def _pages_of(self, start: int, stop: int) -> tuple[list[_Page], int]:
        """Return the pages of these samples, and the first sample that the pages decode to."""
        # The first block of a decoder has no samples, only an overlap.
        wanted = max(0, start - self.longest // 2)
        content, at, pages = self._search(wanted, stop)
        while max(page.granule for page in pages) < stop:
            more = self.place.read(at + len(content), at + 2 * len(content) + _MARGIN)
            if not more:
                raise OddError
            content += more
            pages += _pages(content, pages[-1].end - at, at)
        last = next(n for n, page in enumerate(pages) if page.granule >= stop)
        near = next(n for n, page in enumerate(pages) if page.granule >= wanted)
        pages = pages[: last + 1]
        for number, page in enumerate(pages, pages[0].number):
            page.check()
            if page.serial != self.first.serial or page.number != number:
                raise OddError
        if sum(len(page.content) for page in pages[: near + 1]) > _SEARCHED_BYTES:
            raise OddError
        if pages[0].at == self.first.at:
            pages[0] = self.first
        if near and pages[near].at == self.last.at:
            # libsndfile takes the last page for complete, so its position may be wrong.
            return pages, pages[0].granule
        return pages, start

    def _search(self, wanted: int, stop: int) -> tuple[bytes, int, list[_Page]]:
        """Return bytes, their position, and the pages in them, from the page of a sample on."""
        low, high = (self.first.at, 0), (self.last.at, self.frames)
        margin = _MARGIN
        nbytes = round((stop - wanted) * (self.last.end - self.first.at) / self.frames)
        for number in range(_TRIES):
            known = low, high
            at = max(low[0], guessed(low, high, wanted, number) - margin)
            content = self.place.read(at, at + nbytes + 2 * margin)
            begin = content.find(b"OggS")
            pages = list(_pages(content, begin, at)) if begin >= 0 else []
            before = [n for n, page in enumerate(pages) if 0 <= page.granule < wanted]
            after = [n for n, page in enumerate(pages) if page.granule >= wanted]
            if not before and at == self.first.at and after:
                return content, at, pages
            if before and after:
                return content, at, pages[before[-1] :]
            if before:
                low = pages[before[-1]].at, pages[before[-1]].granule
            elif after:
                high = pages[after[0]].at, pages[after[0]].granule
            margin *= 2 if (low, high) == known else 1
        raise OddError


def vorbis_sound(place: Place, head: bytes) -> VorbisSound | None:
    """Return the recording of an OGG Vorbis file; None if libsndfile must read the file.

    `head` are the first bytes of the file.
    """
    if head[:4] != b"OggS" or head[28:35] != b"\1vorbis":
        return None
    try:
        return _vorbis_sound(place, head)
    except OddError:
        return None


def _vorbis_sound(place: Place, head: bytes) -> VorbisSound:
    nbytes = _BEGIN_BYTES
    place.fetch([(0, nbytes), (max(0, place.nbytes - _END_BYTES), place.nbytes)])
    while (found := _begin(place.read(0, nbytes))) is None:
        if nbytes >= min(place.nbytes, _MOST_HEADER_BYTES):
            raise OddError
        nbytes *= 4
    packets, header, number, first = found
    setup = _setup(packets[0], packets[2])
    last = _last_page(place)
    if first.serial != last.serial or last.granule < 1 or first.flags & _CONTINUED:
        raise OddError
    # libsndfile reads streams that begin later than at 0, or whose first samples are cut off.
    duration = setup.duration(first.split()[0])
    may_be_cut = first.at == last.at and last.flags & _LAST
    if first.granule > duration or (first.granule < duration and not may_be_cut):
        raise OddError
    first = first._replace(granule=duration)
    sound = place, "OGG VORBIS", setup.rate, setup.channels, last.granule
    ends = packets[0], packets[2]
    return VorbisSound(*sound, head, setup.longest, ends, header, number, first, last)


def _begin(content: bytes) -> tuple[list[bytes], bytes, int, _Page] | None:
    """Return the packets of the header, its pages, their number, and the first page of sound."""
    packets: list[bytes] = []
    rest = b""
    for number, page in enumerate(_pages(content, 0, 0)):
        page.check()
        if len(packets) == 3:
            return packets, content[: page.at], number, page
        ended, after = page.split()
        for packet in ended:
            packets.append(rest + packet)
            rest = b""
        rest += after
        if len(packets) > 3 or (len(packets) == 3 and rest):
            raise OddError
    return None


def _last_page(place: Place) -> _Page:
    for nbytes in (_END_BYTES, _PAGE_BYTES + _END_BYTES):
        start = max(0, place.nbytes - nbytes)
        content = place.read(start, place.nbytes)
        at = len(content)
        while (at := content.rfind(b"OggS", 0, at)) >= 0:
            with suppress(OddError):
                page = _page(content, at, start)
                if page is not None and page.end == place.nbytes:
                    page.check()
                    return page
    raise OddError
