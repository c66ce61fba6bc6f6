"""Random numbers from a key and a counter, on the CPU and on a GPU.

Notes
-----
Philox-4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the tests
compare with its test vectors. Normal numbers are from the Box-Muller transform, with the
polynomials of `sinf` and `cosf` of Moshier's Cephes library.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.jit import njit
from dali_pipelines.kernels.stretch import log32

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@njit(forceinline=True)
def philox(key, counter):  # type: ignore[no-untyped-def]
    """Return four random words.

    Parameters
    ----------
    key : tuple of 2 uint64
        Key. All words are below 2**32.
    counter : tuple of 4 uint64
        Number of the block of random words, as four words.

    Returns
    -------
    tuple of 4 uint64
        Uniform in [0, 2**32).
    """
    k0, k1 = key
    a, b, c, d = counter
    for _ in range(10):
        high, low = a * _FACTORS[0], c * _FACTORS[1]
        a, b, c, d = (
            (low >> _HALF) ^ b ^ k0,
            low & _MASK,
            (high >> _HALF) ^ d ^ k1,
            high & _MASK,
        )
        k0, k1 = (k0 + _STEPS[0]) & _MASK, (k1 + _STEPS[1]) & _MASK
    return a, b, c, d


@njit
def key_of(fractions):  # type: ignore[no-untyped-def]
    """Return a key from two multiples of 2**-24 in [0, 1), float32."""
    return _word(fractions[0]), _word(fractions[1])


@njit
def _word(fraction):  # type: ignore[no-untyped-def]
    return np.uint64(np.int64(fraction * np.float32(1 << 24)))


@njit(forceinline=True)
def normals(first, second):  # type: ignore[no-untyped-def]
    """Return two independent standard normal numbers, float32, at most 6.7, from two words."""
    uniform = (np.float32(np.int64(first)) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = np.float32(math.sqrt(np.float32(-2) * log32(uniform)))
    quarter = np.int32(second >> np.uint64(30))
    place = np.float32(np.int32(second & np.uint64(0x3FFFFFFF)))
    angle = (place * np.float32(2.0**-30) - np.float32(0.5)) * np.float32(math.pi / 2)
    square = angle * angle
    sine = np.float32(-1.9515295891e-4) * square + np.float32(8.3321608736e-3)
    sine = (sine * square + np.float32(-1.6666654611e-1)) * square * angle + angle
    cosine = np.float32(2.443315711809948e-5) * square + np.float32(-1.388731625493765e-3)
    cosine = (cosine * square + np.float32(4.166664568298827e-2)) * square * square
    cosine = cosine - np.float32(0.5) * square + np.float32(1)
    # Rotate by `quarter` quarters of the circle.
    is_odd = quarter & np.int32(1)
    x, y = sine if is_odd else cosine, cosine if is_odd else sine
    x = -x if (quarter + is_odd) & np.int32(2) else x
    y = -y if quarter & np.int32(2) else y
    return radius * x, radius * y
