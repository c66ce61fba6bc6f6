"""C functions of the kernels for DALI's numba operator, one sample per call.

They are compiled at first use and cached on disk. DALI's own wrapper would compile in each process,
for seconds. This module imports numba, so it is only imported to make an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np
from numba import types

from dali_pipelines.kernels.arrays import array_at
from dali_pipelines.kernels.augment.color import retouch
from dali_pipelines.kernels.augment.erase import choose_part
from dali_pipelines.kernels.augment.noise import add_noise, add_photon_noise
from dali_pipelines.kernels.bits import load_int64, store_int64
from dali_pipelines.kernels.fits.image import decode_image
from dali_pipelines.kernels.jit import JIT, cfunc, njit
from dali_pipelines.kernels.resample.nearest import nearest
from dali_pipelines.kernels.resample.resize import resize, round_pixels
from dali_pipelines.kernels.resample.warp import NUM_SPECIAL, warp
from dali_pipelines.kernels.stretch import stretch_line
from dali_pipelines.kernels.stretch_parameters import NUM_PARAMETERS

_AT = types.uint64
_RUN = types.void(_AT, _AT, _AT, types.int32, _AT, _AT, _AT, types.int32)
_SETUP = types.void(_AT, _AT, types.int32, _AT, _AT, types.int32, types.int32)


class Entry(NamedTuple):
    """C functions of one kernel for DALI's numba operator."""

    run: Any
    """CFunc of numba that computes a sample."""
    setup: Any
    """CFunc of numba that sets the output shapes of a batch."""


def _compiled_once(make: Callable[..., Entry]) -> Any:
    """Return a function that makes each entry once per process, while no other process compiles."""

    @cache
    @wraps(make)
    def made(*arguments: str) -> Entry:
        with JIT.turn():
            return make(*arguments)

    return made


@_compiled_once
def noise_entry() -> Entry:
    """Return `add_noise`."""
    return Entry(_noise(of_photons=False), _same_shape_setup())


@_compiled_once
def photon_noise_entry() -> Entry:
    """Return `add_photon_noise`."""
    return Entry(_noise(of_photons=True), _same_shape_setup())


@njit(inline="always")
def _entry(table, number):  # type: ignore[no-untyped-def]
    """Return an entry of a table of addresses."""
    return load_int64(np.int64(table) + 8 * number)


@njit(inline="always")
def _extent(shapes, array, axis):  # type: ignore[no-untyped-def]
    return _entry(_entry(shapes, array), axis)


@_compiled_once
def decode_entry(dtype: str) -> Entry:
    """Return `decode_image` for this element type of the image: float32, uint8, int16 or int32."""
    kind, item = np.dtype(dtype).type, np.dtype(dtype).itemsize
    finish_size = 2 if dtype == "float32" else 0

    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        height, width = _extent(in_shapes, 0, 0), _extent(in_shapes, 0, 1)
        planes = _extent(in_shapes, 5, 0) // 2
        status = array_at(_entry(outs, 1), 1, np.int32)
        payload = array_at(_entry(ins, 1), _extent(in_shapes, 1, 0), np.uint8)
        plan_size = _extent(in_shapes, 2, 0) // planes
        scaling_size = _extent(in_shapes, 3, 0) // planes
        flip = array_at(_entry(ins, 4), 2, np.int32)
        status[0] = 0
        for plane in range(planes):
            at = _entry(outs, 0) + plane * height * width * item
            out = array_at(at, (height, width, 1), kind)
            plan = array_at(_entry(ins, 2) + 8 * plane * plan_size, plan_size, np.int64)
            at = _entry(ins, 3) + 8 * plane * scaling_size
            scaling = array_at(at, scaling_size, np.float64)
            finish = array_at(_entry(ins, 5) + 8 * plane, finish_size, np.float32)
            status[0] |= decode_image(out, payload, plan, scaling, flip, finish)

    return Entry(run, _decode_setup())


