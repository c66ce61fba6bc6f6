"""Add noise to a batch of images on a GPU, see `noise`. Arguments are addresses of arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numba import cuda

from dali_pipelines.kernels.augment.noise import VALUES, exposed, normal_block
from dali_pipelines.kernels.augment.philox import key_of
from dali_pipelines.kernels.bits import load_float32, load_int64, store_float32
from dali_pipelines.kernels.jit import cuda_jit, njit

THREADS = 256
"""Threads per block."""
TILE = 4096
"""Values per block."""


@dataclass(frozen=True, slots=True)
class NoisyImage:
    """Image of a batch: addresses on the device, and its size."""

    out: int
    image: int
    values: int
    numbers: int
    """Address of the numbers that the functions of `noise` take."""


_NUM_FIELDS = len(fields(NoisyImage))
OUT, IMAGE, VALUES_OF_IMAGE, NUMBERS = range(_NUM_FIELDS)
"""Fields of a `NoisyImage` in the table."""


@cuda_jit
def add_noise(table):  # type: ignore[no-untyped-def]
    """Add normal noise; launch ``[(blocks of TILE values, images), THREADS]`` with the table."""
    out, image, values, numbers = _fields(table, cuda.blockIdx.y)
    key, std = _key_at(numbers), load_float32(numbers + 8)
    block = np.int64(cuda.blockIdx.x) * (TILE // VALUES) + cuda.threadIdx.x
    end = min(-(-values // VALUES), np.int64(cuda.blockIdx.x + 1) * (TILE // VALUES))
    while block < end:
        a, b, c, d = normal_block(key, np.uint64(block))
        at = VALUES * block
        _add(out, image, values, at, a * std)
        _add(out, image, values, at + 1, b * std)
        _add(out, image, values, at + 2, c * std)
        _add(out, image, values, at + 3, d * std)
        block += THREADS


@cuda_jit
def add_photon_noise(table):  # type: ignore[no-untyped-def]
    """Count photons and read them out; launch like `add_noise`."""
    out, image, values, numbers = _fields(table, cuda.blockIdx.y)
    key = _key_at(numbers)
    gain = np.float64(load_float32(numbers + 8))
    read_noise = np.float64(load_float32(numbers + 12))
    place = np.int64(cuda.blockIdx.x) * TILE + cuda.threadIdx.x
    end = min(values, np.int64(cuda.blockIdx.x + 1) * TILE)
    while place < end:
        value = load_float32(image + 4 * place)
        store_float32(out + 4 * place, exposed(value, key, place, gain, read_noise))
        place += THREADS


@njit
def _fields(table, image):  # type: ignore[no-untyped-def]
    row = table + 8 * _NUM_FIELDS * image
    return (
        load_int64(row + 8 * OUT),
        load_int64(row + 8 * IMAGE),
        load_int64(row + 8 * VALUES_OF_IMAGE),
        load_int64(row + 8 * NUMBERS),
    )


@njit
def _key_at(numbers):  # type: ignore[no-untyped-def]
    return key_of((load_float32(numbers), load_float32(numbers + 4)))


@njit
def _add(out, image, values, place, noise):  # type: ignore[no-untyped-def]
    if place < values:
        store_float32(out + 4 * place, load_float32(image + 4 * place) + noise)
