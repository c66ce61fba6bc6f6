"""The report of a reader process about one slot, sent along with the pixels."""

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
        ("reason", f"S{_REASON_BYTES}"),  # without the zero bytes at its end
    ]
)
"""The same as `_RECORD`."""
REPORT_BYTES = _RECORD.size


@dataclass(slots=True)
class ReadReport:
    """The record of one slot; sent to the consumer as bytes, since DALI has no text."""

    read_s: float = 0.0
    """Seconds that the reader process spent on this slot."""
    read_cpu_s: float = 0.0
    """Of these, seconds of CPU time; otherwise it waited for files or for a core."""
    input_bytes: int = 0
    """Bytes of the file that were read."""
    rejected_row: int | None = None
    """Row of the Index that belongs to this slot and could not be read."""
    reason: str = ""
    """Why the row could not be read."""
    is_of_store: bool = False
    """See `readers.errors.ReadError`."""
    traffic: tuple[int, int, int] = (0, 0, 0)
    """Requests to remote storage, bytes of their answers, and bytes from the cache, of the whole
    reader process since its last report."""
    is_blank: bool = False
    """Whether the slot should hold another row, with tail `fill`, and none could be read."""
    status: int = 0
    """That of the graph's decoder, 0 if good; of several images that of the first damaged one. Set
    only by `unpack`."""
    image: int | None = None
    """Number of that image, if the sample has several, of files or HDUs."""

    @property
    def damaged(self) -> bool:
        """Whether the graph could not decode the bytes."""
        return self.status != 0

    def reject(self, row: int, reason: str, is_of_store: bool = False) -> None:
        """Record that a row cannot be read; a long reason is truncated."""
        self.rejected_row, self.reason, self.is_of_store = row, reason, is_of_store

    def pack(self) -> NDArray[np.uint8]:
        """Return the record as bytes, of the same length for every slot."""
        rejected = -1 if self.rejected_row is None else self.rejected_row
        reason = self.reason.encode(errors="replace")  # unpack drops a character that is cut in two
        numbers = self.read_s, self.read_cpu_s, self.input_bytes, *self.traffic, rejected
        record = _RECORD.pack(*numbers, self.is_of_store, self.is_blank, reason)
        return np.frombuffer(record, np.uint8)

    @classmethod
    def unpack(cls, packed: NDArray[np.uint8]) -> list[ReadReport]:
        """Read the records of a batch; `packed` is that of `ReadReports`."""
        reports = ReadReports(packed)
        return [reports.of_slot(slot) for slot in range(len(packed))]


class ReadReports:
    """The records of a batch. Most hold only numbers to be summed.

    Parameters
    ----------
    packed : ndarray, shape (batch, bytes), uint8
        The ``report`` output of a pipeline: the record, then the decoder's status as int32 if it
        has one, for each image of a sample, 0 if good.
    """

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        packed = np.ascontiguousarray(packed)
        self._records = packed[:, :REPORT_BYTES].view(_FIELDS)[:, 0]
        self._statuses = packed[:, REPORT_BYTES:].view(np.int32)

    def sum(self) -> ReadReport:
        """Return a report of the times, bytes and traffic of all slots together."""
        return _with_amounts(self._records["amounts"].sum(axis=0))

    def bad_slots(self) -> list[int]:
        """Return the slots that were rejected, or are damaged or blank."""
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
    """Return the status and the number of the first damaged image; 0 and None if there is none."""
    for number, status in enumerate(statuses):
        if status:
            return status, number if len(statuses) > 1 else None
    return 0, None
