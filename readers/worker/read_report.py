"""What a reader process tells about one slot, besides pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_REASON_BYTES = 400
_RECORD = np.dtype(
    [
        ("read_s", "f8"),
        ("read_cpu_s", "f8"),
        ("input_bytes", "i8"),
        ("rejected_row", "i8"),
        ("reason", f"S{_REASON_BYTES}"),
    ]
)


@dataclass(slots=True)
class ReadReport:
    """The record of one slot; it crosses to the consumer as bytes, since DALI carries no text."""

    read_s: float = 0.0
    """Seconds that the reader process spent on this slot."""
    read_cpu_s: float = 0.0
    """Of these, seconds that it computed; for the rest it waited, for files or for a core."""
    input_bytes: int = 0
    """Bytes of the file that were read."""
    rejected_row: int | None = None
    """Row of the Index that belongs to this slot and could not be read."""
    reason: str = ""
    """Why not."""
    damaged: bool = False
    """Whether the graph found what was read not to decode; set by `unpack` alone."""

    def reject(self, row: int, reason: str) -> None:
        """Note that a row cannot be read; a long reason is cut."""
        self.rejected_row, self.reason = row, reason

    def pack(self) -> NDArray[np.uint8]:
        """Return the record as bytes, the same number for every slot."""
        rejected = -1 if self.rejected_row is None else self.rejected_row
        # Trailing zero bytes are lost in an S field, which suits UTF-8; a cut character is dropped
        # by unpack.
        reason = self.reason.encode(errors="replace")[:_REASON_BYTES]
        times = self.read_s, self.read_cpu_s
        record = np.array([(*times, self.input_bytes, rejected, reason)], _RECORD)
        return record.view(np.uint8)

    @classmethod
    def unpack(cls, packed: NDArray[np.uint8]) -> list[ReadReport]:
        """Read the records of a batch.

        Parameters
        ----------
        packed : ndarray, shape (batch, bytes), uint8
            As the ``report`` output of a pipeline gives them: the record, and behind it, where a
            decoder tells, its status as int32, 0 if good.
        """
        size = _RECORD.itemsize
        records = np.ascontiguousarray(packed[:, :size]).view(_RECORD)[:, 0]
        return [
            cls(
                float(record["read_s"]),
                float(record["read_cpu_s"]),
                int(record["input_bytes"]),
                None if record["rejected_row"] < 0 else int(record["rejected_row"]),
                bytes(record["reason"]).decode(errors="ignore"),
                bool(status.any()),
            )
            for record, status in zip(records, packed[:, size:], strict=True)
        ]