@_compiled_once
def resize_entry(dtype: str, out_dtype: str) -> Entry:
    """Return `resize` for these element types of the image and the output: uint8 or float32."""
    kind, is_rounded = np.dtype(dtype).type, out_dtype == "uint8"

    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        channels = _extent(in_shapes, 0, 2)
        in_shape = (_extent(in_shapes, 0, 0), _extent(in_shapes, 0, 1), channels)
        rows, columns = _extent(in_shapes, 1, 0), _extent(in_shapes, 1, 1)
        image = array_at(_entry(ins, 0), in_shape, kind)
        flip = array_at(_entry(ins, 2), 2, np.int32)
        finish = array_at(_entry(ins, 3), (channels, 2), np.float32)
        out_shape = (channels, rows, columns)
        code = array_at(_entry(ins, 4), 1, np.int32)[0]
        part = (0.0, 0.0, float(in_shape[0]), float(in_shape[1]))
        if num_ins > 5:
            y, x, bottom, right = array_at(_entry(ins, 5), 4, np.float32)
            part = (float(y), float(x), float(bottom), float(right))
        if is_rounded:
            resized = np.empty(out_shape, np.float32)
            resize(resized, image, part, flip, finish, code)
            round_pixels(array_at(_entry(outs, 0), out_shape, np.uint8), resized)
        else:
            out = array_at(_entry(outs, 0), out_shape, np.float32)
            resize(out, image, part, flip, finish, code)

    return Entry(run, _resize_setup())


@_compiled_once
def nearest_entry(dtype: str) -> Entry:
    """Return `nearest` for this element type of the image."""
    kind = np.dtype(dtype).type

    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        channels = _extent(in_shapes, 0, 2)
        in_shape = (_extent(in_shapes, 0, 0), _extent(in_shapes, 0, 1), channels)
        rows, columns = _extent(in_shapes, 1, 0), _extent(in_shapes, 1, 1)
        image = array_at(_entry(ins, 0), in_shape, kind)
        numbers = array_at(_entry(ins, 2), 10, np.float64)
        outside = array_at(_entry(ins, 3), 1, np.float64)
        out = array_at(_entry(outs, 0), (channels, rows, columns), kind)
        nearest(out, image, numbers, kind(outside[0]))

    return Entry(run, _resize_setup())


@_compiled_once
def warp_entry() -> Entry:
    """Return `warp`."""

    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        height, width = _extent(in_shapes, 0, 0), _extent(in_shapes, 0, 1)
        out_shape = (_extent(out_shapes, 0, 1), _extent(out_shapes, 0, 2))
        out = array_at(_entry(outs, 0), out_shape, np.float32)
        image = array_at(_entry(ins, 0), (height, width), np.float32)
        numbers = _entry(ins, 2)
        matrix = array_at(numbers, (2, 3), np.float64)
        gain = array_at(numbers + 48, 1, np.float64)
        stretch = array_at(numbers + 56, NUM_PARAMETERS, np.float64)
        rest = array_at(numbers + 56 + 8 * NUM_PARAMETERS, NUM_SPECIAL + 6, np.float64)
        special = rest[:NUM_SPECIAL].astype(np.float32)
        whole = rest[NUM_SPECIAL + 2] == height and rest[NUM_SPECIAL + 3] == width
        order, reduce = int(rest[NUM_SPECIAL + 4]), int(rest[NUM_SPECIAL + 5])
        flip = array_at(_entry(ins, 3), 2, np.int32)
        warp(out, image, matrix, order, reduce, special, whole, gain[0], stretch, flip)

    return Entry(run, _resize_setup())


@_compiled_once
def retouch_entry() -> Entry:
    """Return `retouch`."""

    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        shape = (_extent(in_shapes, 0, 0), _extent(in_shapes, 0, 1), _extent(in_shapes, 0, 2))
        out = array_at(_entry(outs, 0), shape, np.float32)
        image = array_at(_entry(ins, 0), shape, np.float32)
        numbers, num_steps = _entry(ins, 1), _extent(in_shapes, 1, 0) // 2
        steps = array_at(numbers + 4, (num_steps, 2), np.float32)
        retouch(out, image, steps, array_at(numbers, 1, np.float32)[0])

    return Entry(run, _same_shape_setup())


