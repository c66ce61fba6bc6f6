"""Report of a reader process about one slot, sent with the pixels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_REASON_BYTES = 400
_RECORD = struct.Struct(f"=6dq??{_REASON_BYTES}s")
_FIELDS = np.dtype(
    [
        ("amounts", np.float64, 6),  # exact up to 2**53 bytes
        ("rejected_row", np.int64),
        ("is_of_store", np.bool_),
        ("is_blank", np.bool_),
        ("reason", f"S{_REASON_BYTES}"),  # NumPy strips trailing zeros
    ]
)
"""NumPy dtype with the fields of `_RECORD`."""
REPORT_BYTES = _RECORD.size


@dataclass(slots=True)
class ReadReport:
    """Record of one slot, sent to the consumer as bytes, because DALI has no text."""

    read_s: float = 0.0
    """Seconds that the reader process spent on this slot."""
    read_cpu_s: float = 0.0
    """Seconds of CPU time in `read_s`; the rest was waiting for files or for a core."""
    input_bytes: int = 0
    """Bytes that were read from the file."""
    rejected_row: int | None = None
    """Row of the Index in this slot that could not be read."""
    reason: str = ""
    """Reason why the row could not be read."""
    is_of_store: bool = False
    """See `dali_pipelines.ReadError`."""
    traffic: tuple[int, int, int] = (0, 0, 0)
    """Requests to remote storage, bytes of their answers, and bytes from the cache, for the whole
    reader process since its last report."""
    is_blank: bool = False
    """True if a slot filled with another row, with tail `fill`, found none that can be read."""
    status: int = 0
    """Status of the graph's decoder, 0 if good; for several images that of the first damaged one.
    Only `unpack` sets it."""
    image: int | None = None
    """Number of the damaged image, if the sample has several files or HDUs."""

    @property
    def damaged(self) -> bool:
        """Whether the graph could not decode the bytes."""
        return self.status != 0

    def reject(self, row: int, reason: str, is_of_store: bool = False) -> None:
        """Record that a row cannot be read; long reasons are truncated."""
        self.rejected_row, self.reason, self.is_of_store = row, reason, is_of_store

    def pack(self) -> NDArray[np.uint8]:
        """Return the record as bytes, of the same length for every slot."""
        rejected = -1 if self.rejected_row is None else self.rejected_row
        reason = self.reason.encode(errors="replace")  # unpack drops characters cut in two
        numbers = self.read_s, self.read_cpu_s, self.input_bytes, *self.traffic, rejected
        record = _RECORD.pack(*numbers, self.is_of_store, self.is_blank, reason)
        return np.frombuffer(record, np.uint8)

    @classmethod
    def unpack(cls, packed: NDArray[np.uint8]) -> list[ReadReport]:
        """Read the records of a batch; `packed` is as in `ReadReports`."""
        reports = ReadReports(packed)
        return [reports.of_slot(slot) for slot in range(len(packed))]


class ReadReports:
    """Records of a batch. Most contain only numbers to be summed.

    Parameters
    ----------
    packed : ndarray, shape (batch, bytes), uint8
        Output ``report`` of a pipeline: the record and, if there is a decoder, its status (int32, 0
        if good) for each image of a sample.
    """

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        packed = np.ascontiguousarray(packed)
        self._records = packed[:, :REPORT_BYTES].view(_FIELDS)[:, 0]
        self._statuses = packed[:, REPORT_BYTES:].view(np.int32)

    def sum(self) -> ReadReport:
        """Return a report with the times, bytes and traffic of all slots together."""
        return _with_amounts(self._records["amounts"].sum(axis=0))

    def bad_slots(self) -> list[int]:
        """Return the slots that were rejected, damaged or blank."""
        found = (self._records["rejected_row"] >= 0) | self._records["is_blank"]
        if self._statuses.size:
            found |= self._statuses.any(axis=1)
        return found.nonzero()[0].tolist()

    def of_slot(self, slot: int) -> ReadReport:
        """Return the report of a slot."""
        amounts, rejected, is_of_store, is_blank, reason = self._records[slot].tolist()
        found = _with_amounts(amounts)
        found.rejected_row = None if rejected < 0 else rejected
        found.reason, found.is_of_store = reason.decode(errors="ignore"), is_of_store
        found.is_blank = is_blank
        found.status, found.image = _first_damaged(self._statuses[slot].tolist())
        return found


def _with_amounts(amounts: NDArray[np.float64]) -> ReadReport:
    read_s, read_cpu_s, *counts = amounts.tolist()
    input_bytes, requests, sent, cached = map(int, counts)
    return ReadReport(read_s, read_cpu_s, input_bytes, traffic=(requests, sent, cached))


def _first_damaged(statuses: Sequence[int]) -> tuple[int, int | None]:
    """Return the status and number of the first damaged image, or 0 and None."""
    for number, status in enumerate(statuses):
        if status:
            return status, number if len(statuses) > 1 else None
    return 0, None
