"""RICE_1 tiles, decoded by the CPU as in an image, with memory that ends where they may read to."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np
from astropy.io.fits.hdu.compressed._codecs import Rice1
from numpy.typing import NDArray

from dali_pipelines.kernels.fits.rice import CHUNK, PITCH, decode_chunk
from dali_pipelines.kernels.fits.rice_stream import ends_well, first_pixel
from dali_pipelines.kernels.fits.rice_vector import LANES
from readers.fits.payload import PADDING

DTYPES = {1: np.uint8, 2: np.int16, 4: np.int32}
"""By bytes per pixel."""
_CANARY = 123456789


class Guarded:
    """Memory that ends where a page begins that nobody may touch: reading past it is a crash."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 64 * mmap.PAGESIZE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.end = self._start + 63 * mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(self.end)
        assert libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def put(self, data: bytes) -> int:
        """Write the data so that they and their padding end at the guard; give their address."""
        start = self.end - PADDING - len(data)
        ctypes.memmove(start, data + bytes(PADDING), len(data) + PADDING)
        return start


_GUARDED = [Guarded() for _ in range(LANES)]


def encoded(pixels: NDArray[np.generic], blocksize: int) -> bytes:
    """Encode a tile by astropy."""
    codec = Rice1(blocksize=blocksize, bytepix=pixels.itemsize, tilesize=pixels.size)
    return bytes(codec.encode(pixels))


def decoded_together(
    streams: Sequence[bytes],
    needed: Sequence[int],
    bytepix: int,
    blocksize: int = 32,
    *,
    whole: bool,
    unwanted: int = 0,
) -> tuple[bool, list[NDArray[np.int32]]]:
    """Decode the first pixels of up to `LANES` tiles.

    Returns
    -------
    good : bool
        Whether all streams are.
    pixels : list of ndarray, shape (pixels,), int32
        Those of each tile.
    """
    missing = [0] * (LANES - len(streams))
    pixels = np.full(LANES * PITCH, _CANARY, np.int32)
    places = [memory.put(stream) for memory, stream in zip(_GUARDED, streams, strict=False)]
    lengths = np.array([*map(len, streams), *missing], np.int64)
    counts = np.array([*needed, *missing], np.int64)
    starts = np.array([*places, *missing], np.int64)
    if (lengths < bytepix)[: len(streams)].any():
        return False, [np.zeros(size, np.int32) for size in needed]
    last = [*(first_pixel(place, bytepix) for place in places), *missing]
    end = 8 * (starts + lengths)
    state = np.array([8 * (starts + bytepix), last, [0] * LANES], np.int64)
    good = decode_chunk(pixels, state, end, counts, unwanted, bytepix, blocksize)
    lanes = pixels.reshape(LANES, PITCH)
    assert (lanes[:, CHUNK:] == _CANARY).all()
    ends = [ends_well(state[0, lane], end[lane], whole) for lane in range(len(streams))]
    return good and all(ends), [lane[:size] for lane, size in zip(lanes, needed, strict=False)]