def _noise(*, of_photons: bool) -> Any:
    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        values = _extent(in_shapes, 0, 0) * _extent(in_shapes, 0, 1) * _extent(in_shapes, 0, 2)
        out = array_at(_entry(outs, 0), values, np.float32)
        image = array_at(_entry(ins, 0), values, np.float32)
        numbers = array_at(_entry(ins, 1), _extent(in_shapes, 1, 0), np.float32)
        if of_photons:
            add_photon_noise(out, image, numbers)
        else:
            add_noise(out, image, numbers)

    return run


@_compiled_once
def stretch_entry() -> Entry:
    """Return `stretch_line` for each channel of an image."""

    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        channels = _extent(in_shapes, 0, 2)
        shape = (_extent(in_shapes, 0, 0) * _extent(in_shapes, 0, 1), channels)
        out = array_at(_entry(outs, 0), shape, np.float32)
        image = array_at(_entry(ins, 0), shape, np.float32)
        parameters = array_at(_entry(ins, 1), (channels, NUM_PARAMETERS), np.float32)
        for pixel in range(shape[0]):
            for channel in range(channels):
                out[pixel, channel] = image[pixel, channel]
        for channel in range(channels):
            stretch_line(out[:, channel], parameters[channel])

    return Entry(run, _same_shape_setup())


@_compiled_once
def choose_part_entry() -> Entry:
    """Return `choose_part`."""

    @cfunc(_RUN)
    def run(outs, out_shapes, out_ndims, num_outs, ins, in_shapes, in_ndims, num_ins):  # type: ignore[no-untyped-def]
        part = array_at(_entry(outs, 0), 4, np.float32)
        fractions = array_at(_entry(ins, 0), _extent(in_shapes, 0, 0), np.float32)
        shape = array_at(_entry(ins, 1), 3, np.int64)
        settings = array_at(_entry(ins, 2), 5, np.float32)
        choose_part(part, fractions, shape[0], shape[1], settings)

    @cfunc(_SETUP)
    def setup(out_shapes, out_ndims, num_outs, in_shapes, in_ndims, num_ins, num_samples):  # type: ignore[no-untyped-def]
        for sample in range(num_samples):
            store_int64(_entry(out_shapes, sample), 4)

    return Entry(run, setup)


@cache
def _decode_setup() -> Any:
    """Set the shapes of image and status, with height and width of the first input.

    The image has shape (height, width, 1), or (planes, height, width) with several planes. The
    status has shape (1,).
    """

    @cfunc(_SETUP)
    def setup(out_shapes, out_ndims, num_outs, in_shapes, in_ndims, num_ins, num_samples):  # type: ignore[no-untyped-def]
        for sample in range(num_samples):
            image = _entry(out_shapes, sample)
            planes = _extent(in_shapes, 5 * num_samples + sample, 0) // 2
            first = 8 if planes > 1 else 0
            store_int64(image + (16 if planes == 1 else 0), planes)
            store_int64(image + first, _extent(in_shapes, sample, 0))
            store_int64(image + first + 8, _extent(in_shapes, sample, 1))
            store_int64(_entry(out_shapes, num_samples + sample), 1)

    return setup


@cache
def _resize_setup() -> Any:
    """Set the output shape: channels of the first input, height and width of the second."""

    @cfunc(_SETUP)
    def setup(out_shapes, out_ndims, num_outs, in_shapes, in_ndims, num_ins, num_samples):  # type: ignore[no-untyped-def]
        for sample in range(num_samples):
            image = _entry(out_shapes, sample)
            store_int64(image, _extent(in_shapes, sample, 2))
            store_int64(image + 8, _extent(in_shapes, num_samples + sample, 0))
            store_int64(image + 16, _extent(in_shapes, num_samples + sample, 1))

    return setup


@cache
def _same_shape_setup() -> Any:
    """Set the output shape to the first input's, which has three axes."""

    @cfunc(_SETUP)
    def setup(out_shapes, out_ndims, num_outs, in_shapes, in_ndims, num_ins, num_samples):  # type: ignore[no-untyped-def]
        for sample in range(num_samples):
            for axis in range(3):
                extent = _extent(in_shapes, sample, axis)
                store_int64(_entry(out_shapes, sample) + 8 * axis, extent)

    return setup
