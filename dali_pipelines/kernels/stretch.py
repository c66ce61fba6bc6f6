"""Stretch pixels: unit, clip, curve, mean and std, second clip. See `dali_pipelines.stretch`.

`stretched` computes one pixel on any device. On a CPU `stretch_line` computes many pixels, with a
loop for each curve that compiles to vector instructions. libm is not used: its log1p takes 13 ns
per pixel. These loops take 0.1 (none), 0.2 (sqrt), 0.7 (log1p) and 1.2 ns (asinh) per pixel on one
core with AVX-512, and twice as long without.

Notes
-----
All arithmetic is float32. `log1p32` and `asinh32` have a relative error of at most 1.5e-7. Every
seventh float32 was tried once; the tests try every 1009th. The polynomial is from `logf` of
Moshier's Cephes library.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.bits import (
    bits_of_float32,
    float32_of_bits,
    load_float64,
    quotient32,
)
from dali_pipelines.kernels.jit import njit
from dali_pipelines.kernels.stretch_parameters import (
    ASINH,
    CEILING,
    FACTOR,
    FLOOR,
    HIGH,
    KIND,
    LOG1P,
    LOW,
    MEAN,
    SCALE,
    SIGNED_LOG1P,
    SQRT,
    STEEPNESS,
)

_LN2 = np.float32(0.6931472)
_MOST = np.float32(3.4028235e38)


@njit
def constants(parameters):  # type: ignore[no-untyped-def]
    """Load the parameters as a tuple of float32. Loads in a loop would prevent vectors."""
    return (
        np.float32(parameters[KIND]),
        np.float32(parameters[SCALE]),
        np.float32(parameters[LOW]),
        np.float32(parameters[HIGH]),
        np.float32(parameters[STEEPNESS]),
        np.float32(parameters[MEAN]),
        np.float32(parameters[FACTOR]),
        np.float32(parameters[FLOOR]),
        np.float32(parameters[CEILING]),
    )


@njit
def constants_at(address):  # type: ignore[no-untyped-def]
    """Load float64 parameters from an address, for kernels on a GPU."""
    return (
        np.float32(load_float64(address + 8 * KIND)),
        np.float32(load_float64(address + 8 * SCALE)),
        np.float32(load_float64(address + 8 * LOW)),
        np.float32(load_float64(address + 8 * HIGH)),
        np.float32(load_float64(address + 8 * STEEPNESS)),
        np.float32(load_float64(address + 8 * MEAN)),
        np.float32(load_float64(address + 8 * FACTOR)),
        np.float32(load_float64(address + 8 * FLOOR)),
        np.float32(load_float64(address + 8 * CEILING)),
    )


@njit
def stretched(value, parameters):  # type: ignore[no-untyped-def]
    """Stretch one pixel on a GPU; on a CPU prefer `stretch_line`.

    Parameters
    ----------
    value : float32
        Pixel in the units that `dali_pipelines.stretch.Stretch` expects.
    parameters : tuple of float32 or ndarray, shape (NUM_PARAMETERS,), float32 or float64
        From `constants`, `constants_at` or `Stretch.parameters`.

    Returns
    -------
    float32
        NaN if `value` is NaN.
    """
    fields = constants(parameters)
    kind = int(fields[KIND])
    x = _begun(value, fields)
    if kind == SQRT:
        x = math.sqrt(x)
    elif kind == LOG1P:
        x = log1p32(x)
    elif kind == SIGNED_LOG1P:
        x = signed_log1p32(x)
    elif kind == ASINH:
        x = asinh32(x * fields[STEEPNESS])
    return _finished(x, fields)


@njit
def stretch_line(line, parameters):  # type: ignore[no-untyped-def]
    """Stretch pixels in place, each like `stretched`.

    Parameters
    ----------
    line : ndarray, shape (pixels,), float32
        Pixels with any stride; contiguous pixels are fastest.
    parameters : ndarray, shape (NUM_PARAMETERS,), float32 or float64
        From `Stretch.parameters`.
    """
    fields = constants(parameters)
    kind = int(fields[KIND])
    if kind == SQRT:
        for i in range(line.size):
            line[i] = _finished(math.sqrt(_begun(line[i], fields)), fields)
    elif kind == LOG1P:
        for i in range(line.size):
            line[i] = _finished(log1p32(_begun(line[i], fields)), fields)
    elif kind == SIGNED_LOG1P:
        for i in range(line.size):
            line[i] = _finished(signed_log1p32(_begun(line[i], fields)), fields)
    elif kind == ASINH:
        for i in range(line.size):
            line[i] = _finished(asinh32(_begun(line[i], fields) * fields[STEEPNESS]), fields)
    else:
        for i in range(line.size):
            line[i] = _finished(_begun(line[i], fields), fields)


@njit
def _begun(value, fields):  # type: ignore[no-untyped-def]
    return _clipped(value * fields[SCALE], fields[LOW], fields[HIGH])


@njit
def _finished(x, fields):  # type: ignore[no-untyped-def]
    return _clipped((x - fields[MEAN]) * fields[FACTOR], fields[FLOOR], fields[CEILING])


@njit
def _clipped(x, low, high):  # type: ignore[no-untyped-def]
    x = low if x < low else x  # min and max would drop NaN
    return high if x > high else x


@njit
def log1p32(x):  # type: ignore[no-untyped-def]
    """Return log(1 + x) of a float32 above -1, without branches.

    Notes
    -----
    1 + x is ``2**power * (1 + f)`` with f between sqrt(1/2) - 1 and sqrt(2) - 1. The rounding error
    of 1 + x is added to f, which for small x is therefore x itself.
    """
    one = np.float32(1)
    u = one + x
    bits = bits_of_float32(u)
    # Each step converts to int32: numba widens integers to 64 bits, which takes twice the vectors.
    power = np.int32(np.int32(bits - np.int32(0x3F3504F3)) >> np.int32(23))
    mantissa = float32_of_bits(np.int32(bits - np.int32(power << np.int32(23))))
    # 2**-power; 2**-128 becomes 0, as there is no rounding error to scale.
    shift = power if power < np.int32(127) else np.int32(127)
    down = float32_of_bits(np.int32(np.int32(0x3F800000) - np.int32(shift << np.int32(23))))
    result = _logarithm((mantissa - one) + (x - (u - one)) * down, power)
    return x if x > _MOST else result  # infinity


@njit
def log32(x):  # type: ignore[no-untyped-def]
    """Return log(x) of a positive, normal float32, without branches."""
    bits = bits_of_float32(x)
    power = np.int32(np.int32(bits - np.int32(0x3F3504F3)) >> np.int32(23))
    mantissa = float32_of_bits(np.int32(bits - np.int32(power << np.int32(23))))
    return _logarithm(mantissa - np.float32(1), power)


@njit
def _logarithm(f, power):  # type: ignore[no-untyped-def]
    """Return log(1 + f) + power log 2, for f between sqrt(1/2) - 1 and sqrt(2) - 1."""
    p = np.float32(7.0376836292e-2)
    p = p * f + np.float32(-1.1514610310e-1)
    p = p * f + np.float32(1.1676998740e-1)
    p = p * f + np.float32(-1.2420140846e-1)
    p = p * f + np.float32(1.4249322787e-1)
    p = p * f + np.float32(-1.6668057665e-1)
    p = p * f + np.float32(2.0000714765e-1)
    p = p * f + np.float32(-2.4999993993e-1)
    p = p * f + np.float32(3.3333331174e-1)
    square = f * f
    # log 2 is the sum of two parts. The product of the large part and the power is exact.
    number = np.float32(power)
    small = p * f * square + number * np.float32(-2.12194440e-4) - np.float32(0.5) * square
    return (f + small) + number * np.float32(0.693359375)


@njit
def signed_log1p32(x):  # type: ignore[no-untyped-def]
    """Return sign(x) log(1 + abs(x)) of a float32."""
    size = log1p32(abs(x))
    return -size if x < np.float32(0) else size


@njit
def asinh32(x):  # type: ignore[no-untyped-def]
    """Return asinh of a float32, without branches.

    Notes
    -----
    ``sign(x) log1p(abs(x) + x**2 / (1 + sqrt(1 + x**2)))``, or ``log(2 abs(x))`` where the square
    would overflow.
    """
    one = np.float32(1)
    size = abs(x)
    far = size > np.float32(1e9)
    near = size + quotient32(size * size, one + math.sqrt(size * size + one))
    y = log1p32(size if far else near) + (_LN2 if far else np.float32(0))
    return -y if x < np.float32(0) else y
