"""Calibrate single frames without a graph, for the commands prep and show."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.aia.calibration import Calibration
from dali_pipelines.aia.deconvolve import Deconvolver
from dali_pipelines.aia.psf import cached_psf
from readers.contract import Row, Sample
from readers.errors import ReadError
from readers.window import Window


def calibrate(
    row: Row,
    calibration: Calibration,
    window: Window | None = None,
    *,
    outside: Literal["missing", "minimum"] = "missing",
) -> NDArray[np.float32]:
    """Read and calibrate a file, with the same pixels as `aia_pipeline` on the CPU.

    Parameters
    ----------
    row : Row
        File of the frame.
    calibration : Calibration
        Settings of the calibration.
    window : Window, optional
        Part of the image to make.
    outside : {"missing", "minimum"}
        Value beyond the frame: `missing` of the calibration, or the lowest pixel that was read, as
        in aiapy. `aia_pipeline` has only the first.

    Returns
    -------
    ndarray, shape (height, width), float32

    Raises
    ------
    ReadError
        If the file cannot be read, or its header breaks the rules.
    """
    sample = calibration.reader().read(row, window)
    image = decoded(row, sample)
    if calibration.psf:
        image = _deconvolver(int(sample["wavelnth"][0]))(image)
    if outside == "minimum":
        from dali_pipelines.kernels.resample.warp import OUTSIDE

        sample["special"][OUTSIDE] = np.fmin.reduce(image, axis=None)
    return warped(sample, image, calibration.order)


def decoded(row: Row, sample: Sample) -> NDArray[np.float32]:
    """Decode a sample of a FitsReader or an AiaReader to physical values, with NaN for BLANK."""
    from dali_pipelines.kernels.fits.image import decode_image

    image = np.empty((*sample["shape"].shape[:2], 1), np.float32)
    arrays = (sample[name] for name in ("payload", "plan", "scaling"))
    finish = np.array((0, 1), np.float32)
    if decode_image(image, *arrays, np.zeros(2, np.int32), finish):
        raise ReadError(row.name, "the compressed bytes of a tile are damaged", hdu=row.hdu)
    return image[:, :, 0]


def warped(sample: Sample, image: NDArray[np.float32], order: int) -> NDArray[np.float32]:
    """Register, scale, reduce and stretch a decoded image."""
    from dali_pipelines.kernels.resample.warp import warp

    out = np.empty(sample["grid"].shape[:2], np.float32)
    whole = tuple(sample["frame"][2:]) == image.shape
    warp(
        out,
        image,
        sample["matrix"],
        order,
        int(sample["reduce"][0]),
        sample["special"].astype(np.float32),
        whole,
        float(sample["gain"][0]),
        sample["stretch"],
        np.zeros(2, np.int32),
    )
    return out


@cache
def _deconvolver(channel: int) -> Deconvolver:
    return Deconvolver.of(cached_psf(channel))
