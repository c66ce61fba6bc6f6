"""Kernels with one fault each, of a kind that the compiler or the emulator must find.

Each is launched with blocks of 32 threads, for 32 float32 to read and as many to write.
"""

from __future__ import annotations

import sys

import numpy as np
from numba import cuda, types

from dali_pipelines.kernels.bits import load_float32, load_int32, store_float32
from gpu_offline.kernels import Kernel

_FAR = 1 << 28


@cuda.jit
def sound(source, target):  # type: ignore[no-untyped-def]
    """Reverse the numbers, with no fault."""
    line, i = cuda.shared.array(32, np.float32), cuda.threadIdx.x
    line[i] = load_float32(source + 4 * i)
    cuda.syncthreads()
    store_float32(target + 4 * i, line[31 - i])


@cuda.jit
def scattered(source, target):  # type: ignore[no-untyped-def]
    """Read a number in each 32 bytes, as often as it can: slow, but no fault."""
    i = cuda.threadIdx.x
    store_float32(target + 4 * i, load_float32(source + 32 * (i % 4)))


@cuda.jit
def reads_out_of_bounds(source, target):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    store_float32(target + 4 * i, load_float32(source + 4 * i + 4))


@cuda.jit
def writes_out_of_bounds(source, target):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    store_float32(target + 4 * i + 4, load_float32(source + 4 * i))


@cuda.jit
def writes_an_input(source, target):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    store_float32(source + 4 * i, load_float32(target + 4 * i))


@cuda.jit
def is_misaligned(source, target):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    store_float32(target + 4 * i, load_float32(source + 3 * i))


@cuda.jit
def reads_shared_out_of_bounds(source, target):  # type: ignore[no-untyped-def]
    line, i = cuda.shared.array(32, np.float32), cuda.threadIdx.x
    line[i] = load_float32(source + 4 * i)
    cuda.syncthreads()
    store_float32(target + 4 * i, line[i + 1])


@cuda.jit
def reads_in_front_of_shared(source, target):  # type: ignore[no-untyped-def]
    line, i = cuda.shared.array(32, np.float32), cuda.threadIdx.x
    line[i] = load_float32(source + 4 * i)
    cuda.syncthreads()
    store_float32(target + 4 * i, line[np.uint64(i) - np.uint64(1)])


@cuda.jit
def reads_what_nobody_wrote(source, target):  # type: ignore[no-untyped-def]
    """Read one number too many, of little weight."""
    line, i = cuda.shared.array(32, np.float32), cuda.threadIdx.x
    if i < 31:
        line[i] = load_float32(source + 4 * i)
    cuda.syncthreads()
    store_float32(target + 4 * i, np.float32(1e-8) * line[i])


@cuda.jit
def reads_before_it_is_written(source, target):  # type: ignore[no-untyped-def]
    line, i = cuda.shared.array(32, np.float32), cuda.threadIdx.x
    line[i] = load_float32(source + 4 * i)
    store_float32(target + 4 * i, line[31 - i])


@cuda.jit
def writes_what_others_read(source, target):  # type: ignore[no-untyped-def]
    line, i = cuda.shared.array(32, np.float32), cuda.threadIdx.x
    line[i] = load_float32(source + 4 * i)
    cuda.syncthreads()
    value = line[31 - i]
    line[i] = value + np.float32(1)
    cuda.syncthreads()
    store_float32(target + 4 * i, line[i])


@cuda.jit
def half_ends_before_a_barrier(source, target):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if load_int32(source + 4 * i) == 0 and i < 16:
        cuda.syncthreads()
    store_float32(target + 4 * i, np.float32(i))


@cuda.jit
def halves_wait_at_two_barriers(source, target):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if i < 16:
        cuda.syncthreads()
        store_float32(target + 4 * i, load_float32(source + 4 * i))
    else:
        store_float32(target + 4 * i, np.float32(i))
        cuda.syncthreads()


@cuda.jit
def two_threads_write_one_number(source, target):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    store_float32(target + 4 * (i // 2), load_float32(source + 4 * i))


@cuda.jit
def reads_what_another_block_wrote(source, target):  # type: ignore[no-untyped-def]
    """Copy one half, then in the other block that copy."""
    i, block = cuda.threadIdx.x, cuda.blockIdx.x
    if i < 16:
        value = load_float32((target if block else source) + 4 * i)
        store_float32(target + 4 * (16 * block + i), value)


@cuda.jit
def writes_what_another_block_read(source, target):  # type: ignore[no-untyped-def]
    i, block = cuda.threadIdx.x, cuda.blockIdx.x
    if i < 16:
        value = load_float32((source if block else target + 64) + 4 * i)
        store_float32(target + 4 * (16 * block + i), value)


@cuda.jit
def far(source, target):  # type: ignore[no-untyped-def]
    """Read numbers that lie 256 MiB apart."""
    i = np.int64(cuda.threadIdx.x)
    store_float32(target + 4 * i, load_float32(source + i * _FAR))


@cuda.jit
def overflows_an_offset(source, target):  # type: ignore[no-untyped-def]
    """Do so with offsets of 32 bits."""
    i = np.int32(cuda.threadIdx.x)
    store_float32(target + 4 * i, load_float32(source + np.int32(i * np.int32(_FAR))))


@cuda.jit
def uses_a_stack(source, target):  # type: ignore[no-untyped-def]
    """Keep an array that is indexed by what no compiler knows."""
    i, array = cuda.threadIdx.x, cuda.local.array(32, np.float32)
    for k in range(32):
        array[load_int32(source + 4 * k) & 31] = load_float32(source + 4 * k)
    store_float32(target + 4 * i, array[i])


@cuda.jit(launch_bounds=(1024, 2))
def spills(source, target):  # type: ignore[no-untyped-def]
    """Need more values at a time than the 32 registers that the bounds leave."""
    i = cuda.threadIdx.x
    values = (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 12.5, 13.5, 14.5, 15.5)
    a, b, c, d, e, f, g, h, j, k, m, n, o, p, q, r = values
    for turn in range(1, 33):
        x = np.float64(load_float32(source + 4 * (i * turn % 32)))
        a, b, c, d = a * x + b, b * x + c, c * x + d, d * x + e
        e, f, g, h = e * x + f, f * x + g, g * x + h, h * x + j
        j, k, m, n = j * x + k, k * x + m, m * x + n, n * x + o
        o, p, q, r = o * x + p, p * x + q, q * x + r, r * x + a
    total = a * b + c * d + e * f + g * h + j * k + m * n + o * p + q * r
    store_float32(target + 4 * i, np.float32(total))


KERNELS = tuple(
    Kernel(sys.modules[__name__], name, (types.int64,) * 2, 32)
    for name, value in list(globals().items())
    if hasattr(value, "py_func") and value.py_func.__module__ == __name__
)
