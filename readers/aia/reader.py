"""AIA level 1 files, and HMI: the bytes of the part that a registered window needs, and its affine.

Nothing is resampled here. What `readers.fits.reader.FitsReader` reads travels to the graph, and
with it the matrix from pixels of the output to pixels of what was read, and what is done to the
values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from readers.aia.channel import channel_name, is_hmi
from readers.aia.degradation import CorrectionTable
from readers.aia.footprint import HALO, Box, needed_box
from readers.aia.keywords import number, text
from readers.aia.pointing import PointingTable, update_pointing
from readers.aia.registration import Center, register_matrix
from readers.aia.rules import KEYS, HeaderRules
from readers.aia.wcs import CD, PC
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.fits.hdus import checked
from readers.fits.reader import FitsReader
from readers.window import Window

_KEYS = (*KEYS, "NAXIS1", "NAXIS2", "WAVELNTH", "CONTENT", "DATE-OBS", "T_OBS", "SAT_ROT")
_CCD = 4096, 4096


@dataclass(frozen=True, kw_only=True)
class AiaReader:
    """One image of an AIA level 1 or HMI file, to be registered by the graph.

    Parameters
    ----------
    hdu : int, optional
        As for `FitsReader`.
    shape : tuple of int
        (height, width) of the registered image, in pixels. Windows are parts of it.
    scale, center, radius
        As for `readers.aia.registration.register_matrix`.
    reduce : int, optional
        Samples along each axis that the graph takes the mean of for a pixel; by default as many as
        the file has pixels there.
    order : {1, 3}
        Of the spline that the graph will resample with, which says how many pixels around it needs.
    deconvolved : tuple of int
        Channels (WAVELNTH) that the graph deconvolves: for each window all of a frame is read, and
        what is not a 4096x4096 frame of one of these raises ReadError. () for none.
    pointing : PointingTable, optional
        Where to take the pointing from, in place of the header.
    correction : CorrectionTable, optional
        Divide frames of AIA by the degradation at DATE-OBS.
    exposure : bool
        Divide frames of AIA by EXPTIME.
    missing : float
        Value of what is missing in the image, or lies beyond it.
    lowest, floor : float
        What darker pixels of AIA are raised to, and at or below what they are taken for missing,
        before they are resampled.
    curves : tuple of float, or mapping
        Numbers of the graph's stretch, for all files or by `readers.aia.channel.channel_name`; then
        a file of another channel raises ReadError.
    rules : HeaderRules
        Files that break them raise ReadError.
    """

    hdu: int | None = None
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

    specs: ClassVar[tuple[SampleSpec, ...]] = (
        *FitsReader.specs,
        SampleSpec(name="grid", dtype="uint8", ndim=3, layout="HWC"),
        SampleSpec(name="matrix", dtype="float64", ndim=2),
        SampleSpec(name="reduce", dtype="int64", ndim=1),
        SampleSpec(name="gain", dtype="float64", ndim=1),
        SampleSpec(name="stretch", dtype="float64", ndim=1),
        SampleSpec(name="special", dtype="float64", ndim=1),
        SampleSpec(name="frame", dtype="int64", ndim=1),
        SampleSpec(name="wavelnth", dtype="int32", ndim=1),
    )
    """Those of `FitsReader`, of the part that was read; an empty array of shape (height, width, 0),
    which is the size of the output; the matrix, shape (2, 3), from pixels (x, y) of the output
    before it is reduced to those of that part, and the number of those along each axis for a pixel
    of the output, shape (1,); the factor for the values, shape (1,); the file's
    `curves`; `missing` twice, `lowest` and `floor`; y and x of that part in the image, and the
    image's height and width; and WAVELNTH, 0 for HMI."""
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
        """Read the part of the image that the window needs, or all of it without a window."""
        header = self.header(row)
        with self._read_errors(row):
            matrix, reduce, box = self._placed(header, window)
            frame = np.array((box.y, box.x, header["NAXIS2"], header["NAXIS1"]), np.int64)
            gain, curve = self.gain(header), self._curve(header)
            self._check_deconvolved(header)
            hmi = is_hmi(header)
        part = self._fits.read(row, _window(box, header))
        height, width = (window.height, window.width) if window else self.shape
        matrix[:, 2] -= box.x, box.y
        lowest, floor = (-math.inf, -math.inf) if hmi else (self.lowest, self.floor)
        arrays: dict[str, NDArray[Any]] = {
            **part.arrays,
            "grid": np.zeros((height, width, 0), np.uint8),
            "matrix": matrix,
            "reduce": np.array([reduce]),
            "gain": np.array([gain]),
            "stretch": np.array(curve, np.float64),
            "special": np.array((self.missing, self.missing, lowest, floor)),
            "frame": frame,
            "wavelnth": np.array([0 if hmi else header.get("WAVELNTH", 0)], np.int32),
        }
        return Sample(arrays, part.input_bytes)

    def header(self, row: Row) -> dict[str, Any]:
        """Read the words of a header that count here, with the pointing that is asked for.

        Raises
        ------
        ReadError
            If the file cannot be read, breaks a rule, or the pointing table does not know it.
        """
        header = self._fits.header(row, _KEYS)
        with self._read_errors(row):
            words = {key: header[key] for key in _KEYS if key in header}
            self.rules.check(words)
            if self.pointing is not None:
                found = update_pointing(words, self.pointing)
                old = {key: value for key, value in words.items() if key not in (*PC, *CD)}
                words = {**old, **found}
        return words

    def gain(self, header: Mapping[str, Any]) -> float:
        """Return 1 / (EXPTIME * degradation), or what of it is asked for; 1 for HMI.

        Raises
        ------
        ValueError
            If the header or the table do not tell.
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
        """Read the headers up to the image's; the size is that of the registered image."""
        header = self.header(row)
        with self._read_errors(row):
            *_, box = self._placed(header, window)
        part = self._fits.peek(row, _window(box, header))
        height, width = self.shape
        return Peek(
            height=height,
            width=width,
            nbytes=part.nbytes + 512,
            between_nbytes=4 * box.height * box.width,
        )

    def verify(self, row: Row) -> None:
        """Decode the whole image by astropy, and ask all of the header that `read` asks."""
        header = self.header(row)
        with self._read_errors(row):
            self._placed(header, None)
            self.gain(header)
            self._curve(header)
            self._check_deconvolved(header)
        self._fits.verify(row)

    def blank(self, height: int, width: int) -> Sample:
        """Return a sample that becomes NaN and carries no bytes of a file."""
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
        return FitsReader(self.hdu)

    def _placed(
        self, header: Mapping[str, Any], window: Window | None
    ) -> tuple[NDArray[np.float64], int, Box]:
        """Return the matrix to pixels of the image, `reduce`, and the part that is needed."""
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
        # From pixels before they are reduced, the mean of whose places is that of the pixel.
        step = 1 / reduce
        matrix[:, 2] += matrix[:, :2] @ np.full(2, (step - 1) / 2)
        matrix[:, :2] *= step
        image = int(header["NAXIS2"]), int(header["NAXIS1"])
        if window is None or self.deconvolved:
            return matrix, reduce, Box(0, 0, *image)
        output = window.height * reduce, window.width * reduce
        return matrix, reduce, needed_box(matrix, output, image, self.order)

    def _curve(self, header: Mapping[str, Any]) -> tuple[float, ...]:
        if not isinstance(self.curves, Mapping):
            return self.curves
        name = channel_name(header)
        if name not in self.curves:
            raise ValueError(f"channel {name} has no stretch, those have: {', '.join(self.curves)}")
        return self.curves[name]

    def _check_deconvolved(self, header: Mapping[str, Any]) -> None:
        if not self.deconvolved:
            return
        shape = int(header["NAXIS2"]), int(header["NAXIS1"])
        if is_hmi(header) or shape != _CCD:
            raise ValueError(
                f"only frames of AIA of 4096x4096 can be deconvolved, got "
                f"{header['INSTRUME']}, {shape[0]}x{shape[1]} (height x width)"
            )
        channel = round(number(header, "WAVELNTH"))
        if channel not in self.deconvolved:
            raise ValueError(
                f"WAVELNTH is {channel}, expected one of the channels that are deconvolved: "
                f"{', '.join(map(str, self.deconvolved))}"
            )

    @contextmanager
    def _read_errors(self, row: Row) -> Iterator[None]:
        """Make a ReadError of what is wrong with a header or not in a table."""
        try:
            yield
        except ReadError:
            raise
        except Exception as error:  # astropy raises several types on damaged cards
            hdu = self.hdu if row.hdu is None else row.hdu
            raise ReadError(row.path, str(error), hdu=hdu, row=row.number) from error


def _window(box: Box, header: Mapping[str, Any]) -> Window | None:
    image = int(header["NAXIS2"]), int(header["NAXIS1"])
    return None if box == (0, 0, *image) else Window.at(*box, image=image)
