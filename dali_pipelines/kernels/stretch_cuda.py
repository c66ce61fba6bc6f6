"""Stretch a batch of images on a GPU, see `stretch`. Arguments are addresses of arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numba import cuda

from dali_pipelines.kernels.bits import load_float32, load_int64, store_float32
from dali_pipelines.kernels.jit import cuda_jit
from dali_pipelines.kernels.stretch import constants_at, stretched
from dali_pipelines.kernels.stretch_parameters import NUM_PARAMETERS

THREADS = 256
"""Threads per block."""
TILE = 4096
"""Values per block."""


@dataclass(frozen=True, slots=True)
class StretchedImage:
    """Image of a batch: addresses on the device, and its size."""

    out: int
    image: int
    values: int
    """Number of values: pixels times channels."""


_NUM_FIELDS = len(fields(StretchedImage))
OUT, IMAGE, VALUES = range(_NUM_FIELDS)
"""Fields of a `StretchedImage` in the table."""


@cuda_jit
def stretch_images(table, channels, parameters):  # type: ignore[no-untyped-def]
    """Stretch images, layout HWC; launch ``[(blocks of TILE values, images), THREADS]``.

    Parameters
    ----------
    table : int
        Address of a `launch_table`.
    channels : int
        Channels of each image.
    parameters : int
        Address of the `Stretch.parameters`, float64, shape (channels, NUM_PARAMETERS).
    """
    row = table + 8 * _NUM_FIELDS * cuda.blockIdx.y
    out, image = load_int64(row + 8 * OUT), load_int64(row + 8 * IMAGE)
    place = np.int64(cuda.blockIdx.x) * TILE + cuda.threadIdx.x
    end = min(load_int64(row + 8 * VALUES), np.int64(cuda.blockIdx.x + 1) * TILE)
    while place < end:
        fields_of_channel = constants_at(parameters + 8 * NUM_PARAMETERS * (place % channels))
        value = stretched(load_float32(image + 4 * place), fields_of_channel)
        store_float32(out + 4 * place, value)
        place += THREADS
