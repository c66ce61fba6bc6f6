"""The codec HCOMPRESS_1, which needs nothing but NumPy until a tile is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from readers.fits import payload
from readers.fits.tiles.contract import Codec, CodedTiles, SentTiles


@dataclass(frozen=True, slots=True)
class Hcompress(Codec):
    """HCOMPRESS_1: tiles are decoded; of quantised floats their integers are sent, big-endian."""

    MODULES: ClassVar[tuple[str, ...]] = ("readers.fits.tiles.hcompress.stream",)

    smooth: bool
    """Whether to smooth tiles that were compressed with loss."""

    def least_bytes(self, pixels: Any) -> Any:
        """Return the bytes of a header and the end of a stream: zeros take no more."""
        return 0 * pixels + 26

    def sent_bytes(self, tile_bytes: int, pixels: int) -> int:
        """Return the bytes that are sent of tiles with so many pixels."""
        del tile_bytes
        return 4 * pixels

    def decode(self, tiles: CodedTiles) -> tuple[Iterator[NDArray[Any]], int]:
        """Read tiles; return an iterator that decodes them, and the bytes that were read."""
        from readers.fits.tiles.hcompress.stream import decode_tile  # numba

        _, offsets, lengths, _ = tiles
        shapes = tiles.shapes()
        data, starts, nbytes = tiles.read()
        sizes = data[starts[:, None] + np.arange(2, 10)].view(">i4")
        for tile in np.flatnonzero((sizes != shapes).any(axis=1) | (shapes < 2).any(axis=1))[:1]:
            (rows, columns), (height, width) = sizes[tile], shapes[tile]
            raise ValueError(
                f"the HCOMPRESS_1 tile at byte {offsets[tile]} has {rows}x{columns} pixels, "
                f"expected {height}x{width}, and at least 2x2"
            )

        def decoded() -> Iterator[NDArray[Any]]:
            for start, length, shape, offset in zip(starts, lengths, shapes, offsets, strict=True):
                tile = data[start : start + length]
                try:
                    yield decode_tile(tile, *shape.tolist(), smooth=self.smooth)
                except ValueError as error:
                    raise ValueError(f"the HCOMPRESS_1 tile at byte {offset}: {error}") from error

        return decoded(), nbytes

    def read(self, tiles: CodedTiles, room: int) -> SentTiles:
        """Read and decode tiles of a quantised image."""
        sizes = 4 * tiles.shapes().prod(axis=1)
        ends = np.cumsum(sizes)
        decoded, nbytes = self.decode(tiles)
        data = np.zeros(sizes.sum() + room, np.uint8)
        for tile, start, end in zip(decoded, ends - sizes, ends, strict=True):
            data[start:end].view(">i4").reshape(tile.shape)[:] = tile
        return SentTiles(data, ends - sizes, sizes, 32 + payload.QUANTIZED, nbytes)
