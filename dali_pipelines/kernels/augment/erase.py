"""Choose a part of an image to erase."""

from __future__ import annotations

import math

from dali_pipelines.kernels.jit import njit

ATTEMPTS = 10
"""Maximum number of attempts, as in torchvision."""
NUM_FRACTIONS = 3 + 2 * ATTEMPTS

P, LEAST_AREA, MOST_AREA, LEAST_RATIO, MOST_RATIO = range(5)
"""Indices of the settings."""


@njit
def choose_part(part, fractions, height, width, settings):  # type: ignore[no-untyped-def]
    """Choose a part like torchvision's RandomErasing.

    Parameters
    ----------
    part : ndarray, shape (4,), float32
        Output: y, x, height and width in pixels; all 0 if no part is erased.
    fractions : ndarray, shape (NUM_FRACTIONS,), float32
        Random numbers in [0, 1).
    height, width : int
        Shape of the image.
    settings : ndarray, shape (5,), float32
        Probability, least and most share of the area, least and most ratio of height to width
        (log-uniform).
    """
    part[:] = 0
    if not fractions[0] < settings[P]:
        return
    log_least, log_most = math.log(settings[LEAST_RATIO]), math.log(settings[MOST_RATIO])
    for attempt in range(ATTEMPTS):
        share = (
            settings[LEAST_AREA]
            + (settings[MOST_AREA] - settings[LEAST_AREA]) * fractions[3 + 2 * attempt]
        )
        ratio = math.exp(log_least + (log_most - log_least) * fractions[4 + 2 * attempt])
        area = height * width * share
        rows, columns = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if rows < height and columns < width:
            part[0] = math.floor(fractions[1] * (height - rows + 1))
            part[1] = math.floor(fractions[2] * (width - columns + 1))
            part[2], part[3] = rows, columns
            return
