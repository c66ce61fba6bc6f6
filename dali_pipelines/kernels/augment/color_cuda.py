"""Change the colours of a batch of images on a GPU, see `color.retouch`.

Arguments are addresses of arrays on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numba import cuda
from numba import types as numba_types

from dali_pipelines.kernels.augment.color import (
    CONTRAST,
    HUE,
    SATURATION,
    gray,
    touched,
    value_touched,
)
from dali_pipelines.kernels.bits import (
    load_float32,
    load_float64,
    load_int64,
    store_float32,
    store_float64,
)
from dali_pipelines.kernels.jit import cuda_jit, njit

THREADS = 256
"""Threads per block."""
PARTS = 32
"""Blocks per image that sum the gray values."""
TILE = 1024
"""Pixels per block."""


@dataclass(frozen=True, slots=True)
class RetouchedImage:
    """Image of a batch: addresses on the device, and sizes."""

    out: int
    image: int
    pixels: int
    channels: int
    numbers: int
    """float32, shape (1 + 2 num_steps,): the largest value, then the steps, as in
    `color.retouch`."""
    num_steps: int
    sums: int
    """Scratch memory, float64, shape (PARTS, 2): sum and number of gray values of each part."""


_NUM_FIELDS = len(fields(RetouchedImage))
OUT, IMAGE, PIXELS, CHANNELS, NUMBERS, NUM_STEPS, SUMS = range(_NUM_FIELDS)
"""Fields of a `RetouchedImage` in the table."""


@cuda_jit
def sum_gray(table):  # type: ignore[no-untyped-def]
    """Sum the gray values of each image before its contrast step, which needs their mean.

    Launch ``[(PARTS, images), THREADS]`` with the address of a `launch_table`.
    """
    image, part, thread = cuda.blockIdx.y, cuda.blockIdx.x, cuda.threadIdx.x
    shared_sums = cuda.shared.array(THREADS, numba_types.float64)
    shared_counts = cuda.shared.array(THREADS, numba_types.float64)
    last = _contrast_step(table, image)
    if last < 0:
        return
    total, count = 0.0, 0.0
    pixels, channels = _field(table, image, PIXELS), _field(table, image, CHANNELS)
    pixel = np.int64(part) * THREADS + thread
    while pixel < pixels:
        if channels == 3:
            red, green, blue = _colors_after(table, image, pixel, last, np.float32(0))
            value = gray(red, green, blue)
            if value == value:
                total += np.float64(value)
                count += 1.0
        else:
            for channel in range(channels):
                place = pixel * channels + channel
                value = _value_after(table, image, place, last, np.float32(0))
                if value == value:
                    total += np.float64(value)
                    count += 1.0
        pixel += PARTS * THREADS
    shared_sums[thread], shared_counts[thread] = total, count
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            shared_sums[thread] += shared_sums[thread + half]
            shared_counts[thread] += shared_counts[thread + half]
        half //= 2
    if thread == 0:
        at = _field(table, image, SUMS) + 16 * part
        store_float64(at, shared_sums[0])
        store_float64(at + 8, shared_counts[0])


@cuda_jit
def retouch(table):  # type: ignore[no-untyped-def]
    """Apply the steps of each image, after `sum_gray`.

    Launch ``[(blocks of TILE pixels, images), THREADS]`` with the address of a `launch_table`.
    """
    image, thread = cuda.blockIdx.y, cuda.threadIdx.x
    shared_mean = cuda.shared.array(1, numba_types.float32)
    if thread == 0:
        shared_mean[0] = _mean(table, image)
    cuda.syncthreads()
    mean = shared_mean[0]
    channels, num_steps = _field(table, image, CHANNELS), _field(table, image, NUM_STEPS)
    out = _field(table, image, OUT)
    pixel = np.int64(cuda.blockIdx.x) * TILE + thread
    end = min(_field(table, image, PIXELS), np.int64(cuda.blockIdx.x + 1) * TILE)
    while pixel < end:
        if channels == 3:
            red, green, blue = _colors_after(table, image, pixel, num_steps, mean)
            store_float32(out + 12 * pixel, red)
            store_float32(out + 12 * pixel + 4, green)
            store_float32(out + 12 * pixel + 8, blue)
        else:
            for channel in range(channels):
                place = pixel * channels + channel
                value = _value_after(table, image, place, num_steps, mean)
                store_float32(out + 4 * place, value)
        pixel += THREADS


@njit
def _contrast_step(table, image):  # type: ignore[no-untyped-def]
    """Return the index of the step that needs the mean, or -1 if there is none."""
    steps = _field(table, image, NUMBERS) + 4
    for step in range(_field(table, image, NUM_STEPS)):
        if load_float32(steps + 8 * step) == np.float32(CONTRAST):
            return step
    return -1


@njit
def _mean(table, image):  # type: ignore[no-untyped-def]
    if _contrast_step(table, image) < 0:
        return np.float32(0)
    total, count = 0.0, 0.0
    at = _field(table, image, SUMS)
    for part in range(PARTS):
        total += load_float64(at + 16 * part)
        count += load_float64(at + 16 * part + 8)
    return np.float32(total / count) if count > 0 else np.float32(0)


@njit
def _colors_after(table, image, pixel, num_steps, mean):  # type: ignore[no-untyped-def]
    """Return a pixel of three channels after the first `num_steps` steps."""
    at = _field(table, image, IMAGE) + 12 * pixel
    red, green, blue = load_float32(at), load_float32(at + 4), load_float32(at + 8)
    numbers = _field(table, image, NUMBERS)
    largest, steps = load_float32(numbers), numbers + 4
    for step in range(num_steps):
        code = np.int32(load_float32(steps + 8 * step))
        magnitude = load_float32(steps + 8 * step + 4)
        red, green, blue = touched(red, green, blue, code, magnitude, mean, largest)
    return red, green, blue


@njit
def _value_after(table, image, place, num_steps, mean):  # type: ignore[no-untyped-def]
    """Return a value of a gray image after the first `num_steps` steps."""
    value = load_float32(_field(table, image, IMAGE) + 4 * place)
    numbers = _field(table, image, NUMBERS)
    largest, steps = load_float32(numbers), numbers + 4
    for step in range(num_steps):
        code = np.int32(load_float32(steps + 8 * step))
        if code != SATURATION and code != HUE:
            magnitude = load_float32(steps + 8 * step + 4)
            value = value_touched(value, code, magnitude, mean, largest)
    return value


@njit
def _field(table, image, field):  # type: ignore[no-untyped-def]
    return load_int64(table + 8 * (_NUM_FIELDS * image + field))
