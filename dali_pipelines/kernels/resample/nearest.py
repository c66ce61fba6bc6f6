"""Take the nearest pixels of an image on the CPU, exactly like `readers.targets.nearest`."""

from __future__ import annotations

import math

from dali_pipelines.kernels.jit import njit
from readers.targets.nearest import TO_NEAREST


@njit
def nearest(out, image, numbers, outside):  # type: ignore[no-untyped-def]
    """Write the sampled image.

    Parameters
    ----------
    out : ndarray, shape (channels, rows, columns)
        Output, written in full.
    image : ndarray, shape (height, width, channels)
        Part of an image that was read, at least 1x1.
    numbers : ndarray, shape (10,), float64
        Matrix from (x, y) in `out` to (x, y) in the whole image, row by row; first row and column
        of the part that was read; height and width of the whole image.
    outside : number
        Value of pixels outside the image.
    """
    channels, rows, columns = out.shape
    xx, xy, x0, yx, yy, y0, top, left, height, width = numbers
    for row in range(rows):
        # In the same order as with NumPy, so that both round alike.
        x_start, y_start = xy * row + x0, yy * row + y0
        for column in range(columns):
            x = math.floor(x_start + xx * column + TO_NEAREST)
            y = math.floor(y_start + yx * column + TO_NEAREST)
            if 0 <= x < width and 0 <= y < height:
                # Clip indices to the part that was read.
                i = min(max(y - int(top), 0), image.shape[0] - 1)
                j = min(max(x - int(left), 0), image.shape[1] - 1)
                for channel in range(channels):
                    out[channel, row, column] = image[i, j, channel]
            else:
                for channel in range(channels):
                    out[channel, row, column] = outside
