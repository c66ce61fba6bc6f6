"""Region of MCUs (minimum coded units) of a JPEG that a window needs."""

from __future__ import annotations

from typing import NamedTuple

from readers.jpeg.header import JpegHeader


class Region(NamedTuple):
    """Rectangle of MCUs."""

    top: int
    rows: int
    left: int
    columns: int

    @classmethod
    def around(cls, header: JpegHeader, y: int, x: int, height: int, width: int) -> Region:
        """Return the region that decodes to the pixels of a window of the stored image.

        It has one more MCU on each side, because subsampled colours are interpolated from
        neighbouring pixels.
        """
        top, bottom = _around(y, height, header.mcu_height, header.num_rows)
        left, right = _around(x, width, header.mcu_width, header.num_columns)
        return cls(top, bottom - top, left, right - left)

    def saves_time(self, header: JpegHeader) -> bool:
        """Return whether cutting the region out of a file is faster than decoding the file."""
        columns = header.num_columns
        above, beside = self.top * columns, self.rows * (columns - self.columns)
        return _saves_time(above + beside, (self.top + self.rows) * columns)

    def without_columns(self, header: JpegHeader) -> Region:
        """Return the region with whole rows if decoding the MCUs beside it is faster."""
        columns = header.num_columns
        if _saves_time(columns - self.columns, columns):
            return self
        return self._replace(left=0, columns=columns)

    def size(self, header: JpegHeader) -> tuple[int, int]:
        """Return the height and width of the region in pixels."""
        y, x = self.top * header.mcu_height, self.left * header.mcu_width
        bottom = min(header.height, y + self.rows * header.mcu_height)
        right = min(header.width, x + self.columns * header.mcu_width)
        return bottom - y, right - x


def _around(start: int, size: int, mcu: int, count: int) -> tuple[int, int]:
    """Return the first MCU that some pixels need, and the end of such MCUs."""
    return max(0, start // mcu - 1), min(count, (start + size - 1) // mcu + 2)


def _saves_time(spared: int, passed: int) -> bool:
    """Return whether skipping `passed` MCUs pays off if it spares a decoder `spared` MCUs.

    DALI's decoder takes 0.5 to 0.6 microseconds for each MCU, of 0.06 kB, above or beside a window;
    skipping one takes 0.25 to 0.35.
    """
    return 5 * spared > 3 * passed
