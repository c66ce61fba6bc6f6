"""Gzipped FITS files: unpacked once, in order, and no farther than what is asked for.

What was unpacked lies in memory at the places that it has in the FITS file, as a file that has
holes where nothing was kept: the data of other HDUs, and the rows before a window.
"""

from __future__ import annotations

import math
import os
import zlib
from typing import BinaryIO

from astropy.io import fits

from readers.fits.hdus import Hdu, HduName, hdu_of, is_wanted, no_such_hdu
from readers.fits.headers import BLOCK, header_end

MAGIC = b"\x1f\x8b"

_CHUNK = 1 << 18
_MOST_RATIO = 1032
"""Bytes that one byte of a deflate stream can become, at most."""
_MOST_BLOCKS = 1000
"""Of a header."""


class GzipStream:
    """The bytes that a gzip file holds (RFC 1952), in order.

    Parameters
    ----------
    file : int
        Descriptor of the open file.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._member = zlib.decompressobj(wbits=31)
        self._input = b""
        self.input_bytes = 0
        """Bytes of the file that were read so far."""

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end of the last member.

        What follows the last member and is no other is left out, as ``gzip`` does.

        Raises
        ------
        ValueError
            If a member ends too early, is damaged, or is not what its checksum says.
        """
        while True:
            if self._member.eof:
                rest = self._member.unused_data
                rest = rest if len(rest) >= len(MAGIC) else rest + self._more()
                if not rest.startswith(MAGIC):
                    return b""
                self._member, self._input = zlib.decompressobj(wbits=31), rest
            content = self._input or self._more()
            try:
                found = self._member.decompress(content, size)
            except zlib.error as error:
                raise ValueError(f"its gzip data are damaged: {error}") from error
            self._input = self._member.unconsumed_tail
            if found:
                return found
            if not content and not self._member.eof:
                raise ValueError("the file ends in the midst of its gzip data")

    def _more(self) -> bytes:
        content = os.pread(self._file, _CHUNK, self.input_bytes)
        self.input_bytes += len(content)
        return content


class UnpackedFits:
    """The headers of a gzipped FITS file up to an image's, and what is asked for of its data.

    Parameters
    ----------
    packed : file
        Open for reading; it must stay open.
    wanted : int, str, (str, int) or None
        HDU that is asked for; None for the first that holds an image.
    every : bool
        Go on to the last HDU, whichever is asked for; then there are headers alone.

    Raises
    ------
    ValueError
        If there is no such HDU, or the file is too short for it.
    """

    def __init__(self, packed: BinaryIO, wanted: HduName | None, *, every: bool = False) -> None:
        self._stream = GzipStream(packed.fileno())
        self._at = 0  # in the stream
        self.file = os.fdopen(os.memfd_create("unpacked FITS", os.MFD_CLOEXEC), "r+b", buffering=0)
        try:
            most = os.fstat(packed.fileno()).st_size * _MOST_RATIO
            self._hdu = self._find(wanted, most, every=every)
            self.file.truncate(self._hdu.end)
        except BaseException:
            self.file.close()
            raise

    @property
    def input_bytes(self) -> int:
        """Bytes of the packed file that were read so far."""
        return self._stream.input_bytes

    def keep(self, start: int, stop: int) -> None:
        """Unpack some of the data, once; whatever comes before is given up.

        Where these are the last data of the HDU, its padding is unpacked, too, and if it is the
        last HDU, its checksum is compared.

        Raises
        ------
        ValueError
            If the file ends before.
        """
        self._skip_to(start)
        self._copy_to(stop)
        if self._at < stop:
            raise ValueError(f"unpacked the file ends at {self._at}, expected {stop} bytes")
        if stop == self._hdu.stop:
            self._copy_to(self._hdu.end)
            self._stream.read(1)

    def _find(self, wanted: HduName | None, most: int, *, every: bool) -> Hdu:
        start, hdu = 0, None
        names: list[str] = []
        while text := self._header(start, len(names)):
            hdu = hdu_of(text, start, len(names)) or _unusual_hdu(text, start, len(names))
            if hdu.end > most:
                raise ValueError(
                    f"HDU {len(names)} ends at byte {hdu.end} by its header, the gzipped file can "
                    f"hold {most} bytes at most"
                )
            if not every and is_wanted(hdu, len(names), wanted):
                return hdu
            start = hdu.end
            names.append(hdu.name)
        if every and hdu is not None:
            return hdu
        raise no_such_hdu(wanted, names)

    def _header(self, start: int, number: int) -> bytes:
        """Unpack a header; return nothing if there is none: the file ends, or other bytes come."""
        self._skip_to(start)
        blocks: list[bytes] = []
        while not blocks or not header_end(blocks[-1], 0):
            place = start + len(blocks) * BLOCK
            self._copy_to(place + BLOCK)
            block = os.pread(self.file.fileno(), BLOCK, place)
            if not blocks and not block.startswith(b"XTENSION" if number else b"SIMPLE  "):
                if number:
                    return b""
                raise OSError(f"not a FITS file: unpacked it begins with {block[:8]!r}")
            blocks.append(block)
            if len(block) < BLOCK or len(blocks) > _MOST_BLOCKS:
                raise ValueError(f"the header of HDU {number} has no END in {len(blocks)} blocks")
        return b"".join(blocks)

    def _skip_to(self, place: int) -> None:
        while self._at < place and (skipped := self._read_to(place)):
            self._at += len(skipped)

    def _copy_to(self, place: int) -> None:
        while self._at < place and (found := self._read_to(place)):
            self._at += os.pwrite(self.file.fileno(), found, self._at)

    def _read_to(self, place: int) -> bytes:
        return self._stream.read(min(place - self._at, _CHUNK))


def _unusual_hdu(text: bytes, start: int, number: int) -> Hdu:
    """Describe an HDU whose header takes astropy to read it."""
    header = fits.Header.fromstring(text)
    axes = [int(header[f"NAXIS{axis}"]) for axis in range(1, min(header["NAXIS"], 999) + 1)]
    kind = str(header.get("XTENSION", "PRIMARY")).strip()
    pixels = math.prod(axes) if axes else 0
    item = abs(header["BITPIX"]) // 8
    size = item * header.get("GCOUNT", 1) * (header.get("PCOUNT", 0) + pixels) if axes else 0
    if size < 0 or (header.get("GROUPS") is True and number == 0):
        raise ValueError(f"the size of HDU {number} cannot be told from its header")
    return Hdu(
        start,
        start + len(text),
        start + len(text) + size,
        header.get("ZIMAGE") is True or (kind in ("PRIMARY", "IMAGE") and len(axes) > 0),
        str(header.get("EXTNAME", "" if number else "PRIMARY")).strip().upper(),
        header.get("EXTVER", 1),
    )
