"""Level 1.5 FITS files as aiapy's `register` makes them of level 1, with headers that say how."""

from __future__ import annotations

import importlib.metadata
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.aia.calibrate import calibrate
from dali_pipelines.aia.calibration import Calibration
from dali_pipelines.aia.deconvolve import Deconvolver
from dali_pipelines.aia.psf import PSF_CHANNELS
from readers.aia.channel import is_hmi
from readers.aia.degradation import CorrectionTable
from readers.aia.keywords import number, text
from readers.aia.pointing import PointingTable
from readers.aia.registration import frame_scale, level15_header
from readers.contract import Row
from readers.errors import ReadError
from readers.fits.file import open_image

if TYPE_CHECKING:
    from astropy.io.fits import HDUList, Header

Dtype = Literal["int16", "float32"]
Compression = Literal["rice", "none"]

BLANK = -32768
"""What stands for missing pixels in int16, as in JSOC's files."""

_TILE_ROWS = 16
"""Rows of a RICE_1 tile: with one row astropy needs a third more time to write a frame."""
_ROWS = 64
"""Rows that are rounded at once, so that they stay in the core's cache."""
_STORAGE = ("BLANK", "CHECKSUM", "DATASUM")
"""Words of a header that are about the stored bytes, and that `Header.strip` leaves."""


