"""Samples, and the contract between a Reader and the rest of the toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from readers.window import Window


@dataclass(frozen=True, slots=True)
class Row:
    """What a Reader is told of one row."""

    number: int
    """Row of the Index."""
    path: str
    hdu: int | None = None
    """FITS HDU, 0 for the primary; None for the first HDU that holds an image."""
    parts: Mapping[str, Row | None] = field(default_factory=dict, hash=False)
    """Files that belong to one sample, by name; None for one that is missing."""
    notes: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """What the Index notes of it for its Reader, by the name of the column; empty if nothing."""
    plane: int | None = None
    """Plane of an image of more than two axes, from 0 on; None where it has but one, or the Reader
    knows which."""

    def part(self, name: str) -> Row | None:
        """Return one of several files of the row, under the row's number; None if it is missing.

        Raises
        ------
        KeyError
            If the row was made without that part.
        """
        if name not in self.parts:
            raise KeyError(
                f"row {self.number} was made without the part {name!r}, it has "
                f"{', '.join(self.parts) or 'none'}: a Reader names what it needs in `parts`"
            )
        return self.parts[name]


@dataclass(frozen=True, slots=True)
class Sample:
    """Named arrays of one row, native byte order, one for each SampleSpec of its Reader."""

    arrays: Mapping[str, NDArray[Any]]
    input_bytes: int = 0
    """Bytes of the file that were read for it."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """What is known of one array of a Sample before any file was opened."""

    name: str
    """The name by which decoders and users ask for the array."""
    dtype: str
    """NumPy name of the element type, native byte order, as ``"uint8"``."""
    ndim: int
    """Number of axes: DALI wants it fixed, where extents may differ from sample to sample."""
    layout: str = ""
    """DALI layout, a letter per axis (``"HWC"``), or empty."""
    unit: str = ""
    """Physical unit of the values, as FITS writes them (``"DN"``), or empty."""

    def check(self, array: NDArray[Any]) -> None:
        """Refuse an array that DALI would misread without a word (other byte order, type, ndim).

        Raises
        ------
        TypeError
            If the array is not as this SampleSpec says.
        """
        if array.dtype != np.dtype(self.dtype) or array.ndim != self.ndim:
            msg = (
                f"array {self.name!r} of the Sample must be {self.ndim}-D {self.dtype} in native "
                f"byte order, got {array.ndim}-D {array.dtype.str}: mend the Reader's read()"
            )
            raise TypeError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """What the head of a file tells about the Sample it will give."""

    height: int
    """Rows of the image as it is displayed (EXIF orientation applied), in pixels."""
    width: int
    """Columns of the image as it is displayed, in pixels."""
    nbytes: int
    """Bytes that the Sample will take in shared memory, about."""
    between_nbytes: int = 0
    """Bytes of what the graph decodes if that is not the image yet, but resampled to it."""


class Reader(Protocol):
    """One file format: turns one row of the Index into one Sample.

    A Reader is pickled to the reader processes, so it holds settings and no open files. It knows
    nothing of DALI, epochs or batches. `readers.npy.NpyReader` is the smallest one.

    One whose `read` obeys the angle and the zoom of a Window says so by an attribute ``turns`` that
    is True; all others are never given such windows.

    A Reader of several files a row also has ``parts``, a tuple of str: the parts of the row that it
    will ask for by `Row.part`. `readers.channels.ChannelsReader` is one. One that makes use of
    columns of bytes, where the Index has them, names them by ``notes``, and finds them in
    `Row.notes`. `readers.jpeg.reader.JpegReader` is one.
    """

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """The arrays of each Sample, in the order in which they travel."""
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
            Cut this window and no more; the whole image if None.

        Returns
        -------
        Sample
            One array for each of `specs`, in memory of its own.

        Raises
        ------
        ReadError
            If the row cannot be read, whatever the cause.
        """
        ...

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the head of the file alone. Raises ReadError like `read`."""
        ...

    def verify(self, row: Row) -> None:
        """Decode the whole row, to tell why a graph has failed on it.

        A Reader that leaves decoding to the graph looks at no more than the head of its files in
        `read`. Raises ReadError like `read`.
        """
        ...

    def blank(self, height: int, width: int) -> Sample:
        """Make a Sample that decodes to an image of this size without reading a file.

        It keeps a batch rectangular where a slot has no row, or one that cannot be read. Such a
        slot is not valid and its pixels are never delivered by the Loader.
        """
        ...
