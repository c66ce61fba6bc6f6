"""A Reader of 16-bit PGM files, which many cameras write: an example of a format of your own."""

from dataclasses import dataclass

import numpy as np

from readers import Peek, ReadError, Sample, SampleSpec

MOST_HEADER_BYTES = 1024


@dataclass(frozen=True)
class PgmReader:
    """Read 16-bit gray images of type P5; for a window, only its rows are read."""

    channels = 1
    specs = (SampleSpec(name="image", dtype="uint16", ndim=3, layout="HWC"),)

    def read(self, row, window):
        """Read the window, or the whole image."""
        try:
            with row.place as place:
                height, width, start = read_header(place)
                y, x = (0, 0) if window is None else window.place(height, width)
                rows, columns = (window.height, window.width) if window else (height, width)
                start += 2 * width * y
                content = place.read(start, start + 2 * width * rows)
            if len(content) < 2 * width * rows:
                raise ValueError("expected more pixels: the file is cut off")
            pixels = np.frombuffer(content, ">u2").reshape(rows, width)[:, x : x + columns, None]
        except (OSError, ValueError) as error:
            raise ReadError(row.name, str(error), row=row.number) from error
        # PGM is big-endian; arrays for DALI must have the byte order of the machine.
        return Sample({"image": pixels.astype(np.uint16, order="C")}, len(content))

    def peek(self, row, window):
        """Read only the header, to estimate the memory of a run before it starts."""
        try:
            with row.place as place:
                height, width, _ = read_header(place)
        except (OSError, ValueError) as error:
            raise ReadError(row.name, str(error), row=row.number) from error
        rows, columns = (window.height, window.width) if window else (height, width)
        return Peek(height=height, width=width, nbytes=2 * rows * columns)

    def verify(self, row):
        """Read all of the file."""
        self.read(row, None)

    def blank(self, height, width):
        """Return an image for a slot without a row; it is never delivered."""
        return Sample({"image": np.zeros((height, width, 1), np.uint16)})


def read_header(place):
    """Return height, width, and where the pixels begin."""
    content = place.read(0, MOST_HEADER_BYTES)
    fields = content.split(maxsplit=4)
    if len(fields) < 5 or fields[0] != b"P5" or fields[3] != b"65535":
        raise ValueError("expected a PGM file of type P5 with 16 bits and no comments")
    width, height = int(fields[1]), int(fields[2])
    if min(height, width) < 1:
        raise ValueError(f"expected an image, got {height}x{width} pixels")
    return height, width, content.index(fields[3]) + len(fields[3]) + 1
