"""Contract between a Reader and the rest of the toolkit: rows, samples and their specs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.errors import ReadError, reason_of
from readers.places.contract import Place
from readers.places.opener import LOCAL, Places

if TYPE_CHECKING:
    from readers.window import Window

Short = Literal["reject", "pad"]
"""Treatment of recordings and videos that are shorter than the segment or clip."""


class RandomNumbers(Protocol):
    """Random numbers of one row in one epoch, e.g. `readers.Draws`."""

    def fractions(self, count: int) -> NDArray[np.float64]:
        """Return numbers in [0, 1), shape (count,); the first ones do not depend on `count`."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the Index as passed to a Reader."""

    number: int
    """Number of the row in the Index."""
    path: str
    hdu: int | None = None
    """FITS HDU, 0 for the primary; None for the first HDU with an image."""
    parts: Mapping[str, Row | None] = field(default_factory=dict, hash=False)
    """Files of a sample by name; None for a missing file."""
    notes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Values of the Reader's optional columns in the Index, by name: bytes (empty for null) or
    numbers (NaN for null)."""
    plane: int | None = None
    """Plane of an image with more than two axes, from 0 on; None for an image with one plane, or if
    the Reader chooses the plane."""
    draws: RandomNumbers | None = None
    """Random numbers of the row in this epoch, for Readers with `uses_draws`; None in mode
    ``eval``, and for rows that are read outside an epoch."""
    offset: int | None = None
    """First byte of the row in its file, such as a tar; None for the whole file."""
    nbytes: int | None = None
    """Bytes of the row from `offset` on."""
    etag: str | None = None
    """ETag of a remote object when it was indexed."""
    file_bytes: int | None = None
    """Length of the whole remote object."""
    places: Places = field(default=LOCAL, repr=False)
    """Opens the files of the row."""

    @property
    def place(self) -> Place:
        """Place of the row's bytes, to be opened with ``with``."""
        return self.places.at(
            self.path, self.offset, self.nbytes, etag=self.etag, file_bytes=self.file_bytes
        )

    @property
    def name(self) -> str:
        """Path for messages, with first byte and end if the row is a part of a file."""
        return self.place.name

    @property
    def known_bytes(self) -> int | None:
        """Number of bytes of the row; None if unknown."""
        return self.file_bytes if self.offset is None else self.nbytes

    def part(self, name: str) -> Row | None:
        """Return a file of the row by the name of its part; None for a missing file.

        Raises
        ------
        KeyError
            If the Reader has not listed the part in `parts`.
        """
        if name not in self.parts:
            raise KeyError(
                f"row {self.number} has no part {name!r}, its parts are "
                f"{', '.join(self.parts) or 'none'}: list all parts in `parts` of the Reader"
            )
        return self.parts[name]


@contextmanager
def row_errors(row: Row) -> Iterator[None]:
    """Convert any exception inside to a ReadError of a row."""
    try:
        yield
    except Exception as error:  # libraries raise many types for malformed files
        raise ReadError(row.name, reason_of(error, row.path), row=row.number) from error


