"""A Reader of images, or of one window at the same pixels of each, for `verify`.

In a file of its own, since reader processes import it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import NamedTuple

from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.fits.reader import FitsReader
from readers.jpeg.reader import JpegReader
from readers.window import Window


class Place(NamedTuple):
    """A window in pixels, in NumPy order."""

    y: int
    x: int
    height: int
    width: int

    def check(self, height: int, width: int) -> None:
        """Reject an image that does not hold all of the window.

        Raises
        ------
        ValueError
            If it reaches outside.
        """
        if self.y + self.height > height or self.x + self.width > width:
            raise ValueError(
                f"the window of rows {self.y} to {self.y + self.height - 1} and columns {self.x} "
                f"to {self.x + self.width - 1} reaches outside the image {height}x{width}"
            )


@dataclass(frozen=True)
class PlacedReader:
    """Reads what another Reader reads, as if each file held nothing but the window."""

    reader: FitsReader | JpegReader
    place: Place | None
    """The whole image if None. A file whose image does not hold it raises ReadError."""

    @property
    def channels(self) -> int:
        """Those of the Reader."""
        return self.reader.channels

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Those of the Reader."""
        return self.reader.specs

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the window that was asked for when this was made, or the whole image."""
        del window  # the pipeline is made without a crop
        return self.reader.read(row, self._window(row))

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read what is needed of the file to know the size of the window."""
        window = self._window(row)
        peek = self.reader.peek(row, window)
        return peek if window is None else replace(peek, height=window.height, width=window.width)

    def verify(self, row: Row) -> None:
        """Decode the whole image."""
        self.reader.verify(row)

    def blank(self, height: int, width: int) -> Sample:
        """Return the smallest sample: in a batch of one there is no size to keep.

        The header of a damaged file may ask for more pixels than fit into memory.
        """
        del height, width
        return self.reader.blank(1, 1)

    def _window(self, row: Row) -> Window | None:
        if self.place is None:
            return None
        image = self.reader.peek(row, None)
        try:
            self.place.check(image.height, image.width)
        except ValueError as error:
            raise ReadError(row.name, str(error), hdu=row.hdu, row=row.number) from error
        return Window.at(*self.place, image=(image.height, image.width))


def try_read(reader: PlacedReader, row: Row) -> None:
    """Read and forget: whether that kills a process is what counts."""
    with contextlib.suppress(ReadError):
        reader.read(row, None)
