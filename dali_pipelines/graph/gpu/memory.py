"""GPU memory that CuPy takes in addition to DALI: its pool, and the work areas of cuFFT's plans.

The pool keeps the peak of a batch. The bytes of all operators are added: they run one after the
other on one stream, but a block that one has freed may not fit the next.
"""

from __future__ import annotations

import math

from dali_pipelines.aia import psf
from dali_pipelines.aia.deconvolve import WORKING
from dali_pipelines.graph.gpu.operators import BLOCK_PIXELS, PIXELS

_WORK_AREA = 8
"""Maximum of complex numbers per pixel in the work area of a plan; the minimum is 1 (cuFFT's
documentation, "Fourier Transform Setup")."""


def decoder_nbytes(batch: int, image: int) -> int:
    """Return the bytes of `ImageDecoder` for images of `image` bytes: DALI copies the batch."""
    return batch * image


def nearest_nbytes(batch: int, image: int) -> int:
    """Return the bytes of `Nearest` for images of `image` bytes."""
    return batch * image + 64 * BLOCK_PIXELS


def warp_nbytes(batch: int, frame: int, image: int, order: int) -> int:
    """Return the bytes of `Warp`; `frame` and `image` are bytes of each as float32."""
    if order == 1:
        return batch * image
    together = min(batch * frame, max(4 * PIXELS, frame))
    # Lines and coefficients, and the range of every 1024 pixels.
    return batch * image + 2 * together + together // 512


def deconvolver_nbytes(batch: int, channels: int, operators: int = 1) -> int:
    """Return the bytes of `FrameDeconvolver`; all `operators` share transfer functions."""
    pixels = math.prod(psf.FRAME_SHAPE)
    transfer = 8 * psf.FRAME_SHAPE[0] * (psf.FRAME_SHAPE[1] // 2 + 1)
    plans = 2 * _WORK_AREA * pixels * (8 + 16)  # forward and inverse, complex64 and complex128
    working = int((batch - 1 + WORKING) * 4 * pixels)
    # The current frame has a transfer function of its own.
    return working + (channels + 1) * transfer + operators * plans
