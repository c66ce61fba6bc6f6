"""Gzipped FITS files: unpacked once, in order, and only as far as needed.

Headers are kept, and the part of the data that is read: not the data of other HDUs, nor the rows
before a window.
"""

from __future__ import annotations

from readers.fits.facts.cards import Cards
from readers.fits.gzip_stream import MOST_RATIO, GzipStream
from readers.fits.hdus import (
    MOST_BLOCKS,
    HduExtent,
    HduName,
    hdu_of,
    is_wanted,
    no_such_hdu,
    unusual_hdu,
)
from readers.fits.headers import BLOCK, header_end
from readers.fits.unpacked_place import UnpackedPlace
from readers.places.contract import Place

_CHUNK = 1 << 20


class UnpackedFits:
    """The headers of a gzipped FITS file up to an image's, and the part of its data to keep.

    The `packed` place must stay open. At first nothing is unpacked: call `find` or `next_hdu`.
    """

    def __init__(self, packed: Place) -> None:
        packed.fetch([(0, packed.nbytes)])
        self._stream = GzipStream(packed)
        self._at = 0  # in the stream
        self._ahead = b""  # the next byte, if it was read
        self._hdu: HduExtent | None = None
        self._names: list[str] = []
        self._most = packed.nbytes * MOST_RATIO
        self.place = UnpackedPlace(packed.name)

    @property
    def input_bytes(self) -> int:
        """Bytes of the packed file that were read so far."""
        return self._stream.input_bytes

    def keep(self, start: int, stop: int) -> None:
        """Unpack some of the data, once; everything before `start` is skipped.

        If they include the end of the HDU, its padding is unpacked too, and after the last HDU the
        checksum of the gzip member is verified.

        Raises
        ------
        ValueError
            If the file ends before `stop`.
        """
        self._skip_to(start)
        self._copy_to(stop)
        if self._at < stop:
            raise ValueError(f"the unpacked file ends at {self._at}, expected {stop} bytes")
        if self._hdu is not None and stop == self._hdu.stop:
            self._copy_to(self._hdu.end)
            self._ahead = self._ahead or self._stream.read(1)

    def find(self, wanted: HduName | None, *, every: bool = False) -> None:
        """Unpack the headers up to the wanted one; with `every`, those of all HDUs.

        Raises
        ------
        ValueError
            If there is no such HDU, or the file is too short to hold it.
        """
        while (found := self.next_hdu()) is not None:
            if not every and is_wanted(found[1], found[0], wanted):
                return
        if not every or self._hdu is None:
            raise no_such_hdu(wanted, self._names)

    def next_hdu(self) -> tuple[int, HduExtent] | None:
        """Unpack the next header; return the number and extent of its HDU, None at the end.

        Raises
        ------
        ValueError
            If the file is too short to hold it.
        """
        start, number = 0 if self._hdu is None else self._hdu.end, len(self._names)
        if not (text := self._header(start, number)):
            self.place.nbytes = start
            return None
        hdu = hdu_of(Cards(text), start, number) or unusual_hdu(text, start, number)
        if hdu.end > self._most:
            raise ValueError(
                f"HDU {number} ends at byte {hdu.end} by its header, but the gzipped file "
                f"can hold at most {self._most} bytes"
            )
        self._hdu = hdu
        self._names.append(hdu.name)
        self.place.nbytes = hdu.end
        return number, hdu

    def _header(self, start: int, number: int) -> bytes:
        """Unpack a header; return b"" if the file ends or other bytes follow."""
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
            if header_end(block, 0):  # the file may end in its padding
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
