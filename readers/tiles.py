"""RICE_1 images: which tiles a window touches, and where their compressed bytes lie.

The bytes travel as they are, and the graph decodes them (`dali_pipelines.kernels.rice`). astropy
parses the header; the table of tiles is read here, because astropy would read the whole of it and
decode each tile. Nothing in the file is trusted: each descriptor is checked before it is used.
Whatever is not plain RICE_1 of integers is left to astropy.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from readers.window import Window

PADDING = 8
"""Zero bytes after the last tile: the decoder loads 8 bytes from any position."""

RICE = 1
"""First number of a plan whose payload is RICE_1 tiles."""

_BLOCKSIZES = (16, 32, 64)
"""Other sizes are legal, but nobody writes them; astropy may decode them."""

_LENGTH_BITS = {1: 3, 2: 4, 4: 5}
"""Bits that the shortest block takes, by bytes a pixel."""

_GAP = 64 << 10
"""Bytes between two tiles that are read along rather than skipped by a second read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiceImage:
    """An integer image in RICE_1 tiles, as its header describes it.

    Notes
    -----
    FITS Standard 4.0, section 10.1 (tiled image compression), 7.3.5 (variable-length arrays).
    """

    height: int
    width: int
    tile_height: int
    tile_width: int
    bytepix: int
    blocksize: int
    table_start: int
    """Of the table of tiles, in bytes from the start of the file."""
    row_bytes: int
    num_tiles: int
    descriptor_start: int
    """Of COMPRESSED_DATA, in bytes from the start of a row."""
    descriptor_dtype: str
    heap_start: int
    data_end: int

    @classmethod
    def of(cls, hdu: Any) -> RiceImage | None:
        """Describe the image of a BinTableHDU, or give None if astropy shall decode it.

        Raises
        ------
        ValueError
            If the header contradicts itself.
        """
        header: fits.Header = hdu.header
        settings = {
            header.get(f"ZNAME{i}"): header.get(f"ZVAL{i}") for i in range(1, header["TFIELDS"] + 9)
        }
        blocksize, bytepix = settings.get("BLOCKSIZE", 32), settings.get("BYTEPIX", 4)
        plain = (
            header.get("ZCMPTYPE") in ("RICE_1", "RICE_ONE")
            and header.get("ZNAXIS") == 2
            and header.get("ZBITPIX") in (8, 16, 32)
            and bytepix == header["ZBITPIX"] // 8
            and blocksize in _BLOCKSIZES
            and not {"ZSCALE", "ZBLANK", "NULL_PIXEL_MASK"} & set(hdu.columns.names)
            and not {"ZQUANTIZ", "ZMASKCMP", "ZSCALE", "ZZERO"} & set(header)
            and "COMPRESSED_DATA" in hdu.columns.names
        )
        if not plain:
            return None
        width, height = header["ZNAXIS1"], header["ZNAXIS2"]
        tile_width, tile_height = header.get("ZTILE1", width), header.get("ZTILE2", 1)
        if min(width, height, tile_width, tile_height) < 1:
            return None
        tile_width, tile_height = min(tile_width, width), min(tile_height, height)
        dtype, descriptor_start = hdu.columns.dtype.fields["COMPRESSED_DATA"][:2]
        row_bytes, num_tiles = header["NAXIS1"], header["NAXIS2"]
        expected = -(-width // tile_width) * -(-height // tile_height)
        if num_tiles != expected:
            raise ValueError(f"the table has {num_tiles} tiles, the image needs {expected}")
        start = hdu.fileinfo()["datLoc"]
        return cls(
            height=height,
            width=width,
            tile_height=tile_height,
            tile_width=tile_width,
            bytepix=bytepix,
            blocksize=blocksize,
            table_start=start,
            row_bytes=row_bytes,
            num_tiles=num_tiles,
            descriptor_start=descriptor_start,
            descriptor_dtype=dtype.base.newbyteorder(">").str,
            heap_start=start + header.get("THEAP", row_bytes * num_tiles),
            data_end=start + row_bytes * num_tiles + header["PCOUNT"],
        )

    def place(self, window: Window | None) -> tuple[int, int, int, int]:
        """Give (y, x, height, width) of a window, or of the whole image."""
        if window is None:
            return 0, 0, self.height, self.width
        y, x = window.place(self.height, self.width)
        return y, x, window.height, window.width

    def travelling_bytes(self, window: Window | None) -> int:
        """Estimate the bytes of payload and plan; other images of an archive may pack worse."""
        y, _, height, _ = self.place(window)
        rows = (y + height - 1) // self.tile_height + 1 - y // self.tile_height
        share = rows / -(-self.height // self.tile_height)
        return int(share * (1.15 * (self.data_end - self.heap_start) + 16 * self.num_tiles)) + 200

    def read(
        self, file: int, window: Window | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], int] | None:
        """Read the tiles that a window touches.

        Parameters
        ----------
        file : int
            Descriptor of the open file.
        window : Window, optional
            The whole image if None.

        Returns
        -------
        payload : ndarray, shape (bytes,), uint8
            The tiles' bytes, and some that lie between them, then `PADDING`.
        plan : ndarray, shape (9 + 2 * tiles,), int64
            RICE, bytepix, blocksize, tile height and width, image height and width, y and x of the
            window; then offset in the payload and length in bytes of each tile, in the order of the
            touched rows of tiles and, within, columns.
        input_bytes : int
            Bytes that were read.

        None is given in place of all if a tile is stored in another way.

        Raises
        ------
        ValueError
            If a descriptor points outside the file.
        """
        y, x, height, width = self.place(window)
        across = -(-self.width // self.tile_width)
        rows = range(y // self.tile_height, (y + height - 1) // self.tile_height + 1)
        columns = slice(x // self.tile_width, (x + width - 1) // self.tile_width + 1)
        lengths, offsets = self._descriptors(file, rows.start * across, rows.stop * across)
        lengths = lengths.reshape(len(rows), across)[:, columns].reshape(-1)
        offsets = offsets.reshape(len(rows), across)[:, columns].reshape(-1)
        if (lengths == 0).any():
            return None  # a tile of another codec, in another column
        self._check(file, offsets, lengths)
        self._check_lengths(lengths, rows, range(across)[columns])
        payload, places = _gather(file, offsets, lengths)
        head = (RICE, self.bytepix, self.blocksize, self.tile_height, self.tile_width)
        plan = np.array((*head, self.height, self.width, y, x), np.int64)
        tiles = np.stack((places, lengths), axis=1).reshape(-1)
        table_bytes = len(rows) * across * self.row_bytes
        return payload, np.concatenate((plan, tiles)), len(payload) - PADDING + table_bytes

    def _descriptors(
        self, file: int, first: int, last: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give lengths, and offsets from the start of the file, of some tiles."""
        rows = np.empty((last - first, self.row_bytes), np.uint8)
        _read_into(rows.reshape(-1), file, self.table_start + first * self.row_bytes)
        item = np.dtype(self.descriptor_dtype)
        pairs = rows[:, self.descriptor_start : self.descriptor_start + 2 * item.itemsize]
        found = np.ascontiguousarray(pairs).view(item).astype(np.int64)
        return found[:, 0], self.heap_start + found[:, 1]

    def _check(self, file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        end = min(self.data_end, os.fstat(file).st_size)
        wrong = (lengths < 0) | (offsets < self.heap_start) | (offsets > end - lengths)
        if wrong.any():
            tile = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"a tile lies outside the file: {lengths[tile]} bytes from {offsets[tile]}, "
                f"expected between {self.heap_start} and {end}"
            )

    def _check_lengths(self, lengths: NDArray[np.int64], rows: range, columns: range) -> None:
        """Refuse tiles that cannot hold their pixels, before memory is taken for these."""
        heights = np.minimum(self.height - np.array(rows) * self.tile_height, self.tile_height)
        widths = np.minimum(self.width - np.array(columns) * self.tile_width, self.tile_width)
        blocks = -(-np.outer(heights, widths).reshape(-1) // self.blocksize)
        if (8 * lengths < 8 * self.bytepix + blocks * _LENGTH_BITS[self.bytepix]).any():
            raise ValueError("a tile has fewer bytes than its pixels need")


def _gather(
    file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read byte ranges, near ones in one go; give the bytes and where in them each range begins."""
    order = np.argsort(offsets, kind="stable")
    starts, stops = offsets[order], (offsets + lengths)[order]
    reach = np.maximum.accumulate(stops)
    cuts = np.flatnonzero(starts[1:] > reach[:-1] + _GAP) + 1
    first = np.concatenate(([0], cuts))
    run_starts = starts[first]
    run_stops = reach[np.concatenate((cuts, [len(starts)])) - 1]
    run_places = np.concatenate(([0], np.cumsum(run_stops - run_starts)))
    payload = np.empty(int(run_places[-1]) + PADDING, np.uint8)
    payload[-PADDING:] = 0
    for start, stop, place in zip(run_starts, run_stops, run_places[:-1], strict=True):
        _read_into(payload[place : place + stop - start], file, int(start))
    run = np.searchsorted(run_starts, offsets, side="right") - 1
    return payload, run_places[run] + offsets - run_starts[run]


def _read_into(buffer: NDArray[np.uint8], file: int, start: int) -> None:
    found = 0
    while found < buffer.nbytes:  # Linux gives at most 2 GiB at a time
        size = os.preadv(file, [buffer[found:].data], start + found)
        if size == 0:
            raise ValueError(
                f"the file ends at {start + found}, expected {buffer.nbytes} bytes from {start}"
            )
        found += size
