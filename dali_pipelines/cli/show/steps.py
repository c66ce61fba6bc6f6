"""One file of AIA or HMI before and after each step of its calibration, as pictures.

After the whole images come parts of the limb in the north and in the west, at full resolution, with
a circle of radius RSUN_OBS around the centre of the Sun in the header. If the limb is not on the
circle, the pointing is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.show.pictures import KEYS, Display, coloured, describe, reduced, subject
from dali_pipelines.cli.show.sheet import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from dali_pipelines import Calibration
    from readers.contract import Row, Sample
    from readers.fits.headers import Value

_LIMB = 64
"""Width of the image divided by that of a picture of the limb."""
_LEAST = 16
"""Minimum width of a picture of the limb, in pixels."""
_REGISTERED, _STRETCHED = "registered", "stretched and scaled"


@dataclass(frozen=True)
class _Disk:
    """Position of the Sun in an image, in pixels (x, y), counted from the centre of the first."""

    centre: NDArray[np.float64]
    per_arcsec: NDArray[np.float64]
    """Shape (2, 2), with columns for west and north: pixels (x, y) of an arcsec in that
    direction."""
    radius: float
    """Arcsec."""

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> _Disk:
        """Return the Sun in the header of a file."""
        from readers.aia.wcs import AffineWCS

        wcs = AffineWCS.of(header)
        return cls(wcs.sun_centre, wcs.to_pixel, header["RSUN_OBS"])

    def registered(self, matrix: NDArray[np.float64]) -> _Disk:
        """Return the Sun in an image with a matrix, shape (2, 3), from its pixels to the file's."""
        import numpy as np

        back = np.linalg.inv(matrix[:, :2])
        return _Disk(back @ (self.centre - matrix[:, 2]), back @ self.per_arcsec, self.radius)

    def is_off(self, shape: tuple[int, ...]) -> bool:
        """Whether the Sun is half a pixel or more from the middle of an image."""
        middle = [(size - 1) / 2 for size in (shape[1], shape[0])]
        return bool(max(abs(self.centre - middle)) >= 0.5)

    @property
    def scale(self) -> float:
        """Arcsec per pixel."""
        return 1 / math.hypot(*self.per_arcsec[:, 1])

    def words(self) -> tuple[str, str]:
        """Describe the orientation of the image, in terms of FITS."""
        angle = math.degrees(math.atan2(*self.per_arcsec[:, 1]))
        x, y = self.centre + 1  # as in FITS
        return (
            f"{self.scale:.4f} arcsec/pixel, CROTA2 {round(angle, 3) + 0.0:g}",
            f"Sun's centre at CRPIX {x:.2f}, {y:.2f}",
        )


def step_pictures(
    file: Row, calibration: Calibration, size: int, display: Display | None = None
) -> Iterator[Picture]:
    """Yield the pictures of the steps, and then of the limb.

    Steps that change nothing are left out. Pictures shrink to `size` pixels. `display` is that of
    `coloured`; by default asinh, and linear after the step that stretches the values.

    Raises
    ------
    ReadError
        If the file cannot be read, or is not fit.
    """
    from dali_pipelines.aia.calibrate import decoded, warped
    from readers.header_scan import file_facts

    (facts,) = file_facts(file.place, KEYS, file.hdu)
    sample = calibration.reader().read(file, None)
    image = decoded(file, sample)
    disk = _Disk.of(replace(calibration, pointing_table=None).reader().header(file))
    of_pixels = display or "asinh"
    yield _whole(("level 1", subject(facts), *disk.words()), image, facts, size, of_pixels)
    arcsec = max(_LEAST, image.shape[1] // _LIMB) * disk.scale
    limbs = [_limbs("level 1", image, disk, arcsec, facts, of_pixels)]
    if calibration.psf:
        from dali_pipelines.aia.deconvolve import Deconvolver
        from dali_pipelines.aia.psf import cached_psf

        image = Deconvolver.of(cached_psf(int(sample["wavelnth"][0])))(image)
        yield _whole(("deconvolved",), image, facts, size, of_pixels)
    disk = _Disk.of(calibration.reader().header(file))
    for title, step in _steps(calibration, sample).items():
        warp = step.reader().read(file, None)
        values = warped(warp, image, step.order)
        lines: tuple[str, ...] = (title,)
        if title == _REGISTERED:
            registered = disk.registered(warp["matrix"])
            lines = title, *registered.words()
            if registered.is_off(values.shape):
                lines = *lines, "not in the middle: see --center"
            limbs.append(_limbs(title, values, registered, arcsec, facts, of_pixels))
        shown = display or ("linear" if title == _STRETCHED else "asinh")
        yield _whole(lines, values, facts, size, shown)
    for name in limbs[0]:
        yield from (found[name] for found in limbs if name in found)


def _steps(calibration: Calibration, sample: Sample) -> dict[str, Calibration]:
    """Return the calibration up to each step after the deconvolution, by title of the step."""
    from dali_pipelines import Stretch

    factor, gain = int(sample["reduce"][0]), float(sample["gain"][0])
    height, width = calibration.size
    plain = replace(calibration, stretch=Stretch())
    full = replace(
        plain,
        size=(height * factor, width * factor),
        scale=None if calibration.radius else calibration.pixel_scale / factor,
        radius=calibration.radius and calibration.radius * factor,
        reduce=1,
    )
    steps = {_REGISTERED: replace(full, exposure=False, correction_table=None)}
    if gain != 1:
        divisors = {
            "EXPTIME": calibration.exposure,
            "degradation": calibration.correction_table is not None,
        }
        by = " and ".join(name for name, divides in divisors.items() if divides)
        steps[f"{by}: gain {gain:.5g}"] = full
    if factor > 1:
        steps[f"reduced, means of {factor}x{factor} pixels"] = plain
    if calibration.stretch != Stretch():
        steps[_STRETCHED] = calibration
    return steps


def _whole(
    lines: tuple[str, ...],
    values: NDArray[np.float32],
    facts: Mapping[str, Value],
    size: int,
    display: Display,
) -> Picture:
    import torch

    image = torch.from_numpy(values)[None]
    return Picture((*lines, *describe(image)), coloured(reduced(image, size), facts, display))


def _limbs(
    title: str,
    values: NDArray[np.float32],
    disk: _Disk,
    arcsec: float,
    facts: Mapping[str, Value],
    display: Display,
) -> dict[str, Picture]:
    """Cut out squares of the limb in the north and in the west, if they are in the image."""
    import torch

    limbs = {}
    height, width = values.shape
    side = round(arcsec / disk.scale)
    for name, direction in (("north", (0.0, disk.radius)), ("west", (disk.radius, 0.0))):
        x, y = disk.centre + disk.per_arcsec @ direction
        left, bottom = round(x) - side // 2, round(y) - side // 2
        if not (0 <= left <= width - side and 0 <= bottom <= height - side):
            continue
        limb = values[bottom : bottom + side, left : left + side].copy()
        image = torch.from_numpy(limb)[None]
        centre_x, centre_y = disk.centre - (left, bottom)
        limbs[name] = Picture(
            (f"{title}: {name} limb", *describe(image)),
            coloured(image, facts, display),
            circle=(centre_x, side - 1 - centre_y, disk.radius / disk.scale),
        )
    return limbs
