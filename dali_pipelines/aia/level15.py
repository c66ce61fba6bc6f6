"""Level 1.5 FITS files, with the pixels of aiapy's `register` and a history in the header."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from dali_pipelines.aia.calibrate import calibrate
from dali_pipelines.aia.calibration import Calibration
from dali_pipelines.aia.deconvolve import Deconvolver
from dali_pipelines.aia.level15_storage import (
    BLANK,
    Compression,
    Dtype,
    hdu_list,
    stored_pixels,
    without_storage,
)
from dali_pipelines.aia.psf import PSF_CHANNELS
from dali_pipelines.runtime.version import own_version
from dali_pipelines.values import check_choice
from readers.aia.channel import is_hmi
from readers.aia.degradation import CorrectionTable
from readers.aia.keywords import number, text
from readers.aia.pointing import PointingTable
from readers.aia.registration import frame_scale, level15_header
from readers.contract import Row
from readers.errors import ReadError
from readers.fits.file import open_image
from readers.values import check_integer, check_positive

if TYPE_CHECKING:
    from astropy.io.fits import HDUList, Header


@dataclass(frozen=True, kw_only=True)
class Level15:
    """Processing of level 1 files to level 1.5 files, with steps in aiapy's order."""

    order: Literal[1, 3] = 3
    """Order of the spline: 1 is bilinear, 3 aiapy's cubic B-spline."""
    size: int | None = None
    """Height and width of the image in pixels; by default the image shows the whole frame, at
    `scale`."""
    scale: float | None = None
    """Arcsec per pixel. By default aiapy's scale, `readers.aia.registration.frame_scale`; with
    `size` it is enlarged to show the whole frame."""
    pointing_table: PointingTable | None = None
    """Master pointing table, used instead of the pointing in the header."""
    psf: bool = False
    """Deconvolve; files of channels without a PSF are rejected."""
    correction_table: CorrectionTable | None = None
    """Degradation table. AIA frames are divided by its factors."""
    exposure: bool = False
    """Divide AIA frames by EXPTIME."""
    dtype: Dtype | None = None
    """Type of the stored pixels. By default, as in aiapy, int16 for files of integers that are
    neither divided nor deconvolved, otherwise float32."""
    compress: Compression | None = None
    """``rice`` for tiles of RICE_1, or ``none``. By default int16 is compressed; float32 is not,
    because compression would quantise it."""
    quantize_level: float = 16.0
    """Quantisation of compressed float32: the step is the noise of a tile divided by this, see
    `astropy.io.fits.CompImageHDU`."""
    hdu: int | None = None
    """HDU of the images; by default the first with an image."""

    def __post_init__(self) -> None:
        if self.size is not None:
            check_integer("size", self.size, 1)
        if self.hdu is not None:
            check_integer("hdu", self.hdu, 0)
        if self.scale is not None:
            check_positive("scale", self.scale)
        check_positive("quantize_level", self.quantize_level)
        check_choice("order", self.order, (1, 3))
        check_choice("dtype", self.dtype, (None, *get_args(Dtype)))
        check_choice("compress", self.compress, (None, *get_args(Compression)))

    def write(self, row: Row, path: str) -> None:
        """Write the level 1.5 file, see `hdus`, with checksums.

        Header cards that violate the FITS standard, e.g. NaN without quotes, are corrected if
        astropy can.
        """
        hdus = self.hdus(row)
        with _header_errors(row):
            hdus.writeto(path, checksum=True, output_verify="silentfix", overwrite=True)

    def hdus(self, row: Row) -> HDUList:
        """Make the HDUs of the level 1.5 file.

        Parameters
        ----------
        row : Row
            Level 1 file.

        Returns
        -------
        HDUList
            Image in HDU 0, or compressed in HDU 1 after an empty HDU; shape (height, width). Pixels
            beyond the frame have the lowest value of the frame, as in aiapy. Missing pixels of the
            frame are BLANK (-32768) in int16, and NaN in float32. int16 is rounded, halves away
            from 0, as in SciPy and aiapy.

        Raises
        ------
        ReadError
            If the file cannot be read, its header breaks the rules, or pixels do not fit into the
            dtype.
        """
        unsized = self._calibration(size=(1, 1), scale=1.0)
        keywords = unsized.reader().header(row)  # checked by the rules
        own = frame_scale(keywords)
        shape, scale = self._grid((int(keywords["NAXIS2"]), int(keywords["NAXIS1"])), own)
        calibration = self._calibration(size=shape, scale=scale)
        pixels = calibrate(row, calibration, outside="minimum")
        level1 = self._full_header(row, keywords)
        with _header_errors(row):
            dtype = self.dtype or self._own_dtype(level1)
            compress = self.compress or ("rice" if dtype == "int16" else "none")
            stored = stored_pixels(row, pixels, dtype)
            header = without_storage(level15_header(level1, shape=shape, scale=scale))
            if dtype == "int16" and ("BLANK" in level1 or stored.holes):
                header["BLANK"] = (BLANK, "value of missing pixels")
            stored.set_limits(header)
            if self.exposure and not is_hmi(keywords):
                for key in ("BUNIT", "PIXLUNIT"):
                    if key in header:
                        header[key] = f"{header[key]}/s"
            for line in self._history(row, keywords, shape, scale, dtype, compress):
                header.add_history(re.sub("[^ -~]", "?", line))  # FITS allows only these characters
            return hdu_list(stored.pixels, header, compress, self.quantize_level)

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the pixels, for JSON; tables by name and SHA-256."""
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
        """Return the shape and the scale of the image; `own` is aiapy's scale for this frame."""
        if self.size is not None:
            return (self.size, self.size), self.scale or own * max(frame) / self.size
        scale = self.scale or own
        height, width = (max(1, round(edge * own / scale)) for edge in frame)
        return (height, width), scale

    def _full_header(self, row: Row, keywords: dict[str, Any]) -> Header:
        """Read the header, and set its pointing from the table."""
        number = self.hdu if row.hdu is None else row.hdu
        with open_image(row.place, number, row=row.number) as (hdus, found):
            header: Header = hdus[found].header.copy()
        if self.pointing_table is not None:
            header.update({key: keywords[key] for key in ("X0_MP", "Y0_MP")})
        return header

    def _own_dtype(self, header: Header) -> Dtype:
        scaled = header.get("BSCALE", 1) != 1 or header.get("BZERO", 0) % 1
        divided = self.psf or self.exposure or self.correction_table is not None
        return "int16" if header["BITPIX"] > 0 and not scaled and not divided else "float32"

    def _history(
        self,
        row: Row,
        keywords: dict[str, Any],
        shape: tuple[int, int],
        scale: float,
        dtype: Dtype,
        compress: Compression,
    ) -> list[str]:
        lines = [f"level 1.5 by dali-pipelines {own_version()}, prep, of"]
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
        if self.correction_table is not None and not is_hmi(keywords):
            table = self.correction_table
            factor = table.degradation(
                round(number(keywords, "WAVELNTH")), text(keywords, "DATE-OBS")
            )
            release = "" if table.version is None else f", VER_NUM {table.version}"
            lines += [
                f"degradation: divided by {factor:.9g}, table {table.name}{release}, sha256",
                table.sha256,
            ]
        if self.exposure and not is_hmi(keywords):
            lines.append(f"exposure: divided by EXPTIME, {number(keywords, 'EXPTIME'):g} s")
        if dtype == "int16":
            lines.append("pixels: rounded to int16")
        elif compress == "rice":
            lines.append(
                f"pixels: float32, quantised to 1/{self.quantize_level:g} of the noise of each tile"
            )
        lines.append("DATAMIN and DATAMAX are of these pixels, other statistics of level 1")
        return lines


@contextmanager
def _header_errors(row: Row) -> Iterator[None]:
    """Raise a ReadError if a header is too damaged to be written."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about truncated comments and corrected cards
            yield
    except OSError:  # e.g. a full disk, or a ReadError
        raise
    except Exception as error:  # astropy raises many types on damaged cards
        reason = f"its header cannot be written: {error}"
        raise ReadError(row.name, reason, row=row.number) from error
