"""World coordinates of a solar image: the affine part of its header's WCS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.aia.keywords import number, text

FULL_FRAME = 4096, 4096
"""(height, width) of AIA's and HMI's frames, in pixels."""
_ARCSEC = {"arcsec": 1.0, "deg": 3600.0, "degree": 3600.0}
PC = ("PC1_1", "PC1_2", "PC2_1", "PC2_2")
CD = ("CD1_1", "CD1_2", "CD2_1", "CD2_2")


@dataclass(frozen=True, slots=True)
class AffineWCS:
    """Affine map to pixels: ``reference + to_pixel @ (world - crval)``.

    Pixels and world coordinates are (x, y). The centre of the first pixel is 0.
    """

    to_pixel: NDArray[np.float64]
    """Shape (2, 2), pixel/arcsec."""
    reference: NDArray[np.float64]
    """Shape (2,), CRPIX - 1."""
    crval: NDArray[np.float64]
    """Shape (2,), arcsec."""
    shape: tuple[int, int]
    """(height, width) of the image in pixels."""

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> AffineWCS:
        """Return the WCS of a header. The rotation is in PCi_j, else in CDi_j, else in CROTA2.

        Raises
        ------
        ValueError
            If a keyword is missing or invalid, if the rotation is unknown, or if the coordinates
            are not helioprojective.

        Notes
        -----
        Thompson (2006), A&A 449, 791, section 8; precedence as in sunpy. The non-linear part of TAN
        is ignored, because a registration does not change it.
        """
        ctype = text(header, "CTYPE1") if "CTYPE1" in header else "HPLN"
        if not ctype.upper().startswith(("HPLN", "SOLAR")):
            raise ValueError(f"CTYPE1 is {ctype!r}, expected helioprojective HPLN-TAN")
        units = np.array([_unit(header, axis) for axis in (1, 2)])
        to_world = units[:, None] * _matrix(header)
        (a, b), (c, d) = to_world.tolist()
        area = a * d - b * c
        if not 1e-12 < abs(area) < math.inf:
            raise ValueError(f"CDELTi and PCi_j (or CDi_j) are singular: {to_world.tolist()}")
        return cls(
            to_pixel=np.array([[d, -b], [-c, a]]) / area,
            reference=np.array([number(header, f"CRPIX{axis}") - 1 for axis in (1, 2)]),
            crval=units * [number(header, f"CRVAL{axis}") for axis in (1, 2)],
            shape=(int(number(header, "NAXIS2")), int(number(header, "NAXIS1"))),
        )

    @property
    def sun_centre(self) -> NDArray[np.float64]:
        """Pixel (x, y) of the world coordinates (0, 0)."""
        return self.reference - self.to_pixel @ self.crval

    def holds_disk(self, rsun_obs: float) -> bool:
        """Return whether the whole Sun is between the centres of the edge pixels.

        `rsun_obs` is the radius of the Sun in arcsec. As in ``sunpy.map.contains_full_disk``.
        """
        height, width = self.shape
        x, y = self.sun_centre.tolist()
        # Most pixels in x, and in y, for one arcsec in any direction.
        across, up = (math.hypot(*row) for row in self.to_pixel.tolist())
        return min(x, width - 1 - x) > rsun_obs * across and min(y, height - 1 - y) > rsun_obs * up


def _matrix(header: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return CDELTi * PCi_j, shape (2, 2), in units of CUNIT."""
    if any(key in header for key in CD) and not any(key in header for key in PC):
        elements = [number(header, key) if key in header else 0.0 for key in CD]
        return np.array(elements).reshape(2, 2)
    cdelt = np.array([number(header, f"CDELT{axis}") for axis in (1, 2)])
    if any(key in header for key in PC):
        defaults = zip(PC, (1.0, 0.0, 0.0, 1.0), strict=True)
        pc = [number(header, key) if key in header else default for key, default in defaults]
        return cdelt[:, None] * np.array(pc).reshape(2, 2)
    if "CROTA2" not in header:
        raise ValueError("CROTA2 is missing, like PCi_j and CDi_j: the rotation is unknown")
    angle = np.deg2rad(number(header, "CROTA2"))
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cdelt[0] * cos, -cdelt[1] * sin], [cdelt[0] * sin, cdelt[1] * cos]])


def _unit(header: Mapping[str, Any], axis: int) -> float:
    unit = text(header, f"CUNIT{axis}").lower()
    if unit not in _ARCSEC:
        raise ValueError(f"CUNIT{axis} is {unit!r}, expected one of {tuple(_ARCSEC)}")
    return _ARCSEC[unit]