class ClipFrames(NamedTuple):
    """Frames of a video in a clip."""

    numbers: tuple[int, ...]
    """Number of each frame, counted from 0; numbers may repeat."""
    total: int
    """Number of frames of the whole video."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Arrays of one row in native byte order, one for each SampleSpec of the Reader."""

    arrays: Mapping[str, NDArray[Any]]
    input_bytes: int = 0
    """Bytes read from the file."""
    image_size: tuple[int, int] | None = None
    """(height, width) in pixels of the whole image for Readers with `regions`, of the image that
    the graph makes for Readers with `turns`."""
    frames: ClipFrames | None = None
    """Frames of the clip, for Readers with `frames`."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """Description of one array of a Sample, known before any file is opened."""

    name: str
    """Name of the array, for decoders and users."""
    dtype: str
    """NumPy name of the element type, e.g. ``"uint8"``."""
    ndim: int | None = None
    """Number of axes; required if shapes differ between samples."""
    shape: tuple[int, ...] | None = None
    """Shape in all samples; None if shapes differ. Small arrays of known shape are sent faster."""
    layout: str = ""
    """DALI layout with one letter per axis (``"HWC"``), or empty."""
    unit: str = ""
    """Physical unit of the values in FITS spelling (``"DN"``), or empty."""

    def __post_init__(self) -> None:
        if self.ndim == 0 and self.shape is None:
            object.__setattr__(self, "shape", ())
        if self.shape is not None and self.ndim is None:
            object.__setattr__(self, "ndim", len(self.shape))
        if self.ndim is None or (self.shape is not None and self.ndim != len(self.shape)):
            raise ValueError(
                f"array {self.name!r} needs ndim or shape, got {self.ndim} and {self.shape}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of an array of known shape."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape or ())

    def check(self, array: NDArray[Any]) -> None:
        """Check byte order, type and shape of an array, which DALI would misread silently.

        Raises
        ------
        TypeError
            If the array does not match this SampleSpec.
        """
        if not isinstance(array, np.ndarray | np.generic):
            raise TypeError(
                f"array {self.name!r} of the Sample must be a NumPy array, got "
                f"{type(array).__name__}: fix the Reader's read()"
            )
        if array.dtype != np.dtype(self.dtype) or array.ndim != self.ndim:
            raise TypeError(
                f"array {self.name!r} of the Sample must be {self.ndim}-D {self.dtype} in native "
                f"byte order, got {array.ndim}-D {array.dtype.str}: fix the Reader's read()"
            )
        if self.shape not in (None, array.shape):
            raise TypeError(
                f"array {self.name!r} of the Sample must have shape {self.shape}, got "
                f"{array.shape}: fix the Reader's read()"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Size of an image and of its Sample, from the header of the file."""

    height: int
    """Rows of the image as displayed (EXIF orientation applied), in pixels."""
    width: int
    """Columns of the image as displayed, in pixels."""
    nbytes: int
    """Approximate bytes of the Sample in shared memory."""
    between_nbytes: int = 0
    """Bytes of decoded pixels, if the graph resamples them."""
    decoder_nbytes: int = 0
    """Bytes of the whole image, if the graph decodes all of it for a window."""
    modules: tuple[str, ...] = ()
    """Modules that `read` imports at first use. They are imported once, before readers fork."""


class Reader(Protocol):
    """One file format: reads one row of the Index into one Sample.

    A Reader is pickled and sent to the reader processes, so it has settings and no open files. It
    does not depend on DALI, epochs or batches. `dali_pipelines.NpyReader` is the smallest one.

    Some Readers have optional attributes with the value True:

    - ``regions``: the Reader reads the pixels of ``window.within(height, width)``, for an image of
      this size, and its Samples have `image_size`. Only such Readers get turned windows, and
      windows whose size depends on the image. The graph resamples the pixels.
    - ``turns``: in place of ``regions``, the Reader's own graph applies angle and zoom of a Window.
    - ``nearest``: the graph samples the images by nearest neighbour.
    - ``uses_draws``: the Reader makes random choices with numbers from `Row.draws`, which depend
      only on seed, epoch and row.

    A Reader of video clips has ``frames``, the number of frames of each clip, and its Samples have
    `Sample.frames`. Targets can then have values for each frame.

    A Reader of several files per row has ``parts``, a tuple of str: the parts that it reads with
    `Row.part`, see `dali_pipelines.ChannelsReader`. A Reader with optional columns of the Index
    lists them in ``notes`` and finds their values in `Row.notes`, see `dali_pipelines.JpegReader`.
    """

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Arrays of each Sample, in the order in which they are sent."""
        ...

    @property
    def channels(self) -> int:
        """Channels of the decoded image."""
        ...

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read one row.

        Parameters
        ----------
        row : Row
            Row of the Index.
        window : Window, optional
            Part of the image to read; None for the whole image.

        Returns
        -------
        Sample
            One array for each of `specs`, in new memory or in memory of `readers.buffer`.

        Raises
        ------
        ReadError
            If the row cannot be read, for any reason.
        """
        ...

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read only the header of the file. Raises ReadError like `read`."""
        ...

    def verify(self, row: Row) -> None:
        """Decode the whole row, to find out why a graph failed on it.

        `read` may check only headers if the graph decodes. Raises ReadError like `read`.
        """
        ...

    def blank(self, height: int, width: int) -> Sample:
        """Return a Sample that decodes to an image of this size, without reading a file.

        It fills batch slots without a row, and slots whose row cannot be read. The Loader never
        delivers these pixels.
        """
        ...
