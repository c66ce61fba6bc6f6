"""Headers and files of AIA and HMI for tests: sunpy's real 128x128 frame, and variations of it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

HMI = {
    "INSTRUME": "HMI_FRONT2",
    "TELESCOP": "SDO/HMI",
    "WAVELNTH": 6173.0,
    "QUALITY": 0,
    "CONTENT": "MAGNETOGRAM",
    "DATE-OBS": "2011-02-15T00:00:27.30",
    "T_OBS": "2011.02.15_00:01:12_TAI",
    "CTYPE1": "HPLN-TAN",
    "CTYPE2": "HPLT-TAN",
    "CUNIT1": "arcsec",
    "CUNIT2": "arcsec",
    "CRPIX1": 2045.3,
    "CRPIX2": 2050.9,
    "CRVAL1": 0.0,
    "CRVAL2": 0.0,
    "CDELT1": 0.504301,
    "CDELT2": 0.504301,
    "CROTA2": 179.930176,
    "RSUN_OBS": 971.67,
    "RSUN_REF": 696000000.0,
    "DSUN_OBS": 147743808211.0,
    "CRLN_OBS": 22.8,
    "CRLT_OBS": -6.8,
}
"""What hmi.M_45s says, in 4096x4096 pixels."""


def frame() -> tuple[np.ndarray, fits.Header]:
    """Give sunpy's AIA 171 level 1 frame, averaged to 128x128, float64, in native byte order."""
    from sunpy.data.test import get_test_filepath

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BLANK has no meaning for floats
        pixels, header = fits.getdata(get_test_filepath("aia_171_level1.fits"), header=True)
    del header["BLANK"]
    return pixels.astype(np.float64), header


def full_header(**words: Any) -> fits.Header:
    """Give the same for the 4096x4096 frame that it was made of, with some words changed.

    A word whose value is None is taken out. In names __ stands for a hyphen.
    """
    _, header = frame()
    header.update({"NAXIS1": 4096, "NAXIS2": 4096, "CDELT1": 0.599489, "CDELT2": 0.599489})
    header.update({"CRPIX1": 2048.519, "CRPIX2": 2048.5, "CRVAL1": 0.0, "CRVAL2": 0.0})
    return changed(header, **words)


def changed(header: fits.Header, **words: Any) -> fits.Header:
    """Give a copy with some words changed, see `full_header`."""
    header = header.copy()
    for name, value in words.items():
        key = name.replace("__", "-")
        if value is None:
            header.remove(key, ignore_missing=True)
        else:
            header[key] = value
    return header


def hmi_header(**words: Any) -> fits.Header:
    """Give the header of an HMI magnetogram."""
    return changed(fits.Header({"NAXIS1": 4096, "NAXIS2": 4096, **HMI}), **words)


def save(path: Path, pixels: np.ndarray, header: fits.Header, **compression: Any) -> Path:
    """Write a file, its image in HDU 0, or compressed in HDU 1."""
    header = header.copy(strip=True)
    if compression:
        fits.CompImageHDU(pixels, header, **compression).writeto(path, overwrite=True)
    else:
        fits.PrimaryHDU(pixels, header).writeto(path, overwrite=True)
    return path
