"""From stored FITS values to physical ones: out = BSCALE * stored + BZERO, NaN where BLANK.

Compiled by numba and called without the GIL from DALI's threads, one call a sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """Make a pointer of an address: numba cannot view the bytes of DALI's arrays as numbers."""
    del typing_context

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


@njit(nogil=True, cache=True)
def physical_values(out, stored, scaling):  # type: ignore[no-untyped-def]
    """Write the physical values of one image.

    Parameters
    ----------
    out : ndarray, shape (height, width, 1), float32
        Written in full; zeros where nothing is stored.
    stored : ndarray, shape (bytes,), uint8
        Stored values, native byte order, rows from the first.
    scaling : ndarray, shape (4,), float64
        BITPIX (8, 16, 32, -32, or 0 for nothing stored), BSCALE, BZERO, BLANK (NaN for none).

    Notes
    -----
    FITS Standard 4.0, section 4.4.2.5. As in astropy, 8- and 16-bit integers are scaled in float32
    and 32-bit integers in float64. Bytes that are missing are never read: the output is zero there.
    """
    bitpix, scale, zero, blank = int(scaling[0]), scaling[1], scaling[2], scaling[3]
    flat = out.reshape(-1)
    size = flat.size
    item = abs(bitpix) // 8
    if item == 0 or stored.size < size * item:
        flat[:] = 0
    elif bitpix == 8:
        _scale32(flat, stored, np.float32(scale), np.float32(zero), blank)
    elif bitpix == 16:
        values16 = carray(_pointer(stored.ctypes.data), size, np.int16)
        _scale32(flat, values16, np.float32(scale), np.float32(zero), blank)
    elif bitpix == 32:
        values32 = carray(_pointer(stored.ctypes.data), size, np.int32)
        for i in range(size):
            value = np.float64(values32[i])
            flat[i] = np.nan if value == blank else np.float32(value * scale + zero)
    else:
        flat[:] = carray(_pointer(stored.ctypes.data), size, np.float32)


@njit(nogil=True, cache=True)
def _scale32(flat, values, scale, zero, blank):  # type: ignore[no-untyped-def]
    for i in range(flat.size):
        value = np.float32(values[i])
        flat[i] = np.float32(np.nan) if value == blank else value * scale + zero
