"""Add noise to an image: normal noise, or photon noise and read noise.

On any device the noise of a value depends only on a key and on the position in the image.

Notes
-----
Photon counts with a mean below `_MANY` are the exact inverse of the Poisson distribution at 64
random bits. Counts with a larger mean are the rounded Cornish-Fisher expansion in Giles, "Algorithm
955: Approximation of the inverse Poisson cumulative distribution function", ACM TOMS 42, 2016, to
order 1/mean: 2 of 10,000 differ from the exact inverse, by one.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.augment.philox import key_of, normals, philox
from dali_pipelines.kernels.bits import quotient64
from dali_pipelines.kernels.jit import njit

VALUES = 4
"""Number of values that share one block of random words."""
_MANY = 16.0
_COUNTLESS = 1e15
_ROUND = 1.5 * 2.0**52
"""Constant for rounding: if it is added and then subtracted, a number below 2**51 is rounded."""
_ZERO, _LOW, _HIGH = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(32)


@njit
def add_noise(out, image, numbers):  # type: ignore[no-untyped-def]
    """Add normal noise.

    Parameters
    ----------
    out, image : ndarray, shape (values,), float32
        Output and input.
    numbers : ndarray, shape (3,), float32
        Two fractions for `key_of`, and the standard deviation.
    """
    key, std = key_of(numbers), numbers[2]
    full = image.size // VALUES
    for block in range(full):
        a, b, c, d = normal_block(key, np.uint64(block))
        at = VALUES * block
        out[at], out[at + 1] = image[at] + a * std, image[at + 1] + b * std
        out[at + 2], out[at + 3] = image[at + 2] + c * std, image[at + 3] + d * std
    rest = normal_block(key, np.uint64(full))
    for place in range(VALUES * full, image.size):
        out[place] = image[place] + rest[place - VALUES * full] * std


@njit(forceinline=True)
def normal_block(key, block):  # type: ignore[no-untyped-def]
    """Return normal random numbers for four consecutive values."""
    a, b, c, d = philox(key, (block & _LOW, block >> _HIGH, _ZERO, _ZERO))
    first, second = normals(a, b)
    third, fourth = normals(c, d)
    return first, second, third, fourth


@njit
def add_photon_noise(out, image, numbers):  # type: ignore[no-untyped-def]
    """Count photons and read them out.

    Parameters
    ----------
    out, image : ndarray, shape (values,), float32
        Output and input.
    numbers : ndarray, shape (4,), float32
        Two fractions for `key_of`, electrons per unit of the image, and the standard deviation of
        the read noise in electrons.
    """
    key, gain, read_noise = key_of(numbers), np.float64(numbers[2]), np.float64(numbers[3])
    for place in range(image.size):  # compiles to vector instructions
        words = _words(key, place)
        out[place] = _exposed_to_many(image[place], words, gain, read_noise)
    for place in range(image.size):
        if _is_faint(image[place], gain):
            words = _words(key, place)
            out[place] = _exposed_to_few(image[place], words, gain, read_noise)


@njit
def exposed(value, key, place, gain, read_noise):  # type: ignore[no-untyped-def]
    """Return a value with noise. NaN and infinity stay; values below 0 have no photons."""
    words = _words(key, place)
    if _is_faint(value, gain):
        return _exposed_to_few(value, words, gain, read_noise)
    return _exposed_to_many(value, words, gain, read_noise)


@njit
def _is_faint(value, gain):  # type: ignore[no-untyped-def]
    return value > np.float32(0) and np.float64(value) * gain < _MANY


@njit(forceinline=True)
def _words(key, place):  # type: ignore[no-untyped-def]
    number = np.uint64(place)
    return philox(key, (number & _LOW, number >> _HIGH, _ZERO, _ZERO))


@njit(forceinline=True)
def _exposed_to_many(value, words, gain, read_noise):  # type: ignore[no-untyped-def]
    mean = np.float64(value) * gain
    likely = mean if mean > _MANY else _MANY
    z, root = np.float64(normals(words[0], words[1])[0]), math.sqrt(likely)
    square = z * z
    skew = square / 6 - 1 / 6
    small = (square / 72 + 1 / 36) * quotient64(z, root)
    smaller = quotient64(-8 / 405 + square * (7 / 810 + square / 270), likely)
    count = (likely + root * z + skew - small + smaller + _ROUND) - _ROUND
    count = count if mean > 0.0 else mean
    count = count if mean < _COUNTLESS else mean
    count = count + np.float64(normals(words[2], words[3])[0]) * read_noise
    result = np.float32(quotient64(count, gain))
    return result if abs(value) < np.float32(math.inf) else value


@njit
def _exposed_to_few(value, words, gain, read_noise):  # type: ignore[no-untyped-def]
    mean = np.float64(value) * gain
    high = np.float64(np.int64(words[0])) * 2.0**-32
    uniform = high + (np.float64(np.int64(words[1])) + 0.5) * 2.0**-64
    likely = math.exp(-mean)
    count, below = 0.0, likely
    while uniform > below and likely > 0.0:
        count += 1.0
        likely *= mean / count
        below += likely
    count += np.float64(normals(words[2], words[3])[0]) * read_noise
    return np.float32(quotient64(count, gain))
