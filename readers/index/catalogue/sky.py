"""Search for the positions on the sky that an image shows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.index.catalogue.headers import ImageFacts

if TYPE_CHECKING:
    from astropy.coordinates import BaseCoordinateFrame
    from astropy.wcs import WCS

_FRAMES = ("icrs", "fk5", "fk4", "galactic")
_GRID = 9
"""Number of points on each axis of an image for its footprint on the sky."""
_WHOLE_SKY = 2.1
"""A number larger than any chord of the unit sphere."""
_KEPT_FRAMES = 4
_CLOSE = 0.1
"""Largest change of a position, in pixels, by a conversion to the sky and back. After a larger
change, an iteration did not converge."""


class Cone(NamedTuple):
    """A circle on the sky around an image and its margin."""

    centre: NDArray[np.float64]
    """Unit vector, shape (3,)."""
    chord: float
    """Radius, as the length of a chord of the unit sphere."""
    pixel: float
    """Shortest side of a pixel, as the length of a chord."""


def unit_vectors(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return unit vectors of longitudes and latitudes in degrees, shape (n, 3)."""
    lon, lat = np.radians(lon), np.radians(lat)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)


class SkyPositions:
    """Positions in one frame of the sky, sorted along the axis of their largest spread.

    Parameters
    ----------
    lon, lat : ndarray, shape (n,)
        Degrees; NaN for no position.
    """

    def __init__(self, lon: NDArray[np.float64], lat: NDArray[np.float64]) -> None:
        self.lon, self.lat = lon, lat
        vectors = unit_vectors(lon, lat)
        good = np.flatnonzero(np.isfinite(vectors).all(axis=1))
        vectors = vectors[good]
        spread = vectors - vectors.sum(axis=0) / max(len(good), 1)
        self._axis = np.linalg.eigh(spread.T @ spread)[1][:, -1]
        along = vectors @ self._axis
        order = np.argsort(along)
        self._rows, self._along, self._vectors = good[order], along[order], vectors[order]

    def inside(self, cone: Cone) -> NDArray[np.int64]:
        """Return the numbers of the positions in a circle, ascending."""
        middle = float(cone.centre @ self._axis)
        ends = np.searchsorted(self._along, [middle - cone.chord, middle + cone.chord])
        part = slice(*ends)
        near = self._vectors[part] @ cone.centre >= 1 - cone.chord**2 / 2
        return np.sort(self._rows[part][near])


class Sky:
    """Positions of a catalogue in the frames of images.

    Parameters
    ----------
    ra, dec : ndarray, shape (n,)
        Degrees, ICRS; NaN for no position.
    """

    def __init__(self, ra: NDArray[np.float64], dec: NDArray[np.float64]) -> None:
        self._icrs = SkyPositions(ra, dec)
        self._others: dict[str, SkyPositions] = {}

    @cached_property
    def _coordinates(self) -> BaseCoordinateFrame:
        from astropy import units
        from astropy.coordinates import ICRS

        return ICRS(self._icrs.lon * units.deg, self._icrs.lat * units.deg)

    def on_image(
        self, image: ImageFacts, margin: tuple[float, float], rows: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the positions on or near an image: their numbers, ascending, and their pixels.

        Pixels are (y, x) from the middle of the first pixel, shape (k, 2). `margin` is the number
        of rows and columns around the image in which positions are found, too. `rows` are the
        positions to consider; by default all in the circle around the image.

        Raises
        ------
        ValueError
            If the image is not in a frame of the sky, e.g. an image of a planet. astropy may raise
            many other errors.
        """
        assert image.wcs is not None
        sky = self._in_frame_of(image.wcs)
        cone = _cone(image, margin)
        rows = sky.inside(cone) if rows is None else rows
        if not len(rows):
            return rows, np.empty((0, 2))
        lon, lat = sky.lon[rows], sky.lat[rows]
        x, y = image.wcs.all_world2pix(*_ordered(image.wcs, lon, lat), 0, quiet=True)
        found = np.stack([y, x], -1)
        limits = np.array([image.height, image.width]) + margin
        with np.errstate(invalid="ignore"):  # NaN for positions that a projection cannot show
            near = ((found >= -np.array(margin) - 1) & (found <= limits)).all(axis=1)
        rows, found = rows[near], found[near]
        back = _vectors(image.wcs, found[:, 1], found[:, 0])
        missed = back - unit_vectors(lon[near], lat[near])
        good = np.linalg.norm(missed, axis=1) <= _CLOSE * cone.pixel
        return rows[good], found[good]

    def _in_frame_of(self, wcs: WCS) -> SkyPositions:
        from astropy.wcs.utils import wcs_to_celestial_frame

        try:
            frame = wcs_to_celestial_frame(wcs)
        except ValueError:
            frame = None
        if frame is None or frame.name not in _FRAMES:
            kinds = " and ".join(wcs.wcs.ctype)
            raise ValueError(f"{kinds} are not in a frame of the sky: {', '.join(_FRAMES)}")
        if frame.name == "icrs":
            return self._icrs
        if (key := repr(frame)) not in self._others:
            found = self._coordinates.transform_to(frame).spherical
            if len(self._others) == _KEPT_FRAMES:
                del self._others[next(iter(self._others))]
            self._others[key] = SkyPositions(found.lon.deg, found.lat.deg)
        return self._others[key]


def _ordered(wcs: WCS, lon: Any, lat: Any) -> tuple[Any, Any]:
    """Swap longitudes and latitudes if the axes of an image are in the reverse order."""
    return (lon, lat) if wcs.wcs.lng < wcs.wcs.lat else (lat, lon)


def _vectors(wcs: WCS, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return unit vectors of pixels, shape (n, 3)."""
    return unit_vectors(*_ordered(wcs, *wcs.all_pix2world(x, y, 0)))


def _cone(image: ImageFacts, margin: tuple[float, float]) -> Cone:
    """Return the circle around an image and its margin, or the whole sky if there is none."""
    assert image.wcs is not None
    sides = [
        np.linspace(-0.5 - more, size - 0.5 + more, _GRID)
        for size, more in zip((image.height, image.width), margin, strict=True)
    ]
    y, x = np.meshgrid(*sides, indexing="ij")
    vectors = _vectors(image.wcs, x.ravel(), y.ravel()).reshape(_GRID, _GRID, 3)
    steps = [np.linalg.norm(np.diff(vectors, axis=axis), axis=-1) for axis in (0, 1)]
    per_step = [side[1] - side[0] for side in sides]
    pixels = [np.nanmax(step) / each for step, each in zip(steps, per_step, strict=True)]
    pixel = float(min(pixels))
    centre = vectors.mean(axis=(0, 1))
    length = np.linalg.norm(centre)
    if not length > 0.1:  # also NaN: pixels beyond the sky
        return Cone(np.array([0.0, 0.0, 1.0]), _WHOLE_SKY, pixel)
    centre = centre / length
    # The distance of a pixel to the next point of the grid is at most the diagonal of a cell.
    between = float(np.hypot(steps[0].max(), steps[1].max()))
    radius = float(np.linalg.norm(vectors - centre, axis=-1).max()) + between
    return Cone(centre, min(radius, _WHOLE_SKY), pixel)
