"""Convert a pixel of a FITS image from its stored bytes to its physical value, on any device.

Notes
-----
FITS Standard 4.0, section 4.4.2.5. As in astropy, 8- and 16-bit integers are scaled in float32 and
32-bit integers in float64.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.bits import (
    bits_of_float32,
    float32_of_bits,
    float64_of_bits,
    load_big_endian,
    product32,
    product64,
)
from dali_pipelines.kernels.jit import njit
from readers.fits.payload import PADDING, PLIO, QUANTIZED, RICE, SHUFFLED, UNQUANTIZED

_SIGN = 128
"""Offset that makes the BITPIX in STORED positive."""


@njit
def is_inside(place, length, stored, size, payload_size):  # type: ignore[no-untyped-def]
    """Return whether a tile of `size` pixels is inside the payload, and its length is right."""
    if place < 0 or length < 0 or place > payload_size - PADDING - length:
        return False
    return stored in (RICE, PLIO) or length == size * (abs(bitpix_of(stored)) // 8)


@njit
def bitpix_of(stored):  # type: ignore[no-untyped-def]
    """Return the BITPIX of values: STORED without its flags."""
    return (stored + _SIGN) % SHUFFLED - _SIGN


@njit
def is_shuffled(stored):  # type: ignore[no-untyped-def]
    """Return whether values of 2 or 4 bytes have the flag `SHUFFLED`."""
    return (stored + _SIGN) & SHUFFLED != 0 and abs(bitpix_of(stored)) in (16, 32)


@njit
def is_quantized(stored, dither):  # type: ignore[no-untyped-def]
    """Return whether a tile holds quantised floats; other tiles of the image may hold floats."""
    return dither != UNQUANTIZED and (stored == RICE or (stored + _SIGN) & QUANTIZED != 0)


@njit
def load_stored(address, bitpix):  # type: ignore[no-untyped-def]
    """Load a big-endian value: an int32, or the bits of a float32."""
    word = load_big_endian(address)
    if bitpix == 8:
        return np.int32(word >> np.uint64(56))
    if bitpix == 16:
        return np.int32(np.int64(word) >> 48)
    if bitpix == -64:
        return bits_of_float32(np.float32(float64_of_bits(word)))
    return np.int32(np.int64(word) >> 32)


@njit
def stored_kind(stored, bitpix, bytepix, dither):  # type: ignore[no-untyped-def]
    """Return the type of a decoded pixel's 32 bits: an integer of 8, 16 or 32 bits, or -32."""
    if stored == PLIO:
        return min(32, bitpix)
    if stored != RICE:
        kind = max(bitpix_of(stored), -32)
        return kind if bitpix < 0 else min(kind, bitpix)
    return 8 * bytepix if dither != UNQUANTIZED else min(8 * bytepix, bitpix)


@njit
def integer(pixel, kind):  # type: ignore[no-untyped-def]
    """Return the integer in the low bits of a decoded pixel."""
    if kind == 16:
        return np.int32(np.int16(pixel))
    if kind == 8:
        return np.int32(np.uint8(pixel))
    return np.int32(pixel)


@njit
def physical(pixel, kind, bitpix, scale, zero, blank):  # type: ignore[no-untyped-def]
    """Return the physical value of a decoded, unquantised pixel.

    Parameters
    ----------
    pixel : int32
        Decoded pixel.
    kind : int
        Its type, see `stored_kind`.
    bitpix : int
        BITPIX of the image.
    scale, zero, blank : float64
        BSCALE, BZERO, and BLANK (NaN for none).

    Returns
    -------
    float32
        NaN if the pixel is blank.
    """
    if kind == -32:
        return float32_of_bits(np.int32(pixel))
    stored = integer(pixel, kind)
    if bitpix == 32:
        wide = np.float64(stored)
        return np.float32(math.nan) if wide == blank else np.float32(product64(wide, scale) + zero)
    value = np.float32(stored)
    if value == np.float32(blank):
        return np.float32(math.nan)
    return product32(value, np.float32(scale)) + np.float32(zero)
