"""Bytes that CuPy takes on a GPU beside DALI: its pool, and the work areas of cuFFT's plans.

The pool keeps what a batch needed at most. The operators of a pipeline run one after the other on
one stream and use the same memory, but pieces of one size may not fit another: bytes are added.
"""

from __future__ import annotations

import math

from dali_pipelines.aia import psf
from dali_pipelines.aia.deconvolve import WORKING
from dali_pipelines.graph.gpu.operators import BLOCK_PIXELS, PIXELS

_WORK_AREA = 8
"""Complex numbers a pixel in the work area of a plan, at most (cuFFT's documentation, "Fourier
Transform Setup"); it may be as little as 1."""


def decoder_nbytes(batch: int, image: int) -> int:
    """Return the bytes of `ImageDecoder`, for images of so many bytes: DALI copies the batch."""
    return batch * image


def nearest_nbytes(batch: int, image: int) -> int:
    """Return the bytes of `Nearest`, for images of so many bytes."""
    return batch * image + 64 * BLOCK_PIXELS


def warp_nbytes(batch: int, frame: int, image: int, order: int) -> int:
    """Return the bytes of `Warp`, for frames and images of so many bytes as float32."""
    if order == 1:
        return batch * image
    together = min(batch * frame, max(4 * PIXELS, frame))
    # Lines and coefficients, and the range of each 1024 pixels.
    return batch * image + 2 * together + together // 512


def deconvolver_nbytes(batch: int, channels: int, operators: int = 1) -> int:
    """Return the bytes of `FrameDeconvolver`: several operators share transfer functions."""
    pixels = math.prod(psf.FRAME_SHAPE)
    transfer = 8 * psf.FRAME_SHAPE[0] * (psf.FRAME_SHAPE[1] // 2 + 1)
    plans = 2 * _WORK_AREA * pixels * (8 + 16)  # there and back, complex64 and complex128
    working = int((batch - 1 + WORKING) * 4 * pixels)
    return working + (channels + 1) * transfer + operators * plans  # one is chosen for a frame
