"""Contract between a Reader and the rest of the toolkit: rows, samples and their specs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.places.contract import Place
from readers.places.opener import LOCAL, Places

if TYPE_CHECKING:
    from readers.window import Window

Short = Literal["reject", "pad"]
"""Treatment of recordings and videos that are shorter than a segment or clip."""


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
    """Values of the Reader's optional columns in the Index, by name: bytes, empty for null, or
    numbers, NaN for null."""
    plane: int | None = None
    """Plane of an image with more than two axes, from 0 on; None if it has only one, or if the
    Reader chooses it."""
    draws: RandomNumbers | None = None
    """Random numbers of the row in this epoch, for Readers with `uses_draws`; None in mode
    ``eval``, and for rows that are read outside an epoch."""
    offset: int | None = None
    """First byte of the row in the file, e.g. of a member of a tar; None for the whole file."""
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
        """Path for messages; a part of a file also has its first byte and end."""
        return self.place.name

    @property
    def known_bytes(self) -> int | None:
        """Number of bytes to read, if it is known."""
        return self.file_bytes if self.offset is None else self.nbytes

    def part(self, name: str) -> Row | None:
        """Return one of several files of the row, or None if it is missing.

        Raises
        ------
        KeyError
            If the row was made without that part.
        """
        if name not in self.parts:
            raise KeyError(
                f"row {self.number} was made without the part {name!r}, it has "
                f"{', '.join(self.parts) or 'none'}: a Reader lists the parts it needs in `parts`"
            )
        return self.parts[name]


class ClipFrames(NamedTuple):
    """Frames of a video that a clip shows."""

    numbers: tuple[int, ...]
    """Number of each frame, counted from 0; some may repeat."""
    total: int
    """Frames of the whole video."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Named arrays of one row, native byte order, one for each SampleSpec of its Reader."""

    arrays: Mapping[str, NDArray[Any]]
    input_bytes: int = 0
    """Bytes read from the file."""
    image_size: tuple[int, int] | None = None
    """(height, width) in pixels: of the whole image, for Readers with `regions`, or of the image
    that the graph makes, for Readers with `turns`."""
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
    """NumPy name of the element type, native byte order, e.g. ``"uint8"``."""
    ndim: int | None = None
    """Number of axes if shapes differ between samples; otherwise taken from `shape`."""
    shape: tuple[int, ...] | None = None
    """Shape of the array in all samples. Small arrays of known shape are sent faster."""
    layout: str = ""
    """DALI layout, one letter per axis (``"HWC"``), or empty."""
    unit: str = ""
    """Physical unit of the values, spelt as in FITS (``"DN"``), or empty."""

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
        """Raise TypeError for an array that DALI would misread silently (byte order, type or ndim).

        Raises
        ------
        TypeError
            If the array does not match this SampleSpec.
        """
        if not isinstance(array, np.ndarray | np.generic):
            raise TypeError(
                f"array {self.name!r} of the Sample must be an array of NumPy, got "
                f"{type(array).__name__}: fix the Reader's read()"
            )
        if array.dtype != np.dtype(self.dtype) or array.ndim != self.ndim:
            msg = (
                f"array {self.name!r} of the Sample must be {self.ndim}-D {self.dtype} in native "
                f"byte order, got {array.ndim}-D {array.dtype.str}: fix the Reader's read()"
            )
            raise TypeError(msg)
        if self.shape not in (None, array.shape):
            raise TypeError(
                f"array {self.name!r} of the Sample must have shape {self.shape}, got "
                f"{array.shape}: fix the Reader's read()"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Size of the Sample that a file will become, from the file's header."""

    height: int
    """Rows of the image as displayed (EXIF orientation applied), in pixels."""
    width: int
    """Columns of the image as displayed, in pixels."""
    nbytes: int
    """Approximate bytes of the Sample in shared memory."""
    between_nbytes: int = 0
    """Bytes of the decoded pixels if the graph resamples them to the image."""
    decoder_nbytes: int = 0
    """Bytes of the whole image if the graph decodes it for a window."""
    modules: tuple[str, ...] = ()
    """Modules that `read` imports at first use; they are imported once, before readers fork."""


class Reader(Protocol):
    """One file format: reads one row of the Index into one Sample.

    A Reader is pickled and sent to the reader processes, so it holds settings and no open files. It
    does not depend on DALI, epochs or batches. `dali_pipelines.NpyReader` is the smallest one.

    These optional attributes are True for some Readers:

    - ``regions``: it reads the pixels of ``window.within(height, width)``, for an image of that
      size, and its Samples have `image_size`. Only such Readers get turned windows and windows
      whose size depends on the image; the graph resamples the pixels that they read.
    - ``turns``: in place of ``regions``, its own graph applies the angle and the zoom of a Window.
    - ``nearest``: the graph samples its images by nearest neighbour.
    - ``uses_draws``: it makes random choices, with numbers from `Row.draws`, so that they depend
      only on seed, epoch and row.

    A Reader of clips of videos has ``frames``, the number of frames of each clip, and its Samples
    have `Sample.frames`. Targets can then be those of each frame.

    A Reader of several files per row also has ``parts``, a tuple of str: the parts of the row that
    it reads with `Row.part`, see `dali_pipelines.ChannelsReader`. A Reader that uses optional
    columns of bytes in the Index lists them in ``notes`` and finds them in `Row.notes`, see
    `dali_pipelines.JpegReader`.
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
            Path and HDU.
        window : Window, optional
            Part of the image to read; None for the whole image.

        Returns
        -------
        Sample
            One array for each of `specs`, in its own memory or in memory of `readers.buffer`.

        Raises
        ------
        ReadError
            If the row cannot be read, for whatever reason.
        """
        ...

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read only the header of the file. Raises ReadError like `read`."""
        ...

    def verify(self, row: Row) -> None:
        """Decode the whole row, to find out why a graph failed on it.

        A Reader that leaves decoding to the graph may check only the headers of files in `read`.
        Raises ReadError like `read`.
        """
        ...

    def blank(self, height: int, width: int) -> Sample:
        """Return a Sample that decodes to an image of this size, without reading a file.

        It fills a batch slot that has no row, or a row that cannot be read. Such a slot is not
        valid, and the Loader never delivers its pixels.
        """
        ...
