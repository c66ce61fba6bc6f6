"""Registration: the affine matrix that rotates, scales and centres an image, as aiapy's register.

Pixels are not processed here. The matrix maps pixels of the output to pixels of the input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from readers.aia.keywords import number
from readers.aia.wcs import CD, FULL_FRAME, PC, AffineWCS
from readers.window import Window

if TYPE_CHECKING:
    from astropy.io.fits import Header

Center = Literal["reference_pixel", "sun"]

PLATE_SCALE = 0.6
"""Arcsec/pixel of registered level 1.5 frames, as in JSOC and aiapy."""

_FARTHEST = 1e9
"""Maximum number of pixels for which positions in float64 are exact to 1e-7 pixels."""


def register_matrix(
    header: Mapping[str, Any],
    *,
    shape: tuple[int, int] = (4096, 4096),
    scale: float = 0.6,
    center: Center = "reference_pixel",
    radius: float | None = None,
    window: Window | None = None,
) -> NDArray[np.float64]:
    """Return the matrix from pixels of the registered image to pixels of a file.

    Parameters
    ----------
    header : mapping
        Header of the file: CRPIXi, CDELTi, CRVALi, CUNITi, NAXISi, and PCi_j, CDi_j or CROTA2.
    shape : tuple of int
        (height, width) of the registered image, in pixels.
    scale : float
        Arcsec/pixel of the registered image, along both axes. For files of other sizes aiapy uses
        the multiple of 0.6 nearest to CDELT1.
    center : {"reference_pixel", "sun"}
        Centre of the registered image. aiapy uses the reference pixel. If CRVALi are 0, this is the
        centre of the Sun.
    radius : float, optional
        Pixels of the registered image for the radius of the Sun, RSUN_OBS, in place of `scale`.
    window : Window, optional
        Part of the registered image. The matrix then maps pixels of the window. Angle and zoom of
        the window rotate the content counterclockwise (rows counted upwards) and enlarge it, about
        the centre of the window.

    Returns
    -------
    ndarray, shape (2, 3), float64
        ``matrix @ (x, y, 1)`` is the pixel (x, y) of the file. The centre of the first pixel is 0.

    Raises
    ------
    ValueError
        If the header lacks a keyword, or the window is larger than `shape`.

    Notes
    -----
    ``aiapy.calibrate.register`` and ``sunpy.map.GenericMap.rotate``, but with an output of fixed
    size. These scale both axes by CDELT1, with the same result for square pixels.
    """
    wcs = AffineWCS.of(header)
    linear = wcs.to_pixel * _target_scale(header, scale, radius)
    pixel, _ = _anchor(wcs, center)
    middle = np.array([(shape[1] - 1) / 2, (shape[0] - 1) / 2])
    matrix = np.column_stack((linear, pixel - linear @ middle))
    if window is not None:
        matrix = matrix @ np.vstack((window.matrix(*shape), (0, 0, 1)))
    if not np.abs(matrix).max() < _FARTHEST:
        raise ValueError(
            f"the header's coordinates are far outside the image (matrix {matrix.tolist()}): check "
            "CRPIXi, CRVALi and CDELTi"
        )
    return matrix


def _target_scale(header: Mapping[str, Any], scale: float, radius: float | None) -> float:
    """Return the arcsec/pixel of the registered image, see `register_matrix`."""
    return scale if radius is None else number(header, "RSUN_OBS") / radius


def frame_scale(header: Mapping[str, Any]) -> float:
    """Return the arcsec/pixel of ``aiapy.calibrate.register`` for a file.

    This is 0.6 for frames of 4096x4096, otherwise the multiple of 0.6 nearest to the file's scale.
    """
    wcs = AffineWCS.of(header)
    if wcs.shape == FULL_FRAME:
        return PLATE_SCALE
    own = 1 / math.sqrt(abs(np.linalg.det(wcs.to_pixel)))
    return max(1, round(own / PLATE_SCALE)) * PLATE_SCALE


def level15_header(
    header: Header,
    *,
    shape: tuple[int, int] = (4096, 4096),
    scale: float = 0.6,
    center: Center = "reference_pixel",
    radius: float | None = None,
) -> Header:
    """Return the header of the registered image.

    Parameters
    ----------
    header : Header
        Header of the file. Keywords without effect on pixels are kept.
    shape, scale, center, radius
        As for `register_matrix`.

    Returns
    -------
    Header
        A copy with CRPIXi, CDELTi, CRVALi, CUNITi, CROTA2 = 0, LVL_NUM = 1.5, R_SUN (pixel), and
        XCEN and YCEN (arcsec, centre of the image), without PCi_j, CDi_j and CROTA1.
    """
    wcs = AffineWCS.of(header)
    target = _target_scale(header, scale, radius)
    _, crval = _anchor(wcs, center)
    made = header.copy()
    for key in (*PC, *CD, "CROTA1"):
        made.remove(key, ignore_missing=True)
    for axis, length in ((1, shape[1]), (2, shape[0])):
        made[f"CRPIX{axis}"] = (length + 1) / 2
        made[f"CDELT{axis}"] = target
        made[f"CRVAL{axis}"] = float(crval[axis - 1])
        made[f"CUNIT{axis}"] = "arcsec"
    made["CROTA2"] = 0.0
    made["R_SUN"] = number(header, "RSUN_OBS") / target
    made["XCEN"], made["YCEN"] = float(crval[0]), float(crval[1])
    made["LVL_NUM"] = 1.5
    return made


def _anchor(wcs: AffineWCS, center: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the pixel of the file for the centre of the output, and its world coordinates."""
    if center not in get_args(Center):
        raise ValueError(f"center must be one of {get_args(Center)}, got {center!r}")
    return (wcs.sun_centre, np.zeros(2)) if center == "sun" else (wcs.reference, wcs.crval)
