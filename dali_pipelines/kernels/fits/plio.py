"""Decode PLIO_1 tiles: masks as run lengths in 16-bit words.

Notes
-----
FITS Standard 4.0, section 10.4.3. The high 4 bits of a word are an instruction, the others a
number.
"""

from __future__ import annotations

import numpy as np

from dali_pipelines.kernels.bits import load_big_endian
from dali_pipelines.kernels.jit import njit

_ZEROS, _SET, _ADD, _SUBTRACT, _HIGHS, _ZEROS_AND_HIGH, _ADD_AND_HIGH, _SUBTRACT_AND_HIGH = range(8)
"""Instructions: write zeros; set, increase or decrease the high value; write high values; write
zeros, then one high value; increase the high value and write it; decrease it and write it."""

_LANES = 16
"""Pixels written at a time."""


@njit
def read_runs(pixels, at, end, high, left):  # type: ignore[no-untyped-def]
    """Decode the next pixels of a tile.

    Parameters
    ----------
    pixels : ndarray, shape (pixels,), int32
        Output; 0 after the last word.
    at, end : int64
        Addresses of the next word, and of the end of the words.
    high : int32
        High value, 1 at the start of a tile.
    left : ndarray, shape (2,), int32
        Pixels that the last instruction still has to write: zeros, then high values. Updated.

    Returns
    -------
    at, high
        Updated values; `at` is -1 if the tile is damaged.
    """
    done, size = np.int32(0), np.int32(pixels.size)
    while done < size:
        stop = done + min(left[0], size - done)
        left[0] -= stop - done
        _fill(pixels, done, stop, np.int32(0))
        done, stop = stop, stop + min(left[1], size - stop)
        left[1] -= stop - done
        _fill(pixels, done, stop, high)
        done = stop
        if done < size and at >= end:
            left[0] = size - done
        elif done < size:
            at, high = _instruction(at, end, high, left)
            if at < 0:
                break
    return at, high


@njit(forceinline=True)
def _fill(pixels, start, stop, value):  # type: ignore[no-untyped-def]
    """Write a value from `start` to `stop`, and to some pixels after `stop`.

    Most runs are too short for the vectors of a simple loop.
    """
    at = start
    while at < stop and at + _LANES <= pixels.size:
        for lane in range(_LANES):
            pixels[np.uint64(at + lane)] = value
        at += _LANES
    while at < stop:
        pixels[np.uint64(at)] = value
        at += 1


@njit(forceinline=True)
def _instruction(at, end, high, left):  # type: ignore[no-untyped-def]
    """Return updated arguments of `read_runs`, after reading one instruction."""
    word = load_big_endian(at)
    code = np.int32(word >> np.uint64(60))
    number = np.int32((word >> np.uint64(48)) & np.uint64(4095))
    at += 2
    if code > _SUBTRACT_AND_HIGH or (code == _SET and at >= end):
        return np.int64(-1), high
    if code == _SET:
        upper = np.int32(np.int16((word >> np.uint64(32)) & np.uint64(65535)))
        return at + 2, np.int32((upper << np.int32(12)) + number)
    if code in (_ZEROS, _ZEROS_AND_HIGH):
        left[1] = code == _ZEROS_AND_HIGH and number > 0
        left[0] = number - left[1]
    elif code == _HIGHS:
        left[1] = number
    else:
        high += number if code in (_ADD, _ADD_AND_HIGH) else -number
        left[1] = code >= _ADD_AND_HIGH
    return at, np.int32(high)
