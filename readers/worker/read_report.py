"""Report of a reader process about one slot, sent with the pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RECORD = np.dtype(
    [
        ("amounts", np.float64, 6),  # exact up to 2**53 bytes
        ("rejected_row", np.int64),
        ("is_of_store", np.bool_),
        ("is_blank", np.bool_),
        ("reason", "S400"),  # NumPy cuts off longer text
    ]
)
REPORT_BYTES = _RECORD.itemsize


@dataclass(slots=True)
class ReadReport:
    """Record of one slot. It is sent to the consumer as bytes, because DALI has no text."""

    read_s: float = 0.0
    """Seconds that the reader process spent on this slot."""
    read_cpu_s: float = 0.0
    """CPU time in `read_s`, in seconds. The rest was waiting for files or for a core."""
    input_bytes: int = 0
    """Number of bytes read from the file."""
    rejected_row: int | None = None
    """Row of the Index in this slot, if it could not be read."""
    reason: str = ""
    """Reason why the row could not be read."""
    is_of_store: bool = False
    """See `dali_pipelines.ReadError`."""
    traffic: tuple[int, int, int] = (0, 0, 0)
    """Requests to remote storage, bytes of their answers, and bytes from the cache, of the whole
    reader process since its last report."""
    is_blank: bool = False
    """With tail `fill`: whether no row that can be read was found for the slot."""
    status: int = 0
    """Status of the graph's decoder: 0, or the status of the first damaged image. Set by
    `unpack`."""
    image: int | None = None
    """Number of the damaged image, if the sample has several files or HDUs."""

    @property
    def damaged(self) -> bool:
        """Whether the graph could not decode the bytes."""
        return self.status != 0

    def reject(self, row: int, reason: str, is_of_store: bool = False) -> None:
        """Record that a row cannot be read. Long reasons are cut off."""
        self.rejected_row, self.reason, self.is_of_store = row, reason, is_of_store

    def pack(self) -> NDArray[np.uint8]:
        """Return the record as bytes, shape (REPORT_BYTES,)."""
        amounts = self.read_s, self.read_cpu_s, self.input_bytes, *self.traffic
        rejected = -1 if self.rejected_row is None else self.rejected_row
        reason = self.reason.encode(errors="replace")  # `of_slot` drops a character cut in two
        record = amounts, rejected, self.is_of_store, self.is_blank, reason
        return np.array([record], _RECORD).view(np.uint8)

    @classmethod
    def unpack(cls, packed: NDArray[np.uint8]) -> list[ReadReport]:
        """Read the records of a batch; `packed` is as in `ReadReports`."""
        reports = ReadReports(packed)
        return [reports.of_slot(slot) for slot in range(len(packed))]


class ReadReports:
    """Records of a batch. Most records only have numbers to be summed.

    Parameters
    ----------
    packed : ndarray, shape (batch, bytes), uint8
        Output ``report`` of a pipeline: the record, then the status of the decoder, if any, for
        each image of a sample (int32, 0 if good).
    """

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        packed = np.ascontiguousarray(packed)
        self._records = packed[:, :REPORT_BYTES].view(_RECORD)[:, 0]
        self._statuses = packed[:, REPORT_BYTES:].view(np.int32)

    def sum(self) -> ReadReport:
        """Return a report with the sums of times, bytes and traffic."""
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
        statuses = self._statuses[slot].tolist()
        damaged = [number for number, status in enumerate(statuses) if status]
        if damaged:
            found.status = statuses[damaged[0]]
            found.image = damaged[0] if len(statuses) > 1 else None
        return found


def _with_amounts(amounts: NDArray[np.float64]) -> ReadReport:
    read_s, read_cpu_s, *counts = amounts.tolist()
    input_bytes, requests, sent, cached = map(int, counts)
    return ReadReport(read_s, read_cpu_s, input_bytes, traffic=(requests, sent, cached))