@dataclass(frozen=True, kw_only=True)
class Level15:
    """What is done to level 1 files, in aiapy's order of steps, and how they are stored."""

    order: Literal[1, 3] = 3
    """Of the spline: 1 is bilinear, 3 aiapy's cubic B-spline."""
    size: int | None = None
    """Pixels along the edges of the image; by default it is as large as the frame, at `scale`."""
    scale: float | None = None
    """Arcsec per pixel; by default aiapy's, `readers.aia.registration.frame_scale`, at `size`."""
    pointing_table: PointingTable | None = None
    """Master pointing table, to take the pointing from it and not from the header."""
    psf: bool = False
    """Deconvolve; files of channels without a PSF are refused then."""
    correction_table: CorrectionTable | None = None
    """Table of the degradation to divide by, for AIA."""
    exposure: bool = False
    """Divide by EXPTIME, for AIA."""
    dtype: Dtype | None = None
    """Of the stored pixels. By default int16 if the file's are integers and are not divided or
    deconvolved, as aiapy has it, else float32."""
    compress: Compression | None = None
    """Tiles of RICE_1, or none. By default int16 is compressed, and float32, which would be
    quantised, is not."""
    quantize_level: float = 16.0
    """Steps that the noise of a tile is divided into where float32 is compressed, see
    `astropy.io.fits.CompImageHDU`."""
    hdu: int | None = None
    """HDU of the images; by default the first that holds one."""

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        for name in ("scale", "quantize_level"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        for name, known in (("order", (1, 3)), ("dtype", Dtype), ("compress", Compression)):
            choices = known if isinstance(known, tuple) else (None, *get_args(known))
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")

    def write(self, row: Row, path: str) -> None:
        """Write the level 1.5 file, with checksums; see `hdus`.

        Words of the header that break the FITS standard in a way that astropy can mend, as NaN
        without quotes, are mended.
        """
        hdus = self.hdus(row)
        with _header_errors(row):
            hdus.writeto(path, checksum=True, output_verify="silentfix", overwrite=True)

    def hdus(self, row: Row) -> HDUList:
        """Make the HDUs of the level 1.5 file.

        Parameters
        ----------
        row : Row
            The level 1 file.

        Returns
        -------
        HDUList
            The image in HDU 0, or compressed in HDU 1 behind an empty one; shape (height, width).
            Beyond the frame is its least pixel, as in aiapy. What is missing in the frame is BLANK,
            -32768, in int16, and NaN in float32. int16 is rounded, halves away from 0, as SciPy and
            so aiapy does it.

        Raises
        ------
        ReadError
            If the file cannot be read, is not fit, or does not fit into the dtype.
        """
        unsized = self._calibration(size=(1, 1), scale=1.0)
        words = unsized.reader().header(row)  # by the rules
        own = frame_scale(words)
        shape, scale = self._grid((int(words["NAXIS2"]), int(words["NAXIS1"])), own)
        calibration = self._calibration(size=shape, scale=scale)
        pixels = calibrate(row, calibration, outside="minimum")
        level1 = self._full_header(row, words)
        with _header_errors(row):
            dtype = self.dtype or self._own_dtype(level1)
            compress = self.compress or ("rice" if dtype == "int16" else "none")
            stored = _stored(row, pixels, dtype)
            header = _without_storage(level15_header(level1, shape=shape, scale=scale))
            if dtype == "int16" and ("BLANK" in level1 or stored.holes):
                header["BLANK"] = (BLANK, "value of missing pixels")
            _set_limits(header, stored)
            if self.exposure and not is_hmi(words):
                for key in ("BUNIT", "PIXLUNIT"):
                    if key in header:
                        header[key] = f"{header[key]}/s"
            for line in self._history(row, words, shape, scale, dtype, compress):
                header.add_history(re.sub("[^ -~]", "?", line))  # FITS knows no other letters
            return self._hdu_list(stored.pixels, header, compress)

    def settings(self) -> dict[str, Any]:
        """Give what decides about the pixels, for JSON; tables by name and SHA-256."""
        named = {
            name: None if table is None else {"name": table.name, "sha256": table.sha256}
            for name, table in (
                ("pointing_table", self.pointing_table),
                ("correction_table", self.correction_table),
            )
        }
        plain = ("order", "size", "scale", "psf", "exposure", "dtype", "compress")
        own = {name: getattr(self, name) for name in (*plain, "quantize_level", "hdu")}
        return own | named

    def _calibration(self, **grid: Any) -> Calibration:
        return Calibration(
            order=self.order,
            pointing_table=self.pointing_table,
            psf=PSF_CHANNELS if self.psf else (),
            correction_table=self.correction_table,
            exposure=self.exposure,
            missing=np.nan,
            hdu=self.hdu,
            **grid,
        )

    def _grid(self, frame: tuple[int, int], own: float) -> tuple[tuple[int, int], float]:
        """Give shape and scale of the image of a frame of some shape, and aiapy's scale for it."""
        if self.size is not None:
            return (self.size, self.size), self.scale or own * max(frame) / self.size
        scale = self.scale or own
        height, width = (max(1, round(edge * own / scale)) for edge in frame)
        return (height, width), scale

    def _full_header(self, row: Row, words: dict[str, Any]) -> Header:
        """Read the header, and put the pointing in that was found for it."""
        number = self.hdu if row.hdu is None else row.hdu
        with open_image(row.path, number, row=row.number) as (hdus, found):
            header: Header = hdus[found].header.copy()
        if self.pointing_table is not None:
            header.update({key: words[key] for key in ("X0_MP", "Y0_MP")})
        return header

    def _own_dtype(self, header: Header) -> Dtype:
        scaled = header.get("BSCALE", 1) != 1 or header.get("BZERO", 0) % 1
        divided = self.psf or self.exposure or self.correction_table is not None
        return "int16" if header["BITPIX"] > 0 and not scaled and not divided else "float32"

    def _history(
        self,
        row: Row,
        words: dict[str, Any],
        shape: tuple[int, int],
        scale: float,
        dtype: Dtype,
        compress: Compression,
    ) -> list[str]:
        version = importlib.metadata.version("dali-pipelines")
        lines = [f"level 1.5 by dali-pipelines {version}, scripts/prep.py, of"]
        lines.append(os.path.basename(row.path))
        if self.pointing_table is not None:
            lines += [
                f"pointing: table {self.pointing_table.name}, sha256",
                self.pointing_table.sha256,
            ]
        else:
            lines.append("pointing: of the level 1 header")
        if self.psf:
            iterations = Deconvolver.iterations
            lines.append(
                f"deconvolved: Richardson-Lucy, {iterations} iterations, PSF of Grigis et al. 2012"
            )
        lines.append(
            f"registered: spline of order {self.order}, {shape[0]}x{shape[1]} pixels of "
            f"{scale:g} arcsec"
        )
        if self.correction_table is not None and not is_hmi(words):
            table = self.correction_table
            factor = table.degradation(round(number(words, "WAVELNTH")), text(words, "DATE-OBS"))
            release = "" if table.version is None else f", VER_NUM {table.version}"
            lines += [
                f"degradation: divided by {factor:.9g}, table {table.name}{release}, sha256",
                table.sha256,
            ]
        if self.exposure and not is_hmi(words):
            lines.append(f"exposure: divided by EXPTIME, {number(words, 'EXPTIME'):g} s")
        if dtype == "int16":
            lines.append("pixels: rounded to int16")
        elif compress == "rice":
            lines.append(
                f"pixels: float32, quantised to 1/{self.quantize_level:g} of the noise of each tile"
            )
        lines.append("DATAMIN and DATAMAX are of these pixels, other statistics of level 1")
        return lines

    def _hdu_list(self, pixels: NDArray[Any], header: Header, compress: Compression) -> HDUList:
        from astropy.io import fits

        if compress == "none":
            return fits.HDUList([fits.PrimaryHDU(pixels, header)])
        image = fits.CompImageHDU(
            pixels,
            header,
            compression_type="RICE_1",
            tile_shape=(min(_TILE_ROWS, pixels.shape[0]), pixels.shape[1]),
            quantize_level=self.quantize_level,
            quantize_method=fits.hdu.compressed.SUBTRACTIVE_DITHER_1,
            dither_seed=fits.hdu.compressed.DITHER_SEED_CHECKSUM,
        )
        return fits.HDUList([fits.PrimaryHDU(), image])


@contextmanager
def _header_errors(row: Row) -> Iterator[None]:
    """Make a ReadError of what is so odd in a header that it cannot be written again."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # comments cut, cards mended
            yield
    except OSError:  # of the disk; a ReadError is one as well
        raise
    except Exception as error:  # astropy raises many types on damaged cards
        reason = f"a header that cannot be written again: {error}"
        raise ReadError(row.path, reason, row=row.number) from error


def _without_storage(header: Header) -> Header:
    """Take the words out that tell how the level 1 pixels are stored."""
    header.strip()
    for key in _STORAGE:
        header.remove(key, ignore_missing=True)
    return header


class _Stored(NamedTuple):
    """Pixels as they are stored."""

    pixels: NDArray[Any]
    low: float
    """Least of them; NaN where all are missing."""
    high: float
    """Greatest of them."""
    holes: bool
    """Whether some are missing."""


def _stored(row: Row, pixels: NDArray[np.float32], dtype: Dtype) -> _Stored:
    low, high = (float(extreme.reduce(pixels, axis=None)) for extreme in (np.fmin, np.fmax))
    holes = bool(np.isnan(pixels.min()))
    if dtype == "float32":
        return _Stored(pixels, low, high, holes)
    if low <= BLANK + 0.5 or high >= -BLANK - 0.5:
        raise ReadError(
            row.path,
            f"its pixels reach from {low:g} to {high:g}, beyond int16: store them as float32",
            row=row.number,
        )
    rounded = np.empty(pixels.shape, np.int16)
    for top in range(0, len(pixels), _ROWS):
        part = pixels[top : top + _ROWS]
        if holes:
            part = np.where(np.isnan(part), np.float32(BLANK), part)
        # The conversion cuts what is behind the point, towards 0.
        rounded[top : top + _ROWS] = (part + np.copysign(np.float32(0.5), part)).astype(np.int16)
    low, high = (float(np.fix(end + np.copysign(0.5, end))) for end in (low, high))
    return _Stored(rounded, low, high, holes)


def _set_limits(header: Header, stored: _Stored) -> None:
    """Tell the least and the greatest pixel, where the level 1 header did."""
    for key, value in (("DATAMIN", stored.low), ("DATAMAX", stored.high)):
        if key in header and np.isfinite(value):
            header[key] = int(value) if stored.pixels.dtype == np.int16 else value
