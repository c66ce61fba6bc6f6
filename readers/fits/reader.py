"""FITS reader: sends the bytes of the tiles or rows that a window needs; the graph decodes them.

RICE_1 and PLIO_1 tiles are sent compressed, GZIP tiles inflated and HCOMPRESS_1 tiles decoded
(`readers.fits.tiles`). Rows of plain images are sent as stored (`readers.fits.plain_image`). In all
other images astropy decodes the needed tiles in the reader process. All pixels are sent in their
stored form, with BSCALE, BZERO and BLANK. The graph converts them to float32 physical values, see
`dali_pipelines.kernels.fits.image`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from readers.contract import Peek, Row, Sample, SampleSpec
from readers.fits.file import Expected, FitsFile, read_errors, whole_if_small
from readers.fits.headers import HduName, checked
from readers.fits.image import FitsImage, find_image, is_described
from readers.fits.payload import OVERHEAD, make_plan
from readers.fits.plain_image import plan_of_pixels
from readers.fits.planes import ImageShape, Planes, plane_numbers
from readers.fits.tiles.image import TiledImage
from readers.fits.tiles.offsets import COLUMN, ImageOffsets, Ranges
from readers.values import check_integer, check_number
from readers.window import Window

_AS_STORED = (8, 16, 32, -32, -64)
_STORED_INTEGERS = {"uint8": 8, "int16": 16, "int32": 32}


@dataclass(frozen=True)
class FitsReader:
    """One image of a FITS file, or planes of it: plain, ``.gz``, ``.fz`` or tile-compressed.

    Parameters
    ----------
    hdu : int, str or (str, int), optional
        HDU to read if the Index has no column ``hdu``, as in astropy: its number (0 for the
        primary), its EXTNAME, or (EXTNAME, EXTVER). By default the first HDU with an image.
    stored : {"uint8", "int16", "int32"}, optional
        Keep integers as they are stored: BSCALE, BZERO and BLANK are not applied. Images with
        another BITPIX are rejected.
    planes : int, sequence of int or "all", optional
        Planes to read from images with more than two axes, if the Index has no column ``plane``.
        Several planes become the channels of the image, in this order.
    num_planes : int, optional
        Number of planes that each image must have; required with planes "all".
    largest_tile : float
        Largest tile for the graph, in pixels. Images with larger tiles are decoded by astropy in
        the reader process. The limit does not apply to integers in HCOMPRESS_1: these are sent as
        rows.

    Notes
    -----
    Values equal those of ``astropy.io.fits`` bit for bit, converted to float32. As in astropy,
    BLANK is ignored if it is 0, or if BSCALE and BZERO make unsigned integers. A BSCALE of 0 is
    ignored in compressed images.

    The last two axes in NumPy's order (NAXIS2 and NAXIS1) are rows and columns. Planes are counted
    from 0, along NAXIS3. With more axes they are counted in C order: NAXIS3 varies fastest, then
    NAXIS4. A one-dimensional image has one row.
    """

    hdu: HduName | None = None
    stored: str | None = None
    planes: Planes | None = None
    num_planes: int | None = None
    largest_tile: float = math.inf

    regions: ClassVar[bool] = True
    """The Reader reads the pixels of `Window.within`."""
    notes: ClassVar[tuple[str, ...]] = (COLUMN,)
    """Optional column of the Index."""
    specs: ClassVar[tuple[SampleSpec, ...]] = (
        # The output of the numba operator has the shape of its first input.
        SampleSpec(name="shape", dtype="uint8", ndim=3, layout="HWC"),
        SampleSpec(name="payload", dtype="uint8", ndim=1),
        SampleSpec(name="plan", dtype="int64", ndim=1),
        SampleSpec(name="scaling", dtype="float64", ndim=1),
    )
    """``shape``: empty array of shape (height, width, 0). ``payload``: bytes of the file. ``plan``:
    description of the payload, tile by tile (`readers.fits.payload`). ``scaling``: BSCALE, BZERO
    and BLANK (NaN for none), then the scaling of quantised tiles. Plans and scalings of all planes
    are concatenated."""

    def __post_init__(self) -> None:
        if self.stored not in (None, *_STORED_INTEGERS):
            raise ValueError(
                f"stored must be one of {tuple(_STORED_INTEGERS)} or None, got {self.stored!r}"
            )
        object.__setattr__(self, "hdu", checked(self.hdu))
        check_number("largest_tile", self.largest_tile, 0)
        if self.num_planes is not None:
            check_integer("num_planes", self.num_planes, 1)
        if isinstance(self.planes, str) and self.planes == "all":
            if self.num_planes is None:
                raise ValueError('planes="all" needs num_planes, the number of planes per image')
        elif self.planes is not None:
            object.__setattr__(self, "planes", plane_numbers(self.planes))

    @property
    def channels(self) -> int:
        """Number of planes that are read."""
        if isinstance(self.planes, tuple):
            return len(self.planes)
        return self.num_planes or 1 if self.planes == "all" else 1

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the image, or only the tiles that the window touches."""
        expected = whole_if_small(row.known_bytes) if window is None else None
        if row.notes.get(COLUMN):
            expected = partial(self._expected, row, window)
        with self._found(row, expected) as (file, found):
            file.need(*self.span(found, row, window))
            sample = self.read_found(file, found, row, window)
            return replace(sample, input_bytes=file.input_bytes(sample.input_bytes))

    def span(self, found: FitsImage, row: Row, window: Window | None) -> tuple[int, int]:
        """Return the first byte and the end of the data that `read_found` needs."""
        inside = window and window.within(found.shape.height, found.shape.width)
        return found.span(inside, self.chosen(row, found.shape))

    def read_found(
        self, file: FitsFile, found: FitsImage, row: Row, window: Window | None
    ) -> Sample:
        """Read an image of an open file like `read`; `input_bytes` only counts data."""
        planes, scaling = self.chosen(row, found.shape), self._scaling(found.keywords)
        size = found.shape.height, found.shape.width
        window = window and window.within(*size)
        *_, height, width = found.shape.region(window)
        image = found.image
        if image is not None and scaling is not None:
            payload, plans, tile_scaling, nbytes = image.read(file.place, window, planes)
        else:
            pixels = found.pixels(file, window, planes, scaled=scaling is None)
            if scaling is None:
                scaling, pixels = (1, 0, math.nan), pixels.astype(np.float32)
            payload, plans = plan_of_pixels(pixels)
            tile_scaling, nbytes = np.zeros((len(planes), 0)), 0  # FitsFile counts astropy's bytes
        whole_scaling = np.tile(np.array(scaling, np.float64), (len(planes), 1))
        arrays: dict[str, NDArray[Any]] = {
            "shape": np.zeros((height, width, 0), np.uint8),
            "payload": payload,
            "plan": plans.reshape(-1),
            "scaling": np.hstack((whole_scaling, tile_scaling)).reshape(-1),
        }
        return Sample(arrays, nbytes, size)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers up to the image's."""
        with self._found(row) as (_, found):
            return self.peek_found(found, row, window)

    def peek_found(self, found: FitsImage, row: Row, window: Window | None) -> Peek:
        """Describe the image of an open file like `peek`."""
        planes, scaling = self.chosen(row, found.shape), self._scaling(found.keywords)
        _, height, width = found.shape
        window = window and window.within(height, width)
        if window is not None and (window.height > height or window.width > width):
            window = None  # `read` rejects the row; an error here would hide errors of other rows
        if found.image is not None and scaling is not None:
            nbytes = found.image.payload_bytes(window, planes)
        else:
            bitpix = found.keywords["BITPIX"]
            rows, columns = (window.height, window.width) if window else (height, width)
            item = abs(bitpix) // 8 if bitpix in _AS_STORED else 4
            nbytes = len(planes) * (rows * (columns * item + 24) + OVERHEAD)
        modules = found.image.codec.MODULES if isinstance(found.image, TiledImage) else ()
        return Peek(height=height, width=width, nbytes=nbytes, modules=modules)

    def shape(self, row: Row) -> ImageShape:
        """Read the shape of the image from its header. Raises like `read`."""
        with self._found(row) as (_, found):
            return found.shape

    def header(self, row: Row, keys: Collection[str]) -> fits.Header:
        """Read keywords of the image's header.

        Parameters
        ----------
        row : Row
            Path and HDU.
        keys : collection of str
            Keywords to parse, in capitals: parsing all of a long header takes most of the time.

        Returns
        -------
        Header
            These keywords, if the file has them, and some others. NAXISn are those of the image,
            even if it is compressed into a table.

        Raises
        ------
        ReadError
            Like `read`.
        """
        wanted = self._wanted(row)
        with (
            read_errors(row.name, wanted, row.number) as where,
            FitsFile.at(row.place, wanted) as file,
        ):
            found = file.header()
            if found is None:
                with file.by_astropy() as (hdus, where.hdu):
                    return hdus[where.hdu].header
            where.hdu = found.number
            header = found.header(keys)
            if "ZNAXIS" in header:
                del header["NAXIS*"]
                for key in [key for key in header if key.startswith("ZNAXIS")]:
                    header[key[1:]] = header[key]
            return header

    def verify(self, row: Row) -> None:
        """Decode the whole image, or the planes that are read, with astropy."""
        with self._found(row) as (file, found):
            planes = self.chosen(row, found.shape)
            file.need(*found.span(None, planes))
            found.pixels(file, None, planes, scaled=False)

    def blank(self, height: int, width: int) -> Sample:
        """Return a sample without payload, which decodes to zeros."""
        no_tiles = np.zeros((0, 3), np.int64)
        plan = make_plan(
            no_tiles, bitpix=8, height=height, width=width, tile_height=1, tile_width=width
        )
        arrays: dict[str, NDArray[Any]] = {
            "shape": np.zeros((height, width, 0), np.uint8),
            "payload": np.zeros(0, np.uint8),
            "plan": np.tile(plan, self.channels),
            "scaling": np.tile(np.array((1, 0, math.nan)), self.channels),
        }
        return Sample(arrays)

    def _scaling(self, header: Mapping[str, Any]) -> tuple[float, float, float] | None:
        if self.stored is None:
            return scaling_of(header)
        if header["BITPIX"] != _STORED_INTEGERS[self.stored]:
            raise ValueError(
                f"BITPIX is {header['BITPIX']}, expected {_STORED_INTEGERS[self.stored]} for "
                f"stored values of type {self.stored}"
            )
        return 1, 0, math.nan

    def _wanted(self, row: Row) -> HduName | None:
        return self.hdu if row.hdu is None else row.hdu

    def chosen(self, row: Row, shape: ImageShape) -> list[int]:
        """Return the numbers of the planes to read; the row's plane overrides the setting."""
        if row.plane is None:
            return shape.chosen(self.planes, self.num_planes)
        if self.channels > 1:
            raise ValueError(
                f"the Index has plane {row.plane} for this row, but planes={self.planes!r} has "
                "several planes: leave out planes, or drop column 'plane' of the Index"
            )
        return shape.chosen(row.plane)

    def _expected(self, row: Row, window: Window | None, stamp: Hashable | None) -> Ranges:
        """Return the ranges for a window by the offsets in the row; [] if these do not fit.

        The offsets may be of another file, so errors of the window are left to `read`.
        """
        offsets = ImageOffsets.unpack(row.notes[COLUMN])
        if offsets is None:
            return []
        shape = offsets.image.shape
        try:
            inside = window and window.within(shape.height, shape.width)
            planes = self.chosen(row, shape)
            is_known = is_described(stamp, self._wanted(row))
            return offsets.ranges(inside, planes, header=not is_known)
        except ValueError:
            return []

    @contextmanager
    def _found(
        self, row: Row, expected: Expected | None = None
    ) -> Iterator[tuple[FitsFile, FitsImage]]:
        """Open the file of a row; yield the file and its image."""
        wanted, place = self._wanted(row), row.place
        with (
            read_errors(place.name, wanted, row.number) as where,
            FitsFile.at(place, wanted, expected=expected) as file,
        ):
            found = find_image(file, self.largest_tile)
            where.hdu = found.number
            yield file, found


def scaling_of(header: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return (BSCALE, BZERO, BLANK) as applied by astropy; None if astropy must scale the pixels.

    FITS Standard 4.0, section 4.4.2.5; for BLANK astropy's ``_ImageBaseHDU._scale_data``.
    """
    bitpix = header["BITPIX"]
    bscale, bzero = header.get("BSCALE", 1), header.get("BZERO", 0)
    if bitpix not in _AS_STORED or (bitpix < 0 and (bscale, bzero) != (1, 0)):
        return None
    for name, value in (("BSCALE", bscale), ("BZERO", bzero)):
        if not isinstance(value, int | float):
            raise ValueError(f"{name} must be a number, got {value!r}")
    blank = header.get("BLANK")
    unsigned = bitpix > 8 and bscale == 1 and bzero == 1 << (bitpix - 1)
    if bitpix < 0 or unsigned or not blank or not isinstance(blank, int):
        blank = math.nan
    return float(bscale), float(bzero), float(blank)
