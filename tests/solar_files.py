"""Headers and files of AIA and HMI for tests: sunpy's real 128x128 frame, and variations of it."""

from __future__ import annotations

import functools
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

POINTING_CHANNELS = (94, 131, 171, 193, 211, 304, 335, 1600, 1700, 4500)
POINTING_START = "2011-02-14T21:00:00.000"


@functools.cache
def frame() -> tuple[np.ndarray, fits.Header]:
    """Return sunpy's AIA 171 level 1 frame, averaged to 128x128, float64, in native byte order.

    Not to be changed.
    """
    from sunpy.data.test import get_test_filepath

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BLANK has no meaning for floats
        pixels, header = fits.getdata(get_test_filepath("aia_171_level1.fits"), header=True)
    del header["BLANK"]
    return pixels.astype(np.float64), header


def full_header(**words: Any) -> fits.Header:
    """Return the same for the 4096x4096 frame that it was made of, with some words changed.

    A word whose value is None is taken out. In names __ stands for a hyphen.
    """
    header = frame()[1].copy()
    header.update({"NAXIS1": 4096, "NAXIS2": 4096, "CDELT1": 0.599489, "CDELT2": 0.599489})
    header.update({"CRPIX1": 2048.519, "CRPIX2": 2048.5, "CRVAL1": 0.0, "CRVAL2": 0.0})
    return changed(header, **words)


def changed(header: fits.Header, **words: Any) -> fits.Header:
    """Return a copy with some words changed, see `full_header`."""
    header = header.copy()
    for name, value in words.items():
        key = name.replace("__", "-")
        if value is None:
            header.remove(key, ignore_missing=True)
        else:
            header[key] = value
    return header


def pointed(header: fits.Header) -> fits.Header:
    """Return a copy whose X0_MP and Y0_MP fit its CRPIXi, as in JSOC's files.

    `update_pointing` of aiapy 0.12 moves CRPIXi by what these change.
    """
    return changed(header, X0_MP=header["CRPIX1"] - 1, Y0_MP=header["CRPIX2"] - 1)


def hmi_header(**words: Any) -> fits.Header:
    """Return the header of an HMI magnetogram."""
    return changed(fits.Header({"NAXIS1": 4096, "NAXIS2": 4096, **HMI}), **words)


def save(path: Path, pixels: np.ndarray, header: fits.Header, **compression: Any) -> Path:
    """Write a file, its image in HDU 0, or compressed in HDU 1."""
    header = header.copy(strip=True)
    if compression:
        fits.CompImageHDU(pixels, header, **compression).writeto(path, overwrite=True)
    else:
        fits.PrimaryHDU(pixels, header).writeto(path, overwrite=True)
    return path


def pointing_table() -> Any:
    """Three-hourly slots as aiapy gives them, one of them longer, and a gap behind the fifth."""
    from astropy import units as u
    from astropy.table import QTable
    from astropy.time import Time

    random = np.random.default_rng(1)
    hours = np.array([0, 3, 6, 9, 12, 18, 21, 24, 27.0])
    starts = Time(POINTING_START, scale="utc") + hours * u.hour
    stops = starts + 3 * u.hour
    stops[6] += 4 * u.hour  # aiapy: there are edge cases, because of a calibration, say
    table = QTable({"T_START": starts, "T_STOP": stops})
    for channel in POINTING_CHANNELS:
        name = f"A_{channel:03d}"
        table[f"{name}_X0"] = random.uniform(2040, 2056, len(hours)) * u.pix
        table[f"{name}_Y0"] = random.uniform(2040, 2056, len(hours)) * u.pix
        table[f"{name}_IMSCALE"] = random.uniform(0.599, 0.601, len(hours)) * u.arcsec / u.pix
        table[f"{name}_INSTROT"] = random.normal(0, 0.05, len(hours)) * u.deg
    return table


def save_pointing(table: Any, path: Path) -> None:
    """Write as LM-SAL does: times with Z, nothing where a value is missing."""
    columns = {name: table[name] for name in table.colnames}
    for name in ("T_START", "T_STOP"):
        columns[name] = [f"{text[:19]}Z" for text in table[name].isot]
    lines = [",".join(columns)]
    for row in range(len(table)):
        found = (columns[name][row] for name in columns)
        values = [str(getattr(value, "value", value)) for value in found]
        lines.append(",".join("" if value == "nan" else value for value in values))
    path.write_text("\n".join(lines) + "\n")
