"""Positions of the rows of MCUs (minimum coded units) in a JPEG file, packed for the Index."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from readers.jpeg.header import NoRowsError

_PACKED = struct.Struct("<BBIQI")
_VERSION = 2
"""Version of the packed form."""


class DamagedRowsError(NoRowsError):
    """The entropy-coded data contain fewer MCUs than the image needs."""


class ChangedRowsError(NoRowsError):
    """The file has the recorded size and header, but its rows have changed."""


@dataclass(frozen=True, eq=False)
class McuRows:
    """Positions and checksums of the rows of MCUs in a file."""

    file_nbytes: int
    """Size of the file in bytes, to recognise the file."""
    header_nbytes: int
    """Number of bytes before the entropy-coded data."""
    header_crc: int
    """CRC-32 of the header, to recognise the file."""
    starts: NDArray[np.int64]
    """Shape (rows + 1,): first bit of each row in the file, and end of the image, in bits."""
    predictions: NDArray[np.int16]
    """Shape (rows, components): DC coefficients before each row."""
    crcs: NDArray[np.uint32]
    """Shape (rows,): CRC-32 of each row's bytes, including bytes shared with other rows."""

    def pack(self) -> bytes:
        """Return the rows as bytes: 12 + 2 * components per row."""
        components = self.predictions.shape[1]
        counts = _PACKED.pack(
            _VERSION, components, self.header_nbytes, self.file_nbytes, self.header_crc
        )
        arrays = (self.starts, "<i8"), (self.crcs, "<u4"), (self.predictions, "<i2")
        return b"".join((counts, *(array.astype(dtype).tobytes() for array, dtype in arrays)))

    @classmethod
    def unpack(cls, packed: bytes) -> McuRows:
        """Parse the result of `pack`; NoRowsError for another version."""
        if packed[:1] != bytes((_VERSION,)):
            raise NoRowsError(f"the MCU index has version {packed[:1]!r}")
        _, components, header_nbytes, file_nbytes, header_crc = _PACKED.unpack_from(packed)
        rows = (len(packed) - _PACKED.size - 8) // (12 + 2 * components)
        starts = np.frombuffer(packed, "<i8", rows + 1, _PACKED.size)
        at = _PACKED.size + starts.nbytes
        crcs = np.frombuffer(packed, "<u4", rows, at)
        predictions = np.frombuffer(packed, "<i2", offset=at + crcs.nbytes)
        predictions = predictions.reshape(rows, components)
        return cls(file_nbytes, header_nbytes, header_crc, starts, predictions, crcs)

    def is_of(self, header: bytes, file_nbytes: int) -> bool:
        """Return whether these are the header and the size of the recorded file."""
        return self.file_nbytes == file_nbytes and self.header_crc == isal_zlib.crc32(header)

    def byte_range(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of bytes in the file with rows `first` to `last`."""
        return int(self.starts[first]) // 8, -(-int(self.starts[last + 1]) // 8)

    def check(self, first: int, last: int, coded: bytes) -> None:
        """Raise ChangedRowsError if the bytes of ``byte_range(first, last)`` have changed."""
        view, starts = memoryview(coded), self.starts[first : last + 2]
        begins, ends = starts[:-1] // 8 - starts[0] // 8, -(-starts[1:] // 8) - starts[0] // 8
        crcs = self.crcs[first : last + 1].tolist()
        for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            if isal_zlib.crc32(view[begin:end]) != crcs[row]:
                raise ChangedRowsError(f"MCU row {first + row} has changed since it was recorded")
