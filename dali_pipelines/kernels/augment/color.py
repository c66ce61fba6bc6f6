"""Change the colours of an image by a sequence of steps, each with a code and a magnitude.

On a GPU `touched` and `value_touched` change one pixel. On a CPU `retouch` changes all pixels, with
a loop for each step; most loops compile to vector instructions.

Notes
-----
Results are those of torchvision.transforms.v2.functional for floats. Contrast scales the difference
from the mean of the gray image, 0.299 R + 0.587 G + 0.114 B, after the previous steps; NaN pixels
are not counted. An image without three channels is gray: saturation and hue do not change it.
"""

from __future__ import annotations

import math

import numpy as np

from dali_pipelines.kernels.bits import quotient32
from dali_pipelines.kernels.jit import njit

BRIGHTNESS, CONTRAST, SATURATION, HUE, POSTERIZE, SOLARIZE = range(6)
"""Codes of the steps. The magnitude of brightness, contrast and saturation is a factor: 0 removes
them, 1 keeps the image. For hue it is a fraction of the circle, -0.5 to 0.5; for posterize the
distance between the remaining levels; for solarize the least value that is inverted."""

_RED, _GREEN, _BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)
_ZERO, _ONE = np.float32(0), np.float32(1)


@njit
def retouch(out, image, steps, largest):  # type: ignore[no-untyped-def]
    """Apply the steps one after the other.

    Parameters
    ----------
    out : ndarray, shape (height, width, channels), float32
        Output. All arrays are C-contiguous.
    image : ndarray, shape (height, width, channels), float32
        Image.
    steps : ndarray, shape (steps, 2), float32
        Code and magnitude of each step.
    largest : float32
        Values are clamped to 0 ... `largest` after each step; infinity turns this off.
    """
    line, source = out.reshape(out.size), image.reshape(image.size)
    for i in range(line.size):
        line[i] = source[i]
    is_rgb = image.shape[2] == 3
    for step in range(steps.shape[0]):
        code, magnitude = int(steps[step, 0]), steps[step, 1]
        mean = gray_mean(line, is_rgb) if code == CONTRAST else _ZERO
        if code in (SATURATION, HUE):
            if is_rgb:
                _colors_touched(line, code, magnitude, largest)
        else:
            _values_touched(line, code, magnitude, mean, largest)


@njit
def _values_touched(line, code, magnitude, mean, largest):  # type: ignore[no-untyped-def]
    low = lowest(largest)
    if code <= CONTRAST:  # or BRIGHTNESS
        offset = mean * (_ONE - magnitude)
        for i in range(line.size):
            line[i] = clamped(line[i] * magnitude + offset, low, largest)
    else:
        for i in range(line.size):
            line[i] = value_touched(line[i], code, magnitude, mean, largest)


@njit
def _colors_touched(line, code, magnitude, largest):  # type: ignore[no-untyped-def]
    if code == SATURATION:
        low = lowest(largest)
        for i in range(line.size // 3):
            red, green, blue = line[3 * i], line[3 * i + 1], line[3 * i + 2]
            red, green, blue = _saturated(red, green, blue, magnitude)
            line[3 * i] = clamped(red, low, largest)
            line[3 * i + 1] = clamped(green, low, largest)
            line[3 * i + 2] = clamped(blue, low, largest)
    else:
        for i in range(line.size // 3):
            red, green, blue = line[3 * i], line[3 * i + 1], line[3 * i + 2]
            red, green, blue = _turned(red, green, blue, magnitude)
            line[3 * i], line[3 * i + 1], line[3 * i + 2] = red, green, blue


@njit
def gray_mean(line, is_rgb):  # type: ignore[no-untyped-def]
    """Return the mean of the gray image, float32; 0 if all pixels are NaN."""
    total, count = 0.0, 0.0
    if is_rgb:
        for i in range(line.size // 3):
            value = gray(line[3 * i], line[3 * i + 1], line[3 * i + 2])
            if value == value:
                total += value
                count += 1
    else:
        for value in line:
            if value == value:
                total += value
                count += 1
    return np.float32(total / count) if count > 0 else _ZERO


@njit
def gray(red, green, blue):  # type: ignore[no-untyped-def]
    """Return the luma of a pixel."""
    return _RED * red + _GREEN * green + _BLUE * blue


@njit
def touched(red, green, blue, code, magnitude, mean, largest):  # type: ignore[no-untyped-def]
    """Return a pixel after one step, clamped; `mean` is the mean of the gray image."""
    if code == HUE:
        return _turned(red, green, blue, magnitude)
    if code == SATURATION:
        low = lowest(largest)
        red, green, blue = _saturated(red, green, blue, magnitude)
        return (
            clamped(red, low, largest),
            clamped(green, low, largest),
            clamped(blue, low, largest),
        )
    return (
        value_touched(red, code, magnitude, mean, largest),
        value_touched(green, code, magnitude, mean, largest),
        value_touched(blue, code, magnitude, mean, largest),
    )


@njit
def value_touched(value, code, magnitude, mean, largest):  # type: ignore[no-untyped-def]
    """Return a value of a gray image, or of one channel, after one step."""
    if code <= CONTRAST:  # or BRIGHTNESS
        offset = mean * (_ONE - magnitude) if code == CONTRAST else _ZERO
        value = value * magnitude + offset
    elif code == POSTERIZE:
        value = np.float32(math.floor(value / magnitude)) * magnitude
    elif code == SOLARIZE:
        value = value if value < magnitude else largest - value
    return clamped(value, lowest(largest), largest)


@njit
def lowest(largest):  # type: ignore[no-untyped-def]
    """Return the lower limit of values: 0, or -infinity if the upper limit is infinite."""
    return _ZERO if largest < np.float32(math.inf) else np.float32(-math.inf)


@njit
def clamped(value, low, high):  # type: ignore[no-untyped-def]
    """Limit a value; NaN stays."""
    value = low if value < low else value
    return high if value > high else value


@njit
def _saturated(red, green, blue, factor):  # type: ignore[no-untyped-def]
    offset = gray(red, green, blue) * (_ONE - factor)
    return red * factor + offset, green * factor + offset, blue * factor + offset


@njit(forceinline=True)
def _turned(red, green, blue, shift):  # type: ignore[no-untyped-def]
    """Shift the hue in HSV, between the least and the largest value of the pixel."""
    high = _larger(red, _larger(green, blue))
    chroma = high + _larger(-red, _larger(-green, -blue))
    inverse = quotient32(_ONE, chroma if chroma > _ZERO else _ONE)
    hue = (red - green) * inverse + np.float32(4)
    hue = (blue - red) * inverse + np.float32(2) if high == green else hue
    hue = (green - blue) * inverse if high == red else hue
    hue = hue + np.float32(6) * shift
    return (
        high - chroma * _share(hue + np.float32(5)),
        high - chroma * _share(hue + np.float32(3)),
        high - chroma * _share(hue + np.float32(1)),
    )


@njit
def _larger(a, b):  # type: ignore[no-untyped-def]
    return a if a > b else b


@njit
def _share(sextants):  # type: ignore[no-untyped-def]
    """Return the share of the chroma to subtract; `sextants` is a hue from -6 to 18."""
    positive = sextants + np.float32(6)
    turns = np.float32(np.int32(positive * np.float32(1 / 6)))
    place = positive - np.float32(6) * turns
    rest = np.float32(4) - place
    share = place if place < rest else rest
    share = share if share > _ZERO else _ZERO
    return share if share < _ONE else _ONE
