"""Reader of AIA level 1 and HMI files: the bytes that a registered window needs, and its matrix.

Nothing is resampled here. The graph gets the bytes of `dali_pipelines.FitsReader`, the matrix from
pixels of the output to pixels of the part that was read, and a factor for the values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from readers.aia.channel import channel_name, is_hmi
from readers.aia.degradation import CorrectionTable
from readers.aia.keywords import number, text
from readers.aia.pointing import PointingTable, update_pointing
from readers.aia.registration import Center, register_matrix
from readers.aia.rules import KEYS, HeaderRules
from readers.aia.wcs import CD, FULL_FRAME, PC
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.fits.file import read_errors
from readers.fits.headers import HduName, checked
from readers.fits.reader import FitsReader
from readers.window import HALO, Box, Window, needed_box

_KEYS = (*KEYS, "NAXIS1", "NAXIS2", "WAVELNTH", "CONTENT", "DATE-OBS", "T_OBS", "SAT_ROT")


@dataclass(frozen=True, kw_only=True)
class AiaReader:
    """One image of an AIA level 1 or HMI file, which the graph registers.

    Parameters
    ----------
    hdu : int, str or (str, int), optional
        As for `FitsReader`.
    shape : tuple of int
        (height, width) of the registered image, in pixels. Windows are cut from it.
    scale, center, radius
        As for `readers.aia.registration.register_matrix`.
    reduce : int, optional
        Samples per pixel along each axis that the graph averages. The default is the number of
        pixels of the file per pixel of the output.
    order : {1, 3}
        Order of the spline for resampling. It determines how many surrounding pixels are read.
    deconvolved : tuple of int
        Channels (WAVELNTH) that the graph deconvolves; () for none. Whole frames are read for each
        window. All files but frames of 4096x4096 of these channels raise ReadError.
    pointing : PointingTable, optional
        Pointing to use in place of the header's.
    correction : CorrectionTable, optional
        Divide frames of AIA by the degradation at DATE-OBS.
    exposure : bool
        Divide frames of AIA by EXPTIME.
    missing : float
        Value of pixels that are missing in the image, or outside the image.
    lowest, floor : float
        Before resampling, pixels of AIA below `lowest` are set to `lowest`, and pixels at or below
        `floor` are treated as missing.
    curves : tuple of float, or mapping
        Numbers of the graph's stretch, for all files or by `readers.aia.channel.channel_name`, for
        HMI also by CONTENT or WAVELNTH; a file that the mapping lacks raises ReadError.
    rules : HeaderRules
        Files that break a rule raise ReadError.
    largest_tile : float
        As for `FitsReader`.
    """

    hdu: HduName | None = None
    shape: tuple[int, int] = (4096, 4096)
    scale: float = 0.6
    center: Center = "reference_pixel"
    radius: float | None = None
    reduce: int | None = None
    order: Literal[1, 3] = 3
    deconvolved: tuple[int, ...] = ()
    pointing: PointingTable | None = None
    correction: CorrectionTable | None = None
    exposure: bool = False
    missing: float = 0.0
    lowest: float = -math.inf
    floor: float = -math.inf
    curves: tuple[float, ...] | Mapping[str, tuple[float, ...]] = ()
    rules: HeaderRules = field(default_factory=HeaderRules)
    largest_tile: float = math.inf

    specs: ClassVar[tuple[SampleSpec, ...]] = (
        *FitsReader.specs,
        SampleSpec(name="grid", dtype="uint8", ndim=3, layout="HWC"),
        SampleSpec(name="matrix", dtype="float64", shape=(2, 3)),
        SampleSpec(name="reduce", dtype="int64", shape=(1,)),
        SampleSpec(name="gain", dtype="float64", shape=(1,)),
        SampleSpec(name="stretch", dtype="float64", ndim=1),
        SampleSpec(name="special", dtype="float64", shape=(4,)),
        SampleSpec(name="frame", dtype="int64", shape=(4,)),
        SampleSpec(name="wavelnth", dtype="int32", shape=(1,)),
    )
    """Arrays of `FitsReader` for the part of the image that was read. ``grid``: empty array of
    shape (height, width, 0) for the size of the output. ``matrix``: from pixels (x, y) of the
    output before reduction to pixels of the part. ``reduce``: pixels along each axis that are
    averaged to one. ``gain``: factor for the values. ``stretch``: `curves` of the file.
    ``special``: `missing` twice, `lowest` and `floor`. ``frame``: y and x of the part in the image,
    height and width of the image. ``wavelnth``: WAVELNTH, 0 for HMI."""
    channels = 1
    turns = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "hdu", checked(self.hdu))
        if min(self.shape) < 1:
            raise ValueError(f"shape must be at least 1x1 (height x width), got {self.shape}")
        if self.reduce is not None and self.reduce < 1:
            raise ValueError(f"reduce must be at least 1, got {self.reduce}")
        for name in ("scale", "radius"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        if self.order not in HALO:
            raise ValueError(f"order must be one of {tuple(HALO)}, got {self.order}")
        if self.center not in get_args(Center):
            raise ValueError(f"center must be one of {get_args(Center)}, got {self.center!r}")

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the part of the image that the window needs; the whole image without a window."""
        header = self.header(row)
        with self._read_errors(row):
            matrix, reduce, box = self._geometry(header, window)
            gain, curve = self.gain(header), self._curve(header)
            self._check_deconvolved(header)
        stored, hmi = self._fits.read(row, _window(box, header)), is_hmi(header)
        height, width = (window.height, window.width) if window else self.shape
        matrix[:, 2] -= box.x, box.y
        lowest, floor = (-math.inf, -math.inf) if hmi else (self.lowest, self.floor)
        arrays: dict[str, NDArray[Any]] = {
            **stored.arrays,
            "grid": np.zeros((height, width, 0), np.uint8),
            "matrix": matrix,
            "reduce": np.array([reduce]),
            "gain": np.array([gain]),
            "stretch": np.array(curve, np.float64),
            "special": np.array((self.missing, self.missing, lowest, floor)),
            "frame": np.array((box.y, box.x, *_image_shape(header)), np.int64),
            "wavelnth": np.array([0 if hmi else header.get("WAVELNTH", 0)], np.int32),
        }
        return Sample(arrays, stored.input_bytes, self.shape)

    def header(self, row: Row) -> dict[str, Any]:
        """Read the keywords that are used here, with the pointing of the table if it is set.

        Raises
        ------
        ReadError
            If the file cannot be read or breaks a rule, or if the pointing table has no value.
        """
        header = self._fits.header(row, _KEYS)
        with self._read_errors(row):
            keywords = {key: header[key] for key in _KEYS if key in header}
            self.rules.check(keywords)
            if self.pointing is not None:
                updated = update_pointing(keywords, self.pointing)
                kept = {key: value for key, value in keywords.items() if key not in (*PC, *CD)}
                keywords = {**kept, **updated}
        return keywords

    def gain(self, header: Mapping[str, Any]) -> float:
        """Return 1 / (EXPTIME * degradation), by the settings; 1 for HMI.

        Raises
        ------
        ValueError
            If the header or the table lacks a value.
        """
        divisor = 1.0
        if is_hmi(header):
            return divisor
        if self.exposure:
            exposure = number(header, "EXPTIME")
            if exposure <= 0:
                raise ValueError(f"EXPTIME is {exposure}, expected more than 0 seconds")
            divisor *= exposure
        if self.correction is not None:
            channel = round(number(header, "WAVELNTH"))
            divisor *= self.correction.degradation(channel, text(header, "DATE-OBS"))
        return 1 / divisor

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the headers up to the image's; return the size of the registered image."""
        header = self.header(row)
        with self._read_errors(row):
            *_, box = self._geometry(header, window)
        stored = self._fits.peek(row, _window(box, header))
        height, width = self.shape
        return Peek(
            height=height,
            width=width,
            nbytes=stored.nbytes + 512,
            between_nbytes=4 * box.height * box.width,
            modules=stored.modules,
        )

    def verify(self, row: Row) -> None:
        """Decode the whole image with astropy, and check all keywords that `read` uses."""
        header = self.header(row)
        with self._read_errors(row):
            self._geometry(header, None)
            self.gain(header)
            self._curve(header)
            self._check_deconvolved(header)
        self._fits.verify(row)

    def blank(self, height: int, width: int) -> Sample:
        """Return a sample without payload, whose pixels become NaN."""
        curves = self.curves
        curve = next(iter(curves.values())) if isinstance(curves, Mapping) else curves
        arrays: dict[str, NDArray[Any]] = {
            **self._fits.blank(height, width).arrays,
            "grid": np.zeros((height, width, 0), np.uint8),
            "matrix": np.eye(2, 3),
            "reduce": np.ones(1, np.int64),
            "gain": np.full(1, math.nan),
            "stretch": np.array(curve, np.float64),
            "special": np.array((0, 0, -math.inf, -math.inf)),
            "frame": np.array((0, 0, height, width), np.int64),
            "wavelnth": np.zeros(1, np.int32),
        }
        return Sample(arrays)

    @property
    def _fits(self) -> FitsReader:
        return FitsReader(self.hdu, largest_tile=self.largest_tile)

    def _geometry(
        self, header: Mapping[str, Any], window: Window | None
    ) -> tuple[NDArray[np.float64], int, Box]:
        """Return the matrix to pixels of the image, `reduce` and the box to read."""
        matrix = register_matrix(
            header,
            shape=self.shape,
            scale=self.scale,
            center=self.center,
            radius=self.radius,
            window=window,
        )
        pixels = math.sqrt(abs(np.linalg.det(matrix[:, :2])))
        reduce = self.reduce or max(1, round(pixels))
        # The matrix starts from pixels before reduction. Their mean is the pixel's position.
        step = 1 / reduce
        matrix[:, 2] += matrix[:, :2] @ np.full(2, (step - 1) / 2)
        matrix[:, :2] *= step
        image = _image_shape(header)
        if window is None or self.deconvolved:
            return matrix, reduce, Box(0, 0, *image)
        output = window.height * reduce, window.width * reduce
        return matrix, reduce, needed_box(matrix, output, image, self.order)

    def _curve(self, header: Mapping[str, Any]) -> tuple[float, ...]:
        if not isinstance(self.curves, Mapping):
            return self.curves
        names = [channel_name(header)]
        if is_hmi(header):  # samples are grouped by these keywords, which name their channels
            names.append(text(header, "CONTENT"))
            if "WAVELNTH" in header:
                names.append(str(round(number(header, "WAVELNTH"))))
        for name in names:
            if name in self.curves:
                return self.curves[name]
        known = ", ".join(self.curves)
        raise ValueError(f"channel {names[0]} has no stretch, expected one of {known}")

    def _check_deconvolved(self, header: Mapping[str, Any]) -> None:
        if not self.deconvolved:
            return
        height, width = _image_shape(header)
        if is_hmi(header) or (height, width) != FULL_FRAME:
            raise ValueError(
                f"only AIA frames of 4096x4096 can be deconvolved, got {header['INSTRUME']} of "
                f"{height}x{width} (height x width): leave the row out"
            )
        channel = round(number(header, "WAVELNTH"))
        if channel not in self.deconvolved:
            raise ValueError(
                f"WAVELNTH is {channel}, expected one of the channels that are deconvolved: "
                f"{', '.join(map(str, self.deconvolved))}"
            )

    def _read_errors(self, row: Row) -> AbstractContextManager[object]:
        return read_errors(row.name, self.hdu if row.hdu is None else row.hdu, row.number)


def _image_shape(header: Mapping[str, Any]) -> tuple[int, int]:
    return int(header["NAXIS2"]), int(header["NAXIS1"])


def _window(box: Box, header: Mapping[str, Any]) -> Window | None:
    image = _image_shape(header)
    return None if box == (0, 0, *image) else Window.at(*box, image=image)
