"""Zarr stores written by zarr-python, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
from numpy.typing import NDArray


def frames(shape: tuple[int, ...] = (5, 31, 23), dtype: str = "<f4", seed: int = 0) -> Any:
    """Return an array whose elements differ, of any type of numbers."""
    numbers = np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape)
    if np.dtype(dtype).kind == "b":
        return numbers % 3 == 0
    if np.dtype(dtype).itemsize == 1:
        return (numbers % 251).astype(dtype)
    return numbers.astype(dtype)


def write_array(
    path: Path | str, array: NDArray[Any], chunks: tuple[int, ...], **settings: Any
) -> Path:
    """Write an array as a Zarr array of its own; settings are those of zarr.create_array."""
    settings = {"zarr_format": 2, **settings}
    written = zarr.create_array(
        str(path), shape=array.shape, dtype=array.dtype, chunks=chunks, **settings
    )
    written[...] = array
    return Path(path)


BLOSC = numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)
