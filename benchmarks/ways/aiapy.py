"""What aiapy makes of level 1 files: the measure of the comparisons in `benchmarks.suites.aia`."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RADII = 1.25
"""Solar radii, within which pixels are compared."""
REDUCED = 4
"""Pixels that become one, along each axis, in the smaller images."""

PROCESSES = 2
"""As many as the cores that the comparison is made on."""

EXACT: dict[str, Any] = {"atol": 2e-3, "rtol": 1e-5}
"""Tolerances against aiapy's cubic spline on a float64 map."""


def aiapy_image(path: str, table: str, *, double: bool = False, **register: Any) -> NDArray[Any]:
    """Calibrate a file as aiapy's guide does."""
    from aiapy.calibrate import correct_degradation
    from aiapy_releases import version_of

    level15 = registered(path, double=double, **register)
    correction = _table(table)
    corrected = correct_degradation(level15, correction_table=correction, **version_of(correction))
    return corrected.data / corrected.exposure_time.to_value("s")


def registered(path: str, *, double: bool = False, **keywords: Any) -> Any:
    """Return aiapy's level 1.5 map of a level 1 file, of float64 pixels or of those that it has."""
    from aiapy.calibrate import register
    from sunpy.map import Map

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what headers lack that is not used here
        level1 = Map(path)
        if double:
            level1 = Map(level1.data.astype(float), level1.meta)
        return register(level1, **keywords)


@functools.cache
def _table(path: str) -> Any:
    from aiapy_releases import get_correction_table

    return get_correction_table(Path(path))


def area_mean(image: NDArray[Any], reduce: int) -> NDArray[Any]:
    """Average squares of pixels, NaN around the frame where they do not fit.

    aiapy's frames are 4094 pixels wide where CDELT is below 0.6, and centred alike.
    """
    import numpy as np

    image = fitted(image, tuple(-(-size // (2 * reduce)) * 2 * reduce for size in image.shape))
    rows, columns = (size // reduce for size in image.shape)
    return np.mean(image.reshape(rows, reduce, columns, reduce), axis=(1, 3))


def fitted(image: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Cut an image about its centre, or put NaN around it."""
    import numpy as np

    out = np.full(shape, np.nan, image.dtype)
    ours, theirs = [], []
    for mine, its in zip(shape, image.shape, strict=True):
        size = min(mine, its)
        ours.append(slice((mine - size) // 2, (mine + size) // 2))
        theirs.append(slice((its - size) // 2, (its + size) // 2))
    out[tuple(ours)] = image[tuple(theirs)]
    return out


class Spline:
    """What is expected: aiapy's spline in float64, in the grid of any of the ways."""

    def __init__(self, paths: list[str], make: Callable[[str], NDArray[Any]]) -> None:
        self.paths, self.make = paths, make
        self._image = functools.cache(self._whole)

    def __call__(self, row: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the expected pixels; NaN outside of 1.25 solar radii."""
        image = self._image(row)
        if shape[1] < image.shape[0] // 2:
            image = area_mean(image, REDUCED)
        return fitted(image, shape[1:])[None]

    def _whole(self, row: int) -> NDArray[Any]:
        import numpy as np

        image = self.make(self.paths[row])
        y, x = np.ogrid[: image.shape[0], : image.shape[1]]
        middle = (np.array(image.shape) - 1) / 2
        far = np.hypot(y - middle[0], x - middle[1]) > _RADII * _sun_pixels(self.paths[row])
        image[far] = np.nan
        return image


def _sun_pixels(path: str) -> float:
    """Return the radius of the Sun on the registered frame, in pixels."""
    header, scale = grid_of(path)
    return float(header["RSUN_OBS"]) / scale


def grid_of(path: str) -> tuple[Any, float]:
    """Return the header of a file, and the scale that aiapy brings it to, in arcsec per pixel."""
    from readers import AiaReader, Row
    from readers.aia.registration import frame_scale

    header = AiaReader().header(Row(0, path))
    return header, frame_scale(header)
