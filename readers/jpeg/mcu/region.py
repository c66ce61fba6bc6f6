"""Region of MCUs (minimum coded units) of a JPEG that a window needs."""

from __future__ import annotations

from typing import NamedTuple

from readers.jpeg.header import JpegHeader
from readers.jpeg.turn import Box

_USUAL_MCU = 16
"""Height and width in pixels of an MCU whose colours are subsampled."""


class McuRegion(NamedTuple):
    """Rectangle of MCUs."""

    top: int
    rows: int
    left: int
    columns: int

    @classmethod
    def around(cls, header: JpegHeader, y: int, x: int, height: int, width: int) -> McuRegion:
        """Return the region that decodes to the pixels of a window of the stored image.

        It has one more MCU on each side, because decoders interpolate subsampled colours.
        """
        top, bottom = _around(y, height, header.mcu_height, header.num_rows)
        left, right = _around(x, width, header.mcu_width, header.num_columns)
        return cls(top, bottom - top, left, right - left)

    def without_columns(self, header: JpegHeader) -> McuRegion:
        """Return the region with whole rows if this is faster than cutting columns."""
        columns = header.num_columns
        if 5 * (columns - self.columns) > 3 * columns:
            return self
        return self._replace(left=0, columns=columns)

    def size(self, header: JpegHeader) -> tuple[int, int]:
        """Return the height and width of the region in pixels."""
        y, x = self.top * header.mcu_height, self.left * header.mcu_width
        bottom = min(header.height, y + self.rows * header.mcu_height)
        right = min(header.width, x + self.columns * header.mcu_width)
        return bottom - y, right - x


def _around(start: int, size: int, mcu: int, count: int) -> tuple[int, int]:
    """Return the first MCU and the end of the MCUs that some pixels need."""
    return max(0, start // mcu - 1), min(count, (start + size - 1) // mcu + 2)


def saves_time(box: Box, image_height: int, image_width: int) -> bool:
    """Return whether cutting a box out of a stored image is faster than decoding the image.

    DALI's decoder takes 0.55 to 0.65 microseconds for each MCU of 0.06 kB above or beside a window.
    Skipping an MCU here takes 0.34. Cutting is faster if the decoder would decode two thirds of the
    skipped MCUs. The size of MCUs is assumed, because parsing a header takes longer than this.
    """
    y, x, height, width = box
    top, left = max(0, y - _USUAL_MCU), max(0, x - _USUAL_MCU)
    rows = min(image_height, y + height + _USUAL_MCU) - top
    columns = min(image_width, x + width + _USUAL_MCU) - left
    spared = top * image_width + rows * (image_width - columns)
    return 3 * spared > 2 * (top + rows) * image_width
